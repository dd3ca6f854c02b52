"""Sharded programs with sparse operations: rows stay where they are, and only sums over them are moved."""

from functools import partial

import jax
import numpy as np
import pytest
import sparse_oracle
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from test_sharding import COLLECTIVE

from jax_rtopk import CSRGraph, neighbor_sum, sampled_dense_matmul, sparse_dense_matmul

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.not_emulated]

RNG = np.random.default_rng(0)
VALUES, INDICES, WEIGHT = (
    RNG.standard_normal((8, 4, 3)).astype(np.float32),
    RNG.integers(-2, 9, (8, 4, 3)).astype(np.int32),
    RNG.standard_normal((7, 8)).astype(np.float32),
)
ALL = (VALUES, INDICES, WEIGHT)


def grads(values, indices, weight):
    return jax.grad(lambda v, w: (sparse_dense_matmul(v, indices, w) ** 2).sum(), (0, 1))(values, weight)


X = RNG.standard_normal((8, 4, 8)).astype(np.float32)


def sampled_and_grads(x, weight, indices):
    out, pullback = jax.vjp(lambda x, w: sampled_dense_matmul(x, w, indices), x, weight)
    return out, *pullback(out)


def assert_close(got, want):
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5), got, want)


@pytest.mark.parametrize(
    ("rows", "weight", "reduced"),
    [(P("a"), P(), 1), (P("a", "b"), P(), 1), (P("a"), P(None, "b"), 2), (P(("a", "b")), P(), 1)],
    ids=str,
)
def test_auto(backend, mesh, rows, weight, reduced):
    auto = mesh(AxisType.Auto)
    operands = [jax.device_put(x, NamedSharding(auto, s)) for x, s in zip(ALL, (rows, rows, weight), strict=True)]
    forward = jax.jit(sparse_dense_matmul).lower(*operands).compile()
    backward = jax.jit(grads).lower(*operands).compile()
    assert_close(forward(*operands), sparse_dense_matmul(*ALL))
    assert_close(backward(*operands), grads(*ALL))
    assert not COLLECTIVE.findall(forward.as_text())
    if backend.native and auto.size > 1:
        # The derivative by the weight is summed over the rows' devices, that by the values over those of the columns.
        assert COLLECTIVE.findall(backward.as_text()) == ["all-reduce"] * reduced
        by_values, by_weight = backward(*operands)
        assert by_values.sharding.is_equivalent_to(operands[0].sharding, 3)
        assert by_weight.sharding.is_equivalent_to(operands[2].sharding, 2)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_sampled(backend, mesh, kind):
    """The result is summed over the devices of the columns, the derivative by the weight over those of the rows."""
    with jax.sharding.set_mesh(mesh(kind)):
        x, weight, indices = (
            jax.device_put(array, spec)
            for array, spec in ((X, P("a", None, "b")), (WEIGHT, P(None, "b")), (INDICES, P("a")))
        )
        compiled = jax.jit(sampled_and_grads).lower(x, weight, indices).compile()
        got = compiled(x, weight, indices)
    assert_close(got, sampled_and_grads(X, WEIGHT, INDICES))
    if backend.native and len(x.devices()) > 1:
        assert COLLECTIVE.findall(compiled.as_text()) == ["all-reduce"] * 2
        for array, like in zip(got, (indices, x, weight), strict=True):
            assert array.sharding.is_equivalent_to(like.sharding, array.ndim)


def test_rows_and_weight_over_the_same_axis(mesh):
    """The weight is gathered, not the rows."""
    auto = mesh(AxisType.Auto)
    specs = (P("a"), P("a"), P(None, "a"))
    operands = [jax.device_put(x, NamedSharding(auto, s)) for x, s in zip(ALL, specs, strict=True)]
    assert_close(jax.jit(grads)(*operands), grads(*ALL))


