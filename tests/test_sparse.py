"""The sparse functions: values, derivatives and transformations, on every back end."""

from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import sparse_oracle
from jax.test_util import check_grads

from jax_rtopk import (
    CSRGraph,
    _native,
    export_disabled_checks,
    neighbor_sum,
    sampled_dense_matmul,
    sparse_dense_matmul,
    topk,
)

pytestmark = pytest.mark.usefixtures("backend")


# Derivatives and transformations are the same for every back end.
def once(test):
    return pytest.mark.native_only(pytest.mark.not_emulated(test))


INT32 = np.iinfo(np.int32)


def floats(rng, shape, dtype, kind):
    if kind == "integers":  # whose products and sums every dtype holds, in any order
        return rng.integers(-1, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def some_indices(rng, shape, n):
    """Most of them inside, some far outside, some twice in a row."""
    outside = rng.choice(np.array([-1, -n, n, n + 1, INT32.min, INT32.max], np.int32), shape)
    return np.where(rng.random(shape) < 0.2, outside, rng.integers(0, max(n, 1), shape)).astype(np.int32)


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
    return froms, tos, weights, values, some_indices(rng, (sources, k), n), floats(rng, (targets, n), dtype, kind)


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
            pointers[0], nodes[0], np.ones(7, np.float32), pointers[1], nodes[1], some_indices(rng, (7,), 7)
        )
        out, pullback = jax.vjp(
            lambda v, w, graph=graph: neighbor_sum(graph._replace(weights=w), v, indices, 6), values, graph.weights
        )
        jax.block_until_ready(pullback(out))


# Derivatives and transformations, against a dense matrix. The functions take values [6, 3], weight [7, 5].

INDICES = some_indices(np.random.default_rng(6), (6, 3), 7)
SOURCES, TARGETS = (np.random.default_rng(seed).integers(0, 6, 15).astype(np.int32) for seed in (7, 8))
EDGE_WEIGHTS = np.random.default_rng(9).standard_normal(15).astype(np.float32)
GRAPH_ARRAYS, GRAPH_ORDER = sparse_oracle.graph_arrays(SOURCES, TARGETS, 6, 6)


def dense(values):
    """The matrix [6, 7] of which the entries are."""
    to = np.where(sparse_oracle.inside(INDICES, 7), INDICES, 7)
    return jnp.zeros((6, 8), values.dtype).at[np.arange(6)[:, None], to].add(values)[:, :7]


def ours(values, weight):
    return sparse_dense_matmul(values, INDICES, weight)


def by_dense(values, weight):
    return dense(values) @ weight


def our_samples(values, weight):
    return sampled_dense_matmul(values, weight[:, :3], INDICES)


def dense_samples(values, weight):
    everything = jnp.pad(values @ weight[:, :3].T, ((0, 0), (0, 1)))
    to = np.where(sparse_oracle.inside(INDICES, 7), INDICES, 7)
    return jnp.take_along_axis(everything, to, axis=-1)


def our_neighbors(values, weight):
    """With weights of the edges that the second argument has a part in."""
    graph = CSRGraph(weights=EDGE_WEIGHTS[GRAPH_ORDER] * weight.sum(), **GRAPH_ARRAYS)
    return neighbor_sum(graph, values, INDICES, 7)


def dense_neighbors(values, weight):
    edge_weights = EDGE_WEIGHTS * weight.sum()
    return jnp.zeros((6, 7)).at[TARGETS].add(edge_weights[:, None] * dense(values)[SOURCES])


FUNCTIONS = {
    "matmul": (ours, by_dense),
    "sampled": (our_samples, dense_samples),
    "neighbors": (our_neighbors, dense_neighbors),
}


def stacked(x):
    return jnp.stack([x, -2 * x, x**2])


