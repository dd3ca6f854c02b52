"""Few long rows that a GPU selects from by digits: the custom calls themselves, and which rows JAX gives them."""

import re

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import _native, export_disabled_checks, topk, topk_mask, topk_sparsify

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.cuda_only]

OF_EACH_WIDTH = [np.int8, ml_dtypes.bfloat16, np.float32, np.int32, np.float64]


@pytest.fixture
def native(backend):
    return _native.BACKENDS["cuda" if backend.name == "gpu" else "cpu"]


@pytest.fixture
def call(native):
    def call(operation, x, k, *, workspace=None, **order):
        with oracle.x64_for(x.dtype):
            x = jnp.asarray(x)
            if workspace is None:
                needed = native.module.by_digits_workspace(x.dtype.itemsize)
                workspace = jax.ShapeDtypeStruct((*x.shape[:-1], needed), jnp.uint8)
            selected = (*x.shape[:-1], k)
            results = {
                "topk": [jax.ShapeDtypeStruct(selected, x.dtype), jax.ShapeDtypeStruct(selected, jnp.int32)],
                "mask": [jax.ShapeDtypeStruct(x.shape, bool)],
                "sparsify": [jax.ShapeDtypeStruct(x.shape, x.dtype)],
            }[operation]
            custom_call = jax.ffi.ffi_call(native.target(f"{operation}_by_digits"), [*results, workspace])
            return jax.block_until_ready(custom_call(x, k=np.int64(k), **order))[:-1]

    return call


def check(call, x, k, *, largest=True, sorted=True):
    want_values, want_indices = oracle.topk(x, k, largest=largest, sorted=sorted)
    values, indices = call("topk", x, k, largest=largest, sorted=sorted)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)


def in_two_parts(dtype):
    """The shape of two rows, of which an emulated GPU takes two parts each; the last pack is not full."""
    return 2, 2 * 8192 // np.dtype(dtype).itemsize + 3


@pytest.mark.parametrize("k", [1, 700])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", OF_EACH_WIDTH)
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_topk_bit_for_bit(call, kind, dtype, largest, k):
    x = oracle.operand(np.random.default_rng(1), np.dtype(dtype), in_two_parts(dtype), kind)
    check(call, x, k, largest=largest, sorted=k == 1)


@pytest.mark.parametrize("by_magnitude", [True, False])
@pytest.mark.parametrize("dtype", OF_EACH_WIDTH)
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_dense_results_bit_for_bit(call, kind, dtype, by_magnitude):
    x = oracle.operand(np.random.default_rng(2), np.dtype(dtype), in_two_parts(dtype), kind)
    order = {"largest": True, "by_magnitude": by_magnitude}
    want = oracle.mask(x, 1500, **order)
    oracle.assert_same(call("mask", x, 1500, **order)[0], want)
    (dense,) = call("sparsify", x, 1500, by_magnitude=by_magnitude)
    oracle.assert_same(dense, np.where(want, x, np.zeros((), x.dtype)))
    (mask,) = call("mask", x, 3, largest=False, by_magnitude=by_magnitude)
    oracle.assert_same(mask, oracle.mask(x, 3, largest=False, by_magnitude=by_magnitude))


@pytest.mark.parametrize(
    ("rows", "n", "k"),
    [
        (1, 1, 1),
        (3, 5, 5),
        (1, 8196, 8196),  # four parts, and all of them
        (1, 8197, 8196),
        (9, 100, 31),  # more rows than blocks
        (0, 100, 31),
        (2, 100, 0),
    ],
)
def test_rows_of_every_length(call, rows, n, k):
    x = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32)
    check(call, x, k)
    check(call, np.round(x), k, sorted=False)
    mask = oracle.mask(x, k)
    oracle.assert_same(call("mask", x, k, largest=True, by_magnitude=False)[0], mask)
    oracle.assert_same(call("sparsify", x, k, by_magnitude=False)[0], np.where(mask, x, np.float32(0)))


@pytest.mark.parametrize(
    ("dtype", "rows", "k"),
    [
        (np.float32, 2, 4096),  # a run
        (np.float32, 2, 4097),  # a run and one more
        (np.uint8, 1, 20000),  # five runs, many of them alike
        (np.float64, 1, 9000),
    ],
)
def test_results_that_are_sorted_by_many_blocks(call, dtype, rows, k):
    x = (np.random.default_rng(k).standard_normal((rows, k + 50)) * 100).astype(dtype)
    check(call, x, k)
    check(call, x, k, largest=False)


def test_the_lowest_of_equals_across_parts(call):
    x = np.zeros((1, 9000), np.float32)
    x[0, [8999, 4000, 3]] = 1
    for k in (1, 2, 3, 4, 8000):
        check(call, x, k)
        mask = oracle.mask(x, k)
        oracle.assert_same(call("mask", x, k, largest=True, by_magnitude=False)[0], mask)
        oracle.assert_same(call("sparsify", x, k, by_magnitude=False)[0], np.where(mask, x, np.float32(0)))


