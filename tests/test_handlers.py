"""Custom calls that no function of jax_rtopk would make: the handlers must refuse them, not read out of bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_rtopk import _native

pytestmark = pytest.mark.native_only

ATTRIBUTES = {
    "topk": {"largest": True, "sorted": True},
    "mask": {"largest": True, "by_magnitude": False},
    "sparsify": {"by_magnitude": False},
}


@pytest.fixture
def call(backend):
    """Makes a custom call of one operation with results of any shape and dtype."""
    target = _native.BACKENDS["cuda" if backend.name == "gpu" else "cpu"].target

    def call(operation, operand, results, k, max_iter=0, **options):
        attributes = {"k": np.int64(k), "max_iter": np.int64(max_iter), **ATTRIBUTES[operation]}
        return jax.block_until_ready(jax.ffi.ffi_call(target(operation), results, **options)(operand, **attributes))

    return call


def _result(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def _topk_results(*shape):
    return _result(*shape), _result(*shape, dtype=jnp.int32)


@pytest.mark.parametrize(
    ("operation", "operand", "results", "attributes", "message"),
    [
        ("topk", (), _topk_results(1), {"k": 1}, "at least one dimension"),
        ("topk", (3, 5), _topk_results(3, 6), {"k": 6}, "k must be between 0 and the row length 5, got 6"),
        ("topk", (3, 5), _topk_results(3, 1), {"k": -1}, "k must be between 0"),
        ("topk", (3, 5), _topk_results(3, 2), {"k": 2, "max_iter": -1}, "max_iter must be at least 0"),
        ("topk", (3, 5), _topk_results(3, 1), {"k": 2}, r"values must have .* \[3, 5\] with 2 .*, got \[3, 1\]"),
        ("topk", (3, 5), _topk_results(2, 2), {"k": 2}, "values must have"),
        ("topk", (3, 5), _topk_results(6), {"k": 2}, "values must have"),
        ("topk", (3, 5), (_result(3, 2), _result(3, 2)), {"k": 2}, "indices must be of dtype int32"),
        ("topk", (3, 5), (_result(3, 2), _result(3, 1, dtype=jnp.int32)), {"k": 2}, "indices must have"),
        ("topk", (3, 5), (_result(3, 2, dtype=jnp.int32),) * 2, {"k": 2}, "values must have the operand's dtype"),
        ("mask", (3, 5), _result(3, 5, dtype=jnp.int8), {"k": 2}, "mask must be of dtype bool"),
        ("mask", (3, 5), _result(3, 4, dtype=jnp.bool_), {"k": 2}, "mask must have"),
        ("sparsify", (3, 5), _result(3, 5, dtype=jnp.int32), {"k": 2}, "dense must have the operand's dtype"),
        ("sparsify", (3, 5), _result(5, 3), {"k": 2}, "dense must have"),
    ],
)
def test_malformed_calls_are_refused(call, operation, operand, results, attributes, message):
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: .*{message}"):
        call(operation, jnp.zeros(operand), results, **attributes)


def test_complex_operands_are_refused(call):
    with pytest.raises(Exception, match="jax_rtopk: the operand must be of a real dtype"):
        call("topk", jnp.zeros((3, 5), jnp.complex64), _topk_results(3, 2), k=2)


@pytest.mark.parametrize(
    ("operation", "name", "dtype", "results", "aliases"),
    [
        ("topk", "values", jnp.float32, _topk_results(3, 5), {0: 0}),
        ("topk", "indices", jnp.int32, (_result(3, 5, dtype=jnp.int32),) * 2, {0: 1}),
        ("mask", "mask", jnp.bool_, _result(3, 5, dtype=jnp.bool_), {0: 0}),
        ("sparsify", "dense", jnp.float32, _result(3, 5), {0: 0}),
    ],
)
def test_calls_in_place_are_refused(call, operation, name, dtype, results, aliases):
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: {name} must not be the operand's own buffer"):
        call(operation, jnp.ones((3, 5), dtype), results, k=5, input_output_aliases=aliases)


def test_empty_calls_in_place(call):
    call("sparsify", jnp.ones((0, 5)), _result(0, 5), k=2, input_output_aliases={0: 0})


def test_nothing_kept_is_all_zeros(call):
    operand = jnp.ones((3, 5))
    assert not call("mask", operand, _result(3, 5, dtype=jnp.bool_), k=0).any()
    assert not call("sparsify", operand, _result(3, 5), k=0).any()