TRANSFORMS = {
    "jvp": lambda f, v, w: jax.jvp(f, (v, w), (jnp.cos(v), jnp.sin(w))),
    "jvp by one": lambda f, v, w: jax.jvp(lambda w: f(v, w), (w,), (jnp.sin(w),)),
    "jacobians": lambda f, v, w: (jax.jacfwd(f, (0, 1))(v, w), jax.jacrev(f, (0, 1))(v, w)),
    "hessian": lambda f, v, w: jax.hessian(lambda v, w: jnp.sum(jnp.sin(f(v, w))), (0, 1))(v, w),
    "third order": lambda f, v, w: jax.grad(jax.grad(jax.grad(lambda s: jnp.sum(jnp.sin(f(s * v, s * w))))))(1.1),
    "linear transpose": lambda f, v, w: jax.linear_transpose(lambda v: f(v, w), v)(f(jnp.cos(v), w)),
    "jit": lambda f, v, w: jax.jit(jax.value_and_grad(lambda v, w: jnp.sum(f(v, w) ** 2), (0, 1)))(v, w),
    "vmap of values": lambda f, v, w: jax.vmap(f, (0, None))(stacked(v), w),
    "vmap of weight": lambda f, v, w: jax.vmap(f, (None, 1))(v, jnp.moveaxis(stacked(w), 0, 1)),
    "vmap of both": lambda f, v, w: jax.vmap(f, (2, 0))(jnp.moveaxis(stacked(v), 0, 2), stacked(w)),
    "vmap of vmap": lambda f, v, w: jax.vmap(jax.vmap(f, (None, 0)), (0, None))(stacked(v), stacked(w)),
    "vmap of grad": lambda f, v, w: jax.vmap(jax.grad(lambda v, w: jnp.sum(f(v, w) ** 2), (0, 1)))(
        stacked(v), stacked(w)
    ),
    "grads by example": lambda f, v, w: jax.vmap(jax.grad(lambda w, v: jnp.sum(f(v, w) ** 2)), (None, 0))(
        w, stacked(v)
    ),
    "grad of vmap": lambda f, v, w: jax.grad(lambda w: jnp.sum(jax.vmap(f, (0, None))(stacked(v), w) ** 2))(w),
    "checkpoint": lambda f, v, w: jax.grad(jax.checkpoint(lambda v, w: jnp.sum(jnp.sin(f(jnp.sin(v), w)))), (0, 1))(
        v, w
    ),
    "scan": lambda f, v, w: jax.grad(
        lambda w: jax.lax.scan(lambda c, v: (c + jnp.sum(f(v, c * w) ** 2) / 90, None), 1.0, stacked(v))[0]
    )(w),
}

# The rules are the same; batches of graphs alone are made in another way.
OF_NEIGHBORS = ("jacobians", "hessian", "vmap of values", "vmap of both", "vmap of grad", "scan")
OF_SAMPLED = ("hessian", "vmap of both", "scan")
TRANSFORMS_OF = [
    *(("matmul", name) for name in TRANSFORMS),
    *(("sampled", name) for name in OF_SAMPLED),
    *(("neighbors", name) for name in OF_NEIGHBORS),
]


@once
@pytest.mark.parametrize(("name", "transform"), TRANSFORMS_OF, ids=["-".join(pair) for pair in TRANSFORMS_OF])
def test_transforms(name, transform):
    function, reference = FUNCTIONS[name]
    rng = np.random.default_rng(10)
    values, weight = (jnp.asarray(rng.standard_normal(shape), np.float32) / 2 for shape in ((6, 3), (7, 5)))
    got, want = (jax.jit(partial(TRANSFORMS[transform], f))(values, weight) for f in (function, reference))
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5), got, want)
    assert all(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(want)), "compares only zeros"


@once
@pytest.mark.parametrize(("function", "reference"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_finite_differences(function, reference):
    del reference
    rng = np.random.default_rng(11)
    operands = [jnp.asarray(rng.standard_normal(shape), np.float32) / 2 for shape in ((6, 3), (7, 5))]
    check_grads(jax.jit(function), operands, order=2, atol=3e-2, rtol=3e-2)


def test_vmap_keeps_indices_to_their_own_weight():
    """Those outside included, where the weights of a batch are side by side."""
    indices = jnp.array([[[7, 0]], [[-1, 6]]], jnp.int32)
    weights = np.repeat(np.float32([1, 9]), 7).reshape(2, 7, 1)
    got = jax.jit(jax.vmap(sparse_dense_matmul))(np.ones((2, 1, 2), np.float32), indices, weights)
    assert got.ravel().tolist() == [1.0, 9.0]


@once
def test_vmap_of_indices_and_graph():
    indices = jnp.stack([INDICES, INDICES[::-1]])
    values, weight = jnp.ones((6, 3)), jnp.ones((7, 5))
    got = jax.jit(jax.vmap(sparse_dense_matmul, (None, 0, None)))(values, indices, weight)
    np.testing.assert_array_equal(got, jnp.stack([sparse_dense_matmul(values, i, weight) for i in indices]))

    @jax.jit
    def by_edges(sources, targets, indices):
        return neighbor_sum(CSRGraph.from_edges(sources, targets, 6), values, indices, 7)

    batch = jnp.stack([SOURCES, TARGETS]), jnp.stack([TARGETS, SOURCES]), indices
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(by_edges))(*batch), jnp.stack([by_edges(*one) for one in zip(*batch, strict=True)])
    )


@once
def test_no_dtype_is_weak():
    weak = jax.lax.broadcast(1.5, (6, 3))
    assert jax.typeof(weak).weak_type
    weight = jnp.ones((7, 5))
    primal, tangent = jax.jvp(lambda s: ours(jax.lax.broadcast(s, (6, 3)), weight), (1.5,), (1.0,))
    assert not primal.weak_type
    assert not tangent.weak_type