@pytest.mark.parametrize("operation", ["topk", "mask", "sparsify"])
def test_malformed_workspaces_are_refused(call, native, operation):
    needed = native.module.by_digits_workspace(4)
    order = {
        "topk": {"largest": True, "sorted": True},
        "mask": {"largest": True, "by_magnitude": False},
        "sparsify": {"by_magnitude": False},
    }[operation]
    x = np.zeros((2, 100), np.float32)
    for dtype, shape, message in (
        (jnp.uint8, (2, needed - 1), f"at least {needed} bytes a row, got {needed - 1}"),
        (jnp.uint8, (1, needed), rf"the operand's shape \[2, 100\] with {needed} .*, got \[1, {needed}\]"),
        (jnp.int8, (2, needed), "dtype uint8"),
    ):
        with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: workspace must .*{message}"):
            call(operation, x, 4, workspace=jax.ShapeDtypeStruct(shape, dtype), **order)
    more = jax.ShapeDtypeStruct((2, needed + 5), jnp.uint8)
    assert np.shape(call(operation, x, 4, workspace=more, **order)[0])[0] == 2


@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8])
def test_which_rows_are_taken_by_digits(native, item_bytes):
    longest = 8192 if item_bytes == 8 else 16384
    assert not native.by_digits(1, longest, item_bytes)
    for n in (longest + 1, 2**24, 2**31 - 1):
        assert native.by_digits(1, n, item_bytes)
        assert not native.by_digits(10**6, n, item_bytes)  # which keep a GPU busy, a block each


def calls(function, *operands):
    return re.findall(r"@jax_rtopk_(?:emulated_)?(\w+)", jax.jit(function).lower(*operands).as_text())


def test_what_jax_calls():
    x = np.random.default_rng(2).standard_normal((2, 20000)).astype(np.float32)
    assert calls(lambda x: topk(x, 5000), x) == ["topk_by_digits"]
    assert calls(lambda x: topk_mask(x, 5), x) == ["mask_by_digits"]
    assert calls(lambda x: topk_sparsify(x, 5), x) == ["sparsify_by_digits"]
    for max_iter in (1, 2):
        assert calls(lambda x, m=max_iter: topk(x, 5000, max_iter=m), x) == ["topk"]
        assert calls(lambda x, m=max_iter: topk_mask(x, 5, max_iter=m), x) == ["mask"]
        assert calls(lambda x, m=max_iter: topk_sparsify(x, 5, max_iter=m), x) == ["sparsify"]
    assert calls(lambda x: topk_mask(x, 5), x[:, :16384]) == ["mask"]
    got = jax.jit(lambda x: topk(x, 5000, largest=False))(x)
    oracle.assert_same(got.indices, oracle.topk(x, 5000, largest=False)[1])
    oracle.assert_same(jax.jit(lambda x: topk_mask(x, 7, axis=0))(x.T), oracle.mask(x, 7).T)
    gradient = jax.jit(jax.grad(lambda x: topk_sparsify(x, 7, by_magnitude=True).sum()))(x)
    oracle.assert_same(gradient, oracle.mask(x, 7, by_magnitude=True).astype(np.float32))


def test_a_sharded_batch_stays_where_it_is(backend):
    x = np.random.default_rng(3).standard_normal((2, 2, 17000)).astype(np.float32)
    mesh = jax.sharding.Mesh(np.array(backend.devices[:2]), ("a",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, P(None, "a") if len(backend.devices) > 1 else P())
    sharded = jax.device_put(x, sharding)
    compiled = jax.jit(lambda x: (topk(x, 4000), topk_mask(x, 3))).lower(sharded).compile()
    assert not re.findall(r"(all-gather|all-reduce|all-to-all|collective-\w+)(?:-start)?\(", compiled.as_text())
    (_, indices), mask = compiled(sharded)
    assert indices.sharding.is_equivalent_to(sharding, 3)
    assert mask.sharding.is_equivalent_to(sharding, 3)
    oracle.assert_same(indices, oracle.topk(x, 4000)[1])
    oracle.assert_same(mask, oracle.mask(x, 3))


def test_export():
    batch = jax.export.symbolic_shape("batch")[0]
    emulated = jax.export.DisabledSafetyCheck.custom_call("jax_rtopk_emulated_mask_by_digits")
    exported = jax.export.export(
        jax.jit(lambda x: topk_mask(x, 4)), disabled_checks=[*export_disabled_checks(), emulated]
    )(jax.ShapeDtypeStruct((batch, 17000), jnp.float32))
    x = np.random.default_rng(6).standard_normal((2, 17000)).astype(np.float32)
    got = jax.export.deserialize(exported.serialize()).call(x)
    oracle.assert_same(got, oracle.mask(x, 4))