@pytest.mark.native_only  # XLA's own scatter-add, on jax 0.12, adds what it pads with to row 0
@pytest.mark.parametrize("rows", [6, 5])
def test_rows_that_the_devices_do_not_divide(mesh, rows):
    """Nothing may come of what XLA pads the last device's part with."""
    sharding = NamedSharding(mesh(AxisType.Auto), P("a"))
    values, indices = (jax.device_put(x, sharding) for x in ALL[:2])
    got = jax.jit(lambda v, i, w: grads(v[:rows], i[:rows], w))(values, indices, WEIGHT)
    assert_close(got, grads(VALUES[:rows], INDICES[:rows], WEIGHT))


@pytest.mark.native_only
def test_auto_under_gspmd(mesh):
    """The partitioner that Shardy has replaced, as long as JAX has it."""
    sharding = NamedSharding(mesh(AxisType.Auto), P("a", "b"))
    operands = [jax.device_put(x, sharding) for x in ALL[:2]]
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        forward = jax.jit(sparse_dense_matmul).lower(*operands, WEIGHT).compile()
        assert not COLLECTIVE.findall(forward.as_text())
        assert_close(forward(*operands, WEIGHT), sparse_dense_matmul(*ALL))
        assert_close(jax.jit(grads)(*operands, WEIGHT), grads(*ALL))
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_explicit(backend, mesh, jit):
    if jit is not jax.jit and not backend.native:
        pytest.skip("what is eager is the same, and takes seconds")
    want, want_grads = sparse_dense_matmul(*ALL), grads(*ALL)
    with jax.sharding.set_mesh(mesh(AxisType.Explicit)):
        values, indices = (jax.device_put(x, P("a", "b", None)) for x in ALL[:2])
        out = jit(sparse_dense_matmul)(values, indices, WEIGHT)
        assert jax.typeof(out).sharding.spec == P("a", "b", None)
        assert_close(out, want)
        by_values, by_weight = jit(grads)(values, indices, WEIGHT)
        assert jax.typeof(by_values).sharding.spec == P("a", "b", None)
        assert_close((by_values, by_weight), want_grads)


def test_shard_map(mesh):
    """What each device adds to the derivative by a weight that all have is summed."""
    rows = P("a", "b")
    mapped = jax.shard_map(sparse_dense_matmul, mesh=mesh(AxisType.Auto), in_specs=(rows, rows, P()), out_specs=rows)
    assert_close(jax.jit(mapped)(*ALL), sparse_dense_matmul(*ALL))

    def loss(values, weight):
        return (mapped(values, INDICES, weight) ** 2).sum()

    assert_close(jax.jit(jax.grad(loss, (0, 1)))(VALUES, WEIGHT), grads(*ALL))


def test_shard_map_over_some_mesh_axes(mesh):
    def mapped(function, *in_specs, **options):
        return jax.jit(
            jax.shard_map(
                partial(function, **options),
                mesh=mesh(AxisType.Auto),
                in_specs=in_specs,
                out_specs=P("a"),
                axis_names={"a"},
            )
        )

    rows, weight = P("a"), P()
    assert_close(mapped(sparse_dense_matmul, rows, rows, weight)(*ALL), sparse_dense_matmul(*ALL))
    rule = "must not be called in a jax.shard_map over some of the mesh axes. Leave axis_names out"
    with pytest.raises(NotImplementedError, match=f'^sparse_dense_matmul: implementation="native" {rule}'):
        mapped(sparse_dense_matmul, rows, rows, weight, implementation="native")(*ALL)
    with pytest.raises(NotImplementedError, match=f'^sampled_dense_matmul: implementation="native" {rule}'):
        mapped(sampled_dense_matmul, rows, weight, rows, implementation="native")(X, WEIGHT, INDICES)


def test_neighbors(mesh):
    """Gathered, and correct."""
    arrays, _ = sparse_oracle.graph_arrays(np.arange(8, dtype=np.int32), (np.arange(8, dtype=np.int32) + 3) % 8, 8, 8)
    graph = CSRGraph(weights=None, **arrays)
    sharding = NamedSharding(mesh(AxisType.Auto), P("a"))
    values, indices = (jax.device_put(x[:, 0], sharding) for x in ALL[:2])
    got = jax.jit(lambda v, i: neighbor_sum(graph, v, i, 7))(values, indices)
    assert_close(got, neighbor_sum(graph, VALUES[:, 0], INDICES[:, 0], 7))