def test_nothing_of_size_rows_k_d_is_made():
    def loss(v, w):
        return (sampled_dense_matmul(sparse_dense_matmul(v, INDICES, w), w, INDICES) ** 2).sum()

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(jnp.ones((6, 3)), jnp.ones((7, 5))).compile()
    for shape in ("6,3,5", "3,6,5", "6,5,3", "18,5", "5,18"):
        assert f"f32[{shape}]" not in compiled.as_text()


@once
def test_topk_autoencoder():
    """What it is for: the decoder's gradient is the dense decoder's at the entries that were kept."""
    rng = np.random.default_rng(12)
    x, weight = (jnp.asarray(rng.standard_normal(shape), np.float32) for shape in ((8, 40), (40, 12)))

    def loss(x, weight):
        kept = topk(x, 5, sorted=False)
        return jnp.sum(sparse_dense_matmul(kept.values, kept.indices, weight) ** 2)

    def dense_loss(x, weight):
        kept = jnp.put_along_axis(jnp.zeros_like(x), topk(x, 5).indices, topk(x, 5).values, axis=-1, inplace=False)
        return jnp.sum((kept @ weight) ** 2)

    got, want = (jax.jit(jax.grad(f, (0, 1)))(x, weight) for f in (loss, dense_loss))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4)


@once
def test_encoder_without_dense_gradients():
    """The other half: its gradients are the dense encoder's, and no dense array is in what makes them."""
    rng = np.random.default_rng(15)
    x, encoder, bias = (jnp.asarray(rng.standard_normal(shape), np.float32) for shape in ((8, 12), (40, 12), (40,)))

    def scores(x, encoder, bias):
        return x @ encoder.T + bias

    @jax.jit
    def kept(x, encoder, bias):
        indices = topk(jax.lax.stop_gradient(scores(x, encoder, bias)), 5, sorted=False).indices
        return sampled_dense_matmul(x, encoder, indices) + bias[indices]

    def dense_kept(x, encoder, bias):
        return topk(scores(x, encoder, bias), 5, sorted=False).values

    (got, pullback), (want, dense_pullback) = (jax.vjp(f, x, encoder, bias) for f in (kept, dense_kept))
    jax.tree.map(
        lambda g, w: np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4),
        (got, pullback(jnp.cos(got))),
        (want, dense_pullback(jnp.cos(want))),
    )
    assert "f32[8,40]" not in jax.jit(pullback).lower(got).compile().as_text()


@once
def test_export():
    def function(values, weight, graph):
        decoded = sparse_dense_matmul(values, INDICES, weight)
        return decoded, sampled_dense_matmul(decoded, weight, INDICES), neighbor_sum(graph, values, INDICES, 7)

    graph = CSRGraph.from_edges(SOURCES, TARGETS, 6)
    operands = (jnp.ones((6, 3)), jnp.ones((7, 5)), graph)
    exported = jax.export.export(jax.jit(function), disabled_checks=export_disabled_checks())(*operands)
    data = exported.serialize(vjp_order=1)
    got = jax.export.deserialize(data).call(*operands)
    jax.tree.map(np.testing.assert_array_equal, got, function(*operands))


@pytest.mark.native_only
def test_export_with_a_symbolic_batch():
    (rows,) = jax.export.symbolic_shape("rows")
    shapes = [jax.ShapeDtypeStruct((rows, 3), t) for t in (jnp.float32, jnp.int32)]
    weight = jnp.ones((7, 5))

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
    by_values, by_weight, sampled = exported.call(jnp.ones((6, 3)), INDICES)
    np.testing.assert_array_equal(by_values, 5.0 * sparse_oracle.inside(INDICES, 7))
    np.testing.assert_array_equal(sampled, by_values)
    counts = np.bincount(INDICES[sparse_oracle.inside(INDICES, 7)], minlength=7)
    np.testing.assert_array_equal(by_weight, np.repeat(counts[:, None], 5, 1))


@once
def test_export_with_symbolic_edges_and_a_symbolic_batch_of_weights():
    def function(sources, targets, weights):
        graph = CSRGraph.from_edges(sources, targets, 6)
        products = jax.vmap(lambda w: sparse_dense_matmul(np.ones((6, 3), np.float32), INDICES, w))(weights)
        return neighbor_sum(graph, np.ones((6, 3), np.float32), INDICES, 7), products

    edges, batch = jax.export.symbolic_shape("edges, batch")
    shapes = (*[jax.ShapeDtypeStruct((edges,), jnp.int32)] * 2, jax.ShapeDtypeStruct((batch, 7, 5), jnp.float32))
    exported = jax.export.export(jax.jit(function), disabled_checks=export_disabled_checks())(*shapes)
    operands = SOURCES, TARGETS, stacked(np.random.default_rng(14).standard_normal((7, 5)).astype(np.float32))
    jax.tree.map(np.testing.assert_array_equal, exported.call(*operands), function(*operands))
