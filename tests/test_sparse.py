"""The sparse functions on every back end: values and derivatives, bit for bit where the order of sums is kept."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import sparse_oracle
from sparse_oracle import some_indices

from jax_rtopk import CSRGraph, _native, neighbor_sum, sampled_dense_matmul, sparse_dense_matmul

pytestmark = pytest.mark.usefixtures("backend")


# What is the same for every back end.
def once(test):
    return pytest.mark.native_only(pytest.mark.not_emulated(test))


INT32 = np.iinfo(np.int32)


def floats(rng, shape, dtype, kind):
    if kind == "integers":  # whose products and sums every dtype holds, in any order
        return rng.integers(-1, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def check(backend, got, want, kind, terms):
    """Every bit in native code, which keeps an order; elsewhere as near as `terms` rounded terms let sums be."""
    if backend.native or kind == "integers":
        oracle.assert_same(got, want)
    else:
        assert got.dtype == want.dtype
        tolerance = float(jnp.finfo(want.dtype).eps) + terms * float(jnp.finfo(sparse_oracle.wide(want).dtype).eps)
        np.testing.assert_allclose(
            np.asarray(got).astype(np.float64), want.astype(np.float64), rtol=4 * tolerance, atol=40 * tolerance
        )


# rows, k, n, d
SHAPES = {
    "one of each": ((1,), 1, 1, 1),
    "no batch axis": ((), 3, 7, 5),
    "vectors and a rest": ((9,), 5, 11, 77),
    "two batch axes": ((3, 4), 2, 6, 33),
    "all columns in vectors": ((6,), 4, 9, 256),
    "k above n": ((5,), 12, 4, 16),
}


F32, BF16, F16, F64 = sparse_oracle.FLOATS
CASES = [
    (F32, "normal", "one of each"),
    (F32, "normal", "no batch axis"),
    (F32, "normal", "vectors and a rest"),
    (F32, "normal", "all columns in vectors"),
    (F32, "integers", "k above n"),
    (BF16, "normal", "two batch axes"),
    (F16, "integers", "vectors and a rest"),
    (F16, "normal", "vectors and a rest"),
    (F64, "normal", "two batch axes"),
]


@pytest.mark.parametrize(("dtype", "kind", "name"), CASES, ids=str)
def test_matmuls_and_their_derivatives(backend, dtype, kind, name):
    """What each of the two returns is a derivative of the other, and they have the third in common."""
    rng = np.random.default_rng(0)
    rows, k, n, d = SHAPES[name]
    values, weight = floats(rng, (*rows, k), dtype, kind), floats(rng, (n, d), dtype, kind)
    indices, cotangent = some_indices(rng, (*rows, k), n), floats(rng, (*rows, d), dtype, kind)

    @jax.jit
    def function(values, indices, weight, cotangent):
        rows, pullback = jax.vjp(lambda v, w: sparse_dense_matmul(v, indices, w), values, weight)
        sampled, pullback_sampled = jax.vjp(lambda x, w: sampled_dense_matmul(x, w, indices), cotangent, weight)
        return (rows, *pullback(cotangent)), (sampled, *pullback_sampled(values))

    with oracle.x64_for(dtype):
        (rows, by_values, by_weight), (sampled, by_x, by_sampled_weight) = function(values, indices, weight, cotangent)
        for got in (rows, by_x):
            check(backend, got, sparse_oracle.gather_sum(values, indices, weight), kind, k)
        for got in (by_values, sampled):
            check(backend, got, sparse_oracle.sampled_dot(cotangent, indices, weight), kind, d)
        for got in (by_weight, by_sampled_weight):
            check(backend, got, sparse_oracle.scatter_add(values, indices, cotangent, n), kind, values.size)


@once
@pytest.mark.parametrize(("rows", "k", "n", "d"), [(0, 3, 4, 5), (4, 0, 3, 5), (4, 2, 0, 5), (4, 2, 3, 0)])
def test_empty_matmuls(rows, k, n, d):
    values, indices, weight = jnp.ones((rows, k)), jnp.zeros((rows, k), jnp.int32), jnp.ones((n, d))
    out, pullback = jax.vjp(lambda v, w: sparse_dense_matmul(v, indices, w, implementation="native"), values, weight)
    by_values, by_weight = pullback(out)
    sampled = sampled_dense_matmul(jnp.ones((rows, d)), weight, indices, implementation="native")
    for got, like in ((out, np.zeros((rows, d))), (by_values, values), (by_weight, weight), (sampled, values)):
        assert got.shape == like.shape
        assert not got.any()


@once
@pytest.mark.parametrize(
    ("targets", "sources", "edges", "k", "n"),
    [(3, 3, 0, 2, 4), (3, 0, 5, 2, 4), (0, 3, 5, 2, 4), (3, 3, 5, 0, 4), (3, 3, 5, 2, 0)],
)
def test_empty_graphs(targets, sources, edges, k, n):
    nodes, values = jnp.zeros(edges, jnp.int32), jnp.ones((sources, k))

    def function(values, weights):
        graph = CSRGraph.from_edges(nodes, nodes, targets, num_sources=sources, weights=weights)
        return neighbor_sum(graph, values, jnp.zeros((sources, k), jnp.int32), n, implementation="native")

    @jax.jit
    def all_three(values, weights):
        out, pullback = jax.vjp(function, values, weights)
        return out, *pullback(out)

    out, by_values, by_weights = all_three(values, jnp.ones(edges))
    for got, shape in ((out, (targets, n)), (by_values, (sources, k)), (by_weights, (edges,))):
        assert got.shape == shape
        assert not got.any()


@once
def test_large_matmul(backend):
    """More than one task, and more than one panel of the weight."""
    rng = np.random.default_rng(1)
    rows, k, n, d = 3000, 5, 5000, 70
    values, weight = floats(rng, (rows, k), np.float32, "normal"), floats(rng, (n, d), np.float32, "normal")
    indices, cotangent = some_indices(rng, (rows, k), n), floats(rng, (rows, d), np.float32, "normal")
    got, pullback = jax.vjp(lambda v, w: sparse_dense_matmul(v, indices, w), values, weight)
    by_values, by_weight = pullback(jnp.asarray(cotangent))
    check(backend, got, sparse_oracle.gather_sum(values, indices, weight), "normal", k)
    check(backend, by_values, sparse_oracle.sampled_dot(cotangent, indices, weight), "normal", d)
    check(backend, by_weight, sparse_oracle.scatter_add(values, indices, cotangent, n), "normal", 60)


def test_what_is_outside_takes_no_part():
    """Neither its value, were it infinite, nor any row of the weight in its stead."""
    values = jnp.array([[np.inf, 1.0, np.nan, 2.0]])
    indices = jnp.array([[-1, 1, 3, 2]], jnp.int32)
    weight = jnp.array([[np.nan, np.inf], [1.0, 2.0], [3.0, 4.0]])
    out, pullback = jax.vjp(lambda v, w: sparse_dense_matmul(v, indices, w), values, weight)
    np.testing.assert_array_equal(out, [[7.0, 10.0]])
    by_values, by_weight = pullback(jnp.ones_like(out))
    np.testing.assert_array_equal(by_values, [[0.0, 3.0, 0.0, 7.0]])
    np.testing.assert_array_equal(by_weight, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])


@pytest.mark.parametrize("dtype", sparse_oracle.FLOATS[1:3], ids=str)
def test_all_16_bit_floats_are_read_and_written(backend, dtype):
    """Times one they come back: denormals, infinities, and NaNs as some NaN."""
    every = np.arange(0, 2**16, 13 if backend.name == "emulated" else 1).astype(np.uint16).view(dtype)
    got = sparse_dense_matmul(np.ones((1, 1), dtype), np.zeros((1, 1), np.int32), every[None])[0]
    with np.errstate(invalid="ignore"):
        got, want = np.asarray(got).astype(np.float32), every.astype(np.float32)
    # XLA's threads take denormal floats for zeros, of which some bfloat16 are.
    comparable = np.isfinite(want) & ((want == 0) | (np.abs(want) >= jnp.finfo(np.float32).tiny)) | np.isinf(want)
    np.testing.assert_array_equal(got[comparable], want[comparable])
    assert np.isnan(got[np.isnan(want)]).all()


def graph_operands(rng, dtype, kind, *, targets, sources, edges, k, n):
    froms = some_indices(rng, (edges,), sources)
    tos = some_indices(rng, (edges,), targets)
    weights, values = floats(rng, (edges,), dtype, kind), floats(rng, (sources, k), dtype, kind)
    return (
        froms,
        tos,
        weights,
        values,
        some_indices(rng, (sources, k), n),
        floats(rng, (targets, n), dtype, kind),
    )


GRAPHS = {
    "as many targets": {"targets": 9, "sources": 9, "edges": 40, "k": 3, "n": 20},
    "fewer targets": {"targets": 4, "sources": 11, "edges": 30, "k": 2, "n": 33},
}


GRAPH_CASES = [
    (F32, "normal", "as many targets"),
    (F32, "integers", "fewer targets"),
    (BF16, "normal", "fewer targets"),
    (F16, "normal", "as many targets"),
    (F64, "normal", "fewer targets"),
]


@pytest.mark.parametrize(("dtype", "kind", "name"), GRAPH_CASES, ids=str)
def test_neighbor_sum_and_its_derivatives(backend, dtype, kind, name):
    sizes = GRAPHS[name]
    targets, sources, n = sizes["targets"], sizes["sources"], sizes["n"]
    froms, tos, weights, values, indices, cotangent = graph_operands(np.random.default_rng(2), dtype, kind, **sizes)

    @jax.jit
    def function(values, weights, froms, tos, indices, cotangent):
        def aggregate(values, weights):
            graph = CSRGraph.from_edges(froms, tos, targets, num_sources=sources, weights=weights)
            return neighbor_sum(graph, values, indices, n)

        out, pullback = jax.vjp(aggregate, values, weights)
        return out, *pullback(cotangent)

    with oracle.x64_for(dtype):
        got, by_values, by_weights = function(values, weights, froms, tos, indices, cotangent)
        edges = sparse_oracle.Edges(froms, tos, weights, targets, sources)
        check(backend, got, edges.neighbor_sum(values, indices, n), kind, 40)
        check(backend, by_values, edges.neighbor_dot(cotangent, indices), kind, 40)
        check(backend, by_weights, edges.edge_dot(values, cotangent, indices, len(weights)), kind, 40)


@once
def test_large_graph(backend):
    """More than one task for each of the operations."""
    rng = np.random.default_rng(3)
    sizes = {"targets": 700, "sources": 600, "edges": 9000, "k": 64, "n": 150}
    froms, tos, weights, values, indices, cotangent = graph_operands(rng, np.dtype(np.float32), "normal", **sizes)

    def function(values, weights):
        graph = CSRGraph.from_edges(froms, tos, 700, num_sources=600, weights=weights)
        return neighbor_sum(graph, values, indices, 150)

    got, pullback = jax.vjp(function, values, weights)
    by_values, by_weights = pullback(jnp.asarray(cotangent))
    edges = sparse_oracle.Edges(froms, tos, weights, 700, 600)
    check(backend, got, edges.neighbor_sum(values, indices, 150), "normal", 40)
    check(backend, by_values, edges.neighbor_dot(cotangent, indices), "normal", 40)
    check(backend, by_weights, edges.edge_dot(values, cotangent, indices, 9000), "normal", 64)


@pytest.mark.parametrize("edges", [0, 1, 40])
def test_graphs_are_made_as_numpy_would(edges):
    rng = np.random.default_rng(13)
    froms, tos = some_indices(rng, (edges,), 5), some_indices(rng, (edges,), 7)
    arrays, order = sparse_oracle.graph_arrays(froms, tos, 7, 5)
    graph = CSRGraph.from_edges(froms, tos, 7, num_sources=5, weights=np.arange(edges, dtype=np.float32))
    jax.tree.map(oracle.assert_same, graph, CSRGraph(weights=order.astype(np.float32), **arrays))


@once
def test_weights_of_one():
    rng = np.random.default_rng(4)
    froms, tos, _, values, indices, _ = graph_operands(
        rng, np.dtype(np.float32), "normal", targets=5, sources=5, edges=20, k=2, n=8
    )
    arrays, _ = sparse_oracle.graph_arrays(froms, tos, 5, 5)
    plain, weighted = CSRGraph(weights=None, **arrays), CSRGraph(weights=np.ones(20, np.float32), **arrays)
    np.testing.assert_array_equal(neighbor_sum(plain, values, indices, 8), neighbor_sum(weighted, values, indices, 8))


@pytest.mark.native_only
def test_hostile_graphs():
    """What no constructor makes: nothing outside the arrays is read or written."""
    rng = np.random.default_rng(5)
    values, indices = floats(rng, (4, 2), np.float32, "normal"), some_indices(rng, (4, 2), 6)
    for _ in range(20):
        pointers = [rng.choice(np.array([INT32.min, -1, 0, 3, 7, 8, INT32.max], np.int32), 5) for _ in range(2)]
        nodes = [some_indices(rng, (7,), 4) for _ in range(2)]
        graph = CSRGraph(
            pointers[0],
            nodes[0],
            np.ones(7, np.float32),
            pointers[1],
            nodes[1],
            some_indices(rng, (7,), 7),
        )
        out, pullback = jax.vjp(
            lambda v, w, graph=graph: neighbor_sum(graph._replace(weights=w), v, indices, 6), values, graph.weights
        )
        jax.block_until_ready(pullback(out))


def test_vmap_keeps_indices_to_their_own_weight():
    """Those outside included, where the weights of a batch are side by side."""
    indices = jnp.array([[[7, 0]], [[-1, 6]]], jnp.int32)
    weights = np.repeat(np.float32([1, 9]), 7).reshape(2, 7, 1)
    got = jax.jit(jax.vmap(sparse_dense_matmul))(np.ones((2, 1, 2), np.float32), indices, weights)
    assert got.ravel().tolist() == [1.0, 9.0]


def test_nothing_of_size_rows_k_d_is_made():
    indices = jnp.zeros((6, 3), jnp.int32)

    def loss(v, w):
        return (sampled_dense_matmul(sparse_dense_matmul(v, indices, w), w, indices) ** 2).sum()

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(jnp.ones((6, 3)), jnp.ones((7, 5))).compile()
    for shape in ("6,3,5", "3,6,5", "6,5,3", "18,5", "5,18"):
        assert f"f32[{shape}]" not in compiled.as_text()


@pytest.mark.native_only
def test_export_with_a_symbolic_batch():
    (rows,) = jax.export.symbolic_shape("rows")
    shapes = [jax.ShapeDtypeStruct((rows, 3), t) for t in (jnp.float32, jnp.int32)]
    weight = jnp.ones((7, 5))
    some = some_indices(np.random.default_rng(6), (6, 3), 7)

    def function(values, indices):
        rows, pullback = jax.vjp(lambda v, w: sparse_dense_matmul(v, indices, w), values, weight)
        return *pullback(jnp.ones_like(rows)), sampled_dense_matmul(jnp.ones_like(rows), weight, indices)

    targets = [
        native.target(name) for native in _native.BACKENDS.values() for name in _native.SPARSE
    ]  # the emulator's too
    exported = jax.export.export(
        jax.jit(function),
        disabled_checks=list(map(jax.export.DisabledSafetyCheck.custom_call, targets)),
    )(*shapes)
    by_values, by_weight, sampled = exported.call(jnp.ones((6, 3)), some)
    np.testing.assert_array_equal(by_values, 5.0 * sparse_oracle.inside(some, 7))
    np.testing.assert_array_equal(sampled, by_values)
    counts = np.bincount(some[sparse_oracle.inside(some, 7)], minlength=7)
    np.testing.assert_array_equal(by_weight, np.repeat(counts[:, None], 5, 1))
