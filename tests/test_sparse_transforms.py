"""The sparse functions under JAX's transformations, and exported; against a dense matrix.

They take values [6, 3] and a weight [7, 5].
"""

from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import sparse_oracle
from jax.test_util import check_grads

from jax_rtopk import (
    CSRGraph,
    export_disabled_checks,
    neighbor_sum,
    sampled_dense_matmul,
    sparse_dense_matmul,
    topk,
)

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.native_only, pytest.mark.not_emulated]

INDICES = sparse_oracle.some_indices(np.random.default_rng(6), (6, 3), 7)
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


@pytest.mark.parametrize(("name", "transform"), TRANSFORMS_OF, ids=["-".join(pair) for pair in TRANSFORMS_OF])
def test_transforms(name, transform):
    function, reference = FUNCTIONS[name]
    rng = np.random.default_rng(10)
    values, weight = (jnp.asarray(rng.standard_normal(shape), np.float32) / 2 for shape in ((6, 3), (7, 5)))
    got, want = (jax.jit(partial(TRANSFORMS[transform], f))(values, weight) for f in (function, reference))
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5), got, want)
    assert all(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(want)), "compares only zeros"


@pytest.mark.parametrize(("function", "reference"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_finite_differences(function, reference):
    del reference
    rng = np.random.default_rng(11)
    operands = [jnp.asarray(rng.standard_normal(shape), np.float32) / 2 for shape in ((6, 3), (7, 5))]
    check_grads(jax.jit(function), operands, order=2, atol=3e-2, rtol=3e-2)


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


def test_no_dtype_is_weak():
    weak = jax.lax.broadcast(1.5, (6, 3))
    assert jax.typeof(weak).weak_type
    weight = jnp.ones((7, 5))
    primal, tangent = jax.jvp(lambda s: ours(jax.lax.broadcast(s, (6, 3)), weight), (1.5,), (1.0,))
    assert not primal.weak_type
    assert not tangent.weak_type


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
