"""Derivatives: finite differences to order 2 in both modes, jax.lax.top_k's, and exact values where they are known."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from jax.test_util import check_grads

from jax_rtopk import topk, topk_mask, topk_sparsify

pytestmark = pytest.mark.usefixtures("backend")


def separated(shape, seed=0):
    """Values so far apart that a finite difference selects what the derivative selects; of both signs."""
    size = int(np.prod(shape))
    order = np.random.default_rng(seed).permutation(size)
    return jnp.asarray((0.37 * (order - size / 2) + 0.1).reshape(shape) / np.sqrt(size), jnp.float32)


@pytest.mark.parametrize("modes", [["fwd"], ["rev"]], ids=["fwd", "rev"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sin(topk(x, 3).values),
        lambda x: jnp.sin(topk(x, 3, sorted=False, largest=False).values),
        lambda x: jnp.sin(topk(x, 2, axis=0).values),
        lambda x: topk(x, 3, max_iter=1).values ** 3,
        lambda x: jnp.sin(topk_sparsify(x, 3)),
        lambda x: jnp.sin(topk_sparsify(x, 2, axis=0, by_magnitude=True)),
        lambda x: x**2 * topk_mask(x, 3),
    ],
    ids=["topk", "unsorted", "axis", "early", "sparsify", "by_magnitude", "mask"],
)
def test_finite_differences(function, modes):
    check_grads(function, (separated((4, 9)),), order=2, modes=modes, atol=2e-2, rtol=2e-2)


def ours(x, k):
    return topk(x, k).values


def lax(x, k):
    return jax.lax.top_k(x, k)[0]


# What is done to f(x, k): x [5, 16] -> values [5, k].
TRANSFORMS = {
    "jvp": lambda f, x: jax.jvp(lambda x: f(x, 4), (x,), (jnp.cos(x),)),
    "vjp": lambda f, x: jax.vjp(lambda x: f(x, 4), x)[1](jnp.arange(20.0).reshape(5, 4)),
    "jacfwd": lambda f, x: jax.jacfwd(lambda x: f(x, 2))(x),
    "jacrev": lambda f, x: jax.jacrev(lambda x: f(x, 2))(x),
    "hessian": lambda f, x: jax.hessian(lambda x: jnp.sum(f(x, 3) ** 3))(x),
    "fwd over rev": lambda f, x: jax.jvp(jax.grad(lambda x: jnp.sum(f(x, 3) ** 3)), (x,), (jnp.cos(x),)),
    "rev over fwd": lambda f, x: jax.grad(lambda x: jax.jvp(lambda x: jnp.sum(f(x, 3) ** 3), (x,), (x,))[1])(x),
    "third order": lambda f, x: jax.grad(jax.grad(jax.grad(lambda s: jnp.sum(f(s * x, 3) ** 4))))(1.5),
    "linearize": lambda f, x: jax.linearize(lambda x: f(x, 4), x)[1](jnp.cos(x)),
    "linear transpose": lambda f, x: jax.linear_transpose(jax.linearize(lambda x: f(x, 4), x)[1], x)(jnp.ones((5, 4))),
    "jit": lambda f, x: jax.jit(jax.grad(lambda x: jnp.sum(f(x, 4) ** 2)))(x),
    "vmap of grad": lambda f, x: jax.vmap(jax.grad(lambda x: jnp.sum(f(x, 4) ** 2)))(x),
    "grad of vmap": lambda f, x: jax.grad(lambda x: jnp.sum(jax.vmap(lambda x: f(x, 4), 1)(x) ** 2))(x),
    "vmap of hessian": lambda f, x: jax.vmap(jax.hessian(lambda x: jnp.sum(f(x, 4) ** 3)))(x),
    "checkpoint": lambda f, x: jax.grad(jax.checkpoint(lambda x: jnp.sum(f(jnp.sin(x), 4) ** 2)))(x),
    "scan": lambda f, x: jax.grad(
        lambda x: jax.lax.scan(lambda c, row: (c + jnp.sum(f(row * c, 4) ** 2), f(row, 2)), 1.0, x)[0]
    )(x),
    "scan over checkpoint": lambda f, x: jax.grad(
        lambda x: jax.lax.scan(jax.checkpoint(lambda c, _: (c + f(c, 16), None)), x, None, length=3)[0].sum()
    )(x),
    "fori_loop, forward": lambda f, x: jax.jvp(
        lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + f(c, 16) * i, x), (x,), (jnp.cos(x),)
    ),
    "cond": lambda f, x: jax.grad(
        lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: f(x, 4).sum(), lambda x: f(x, 2).sum() * 3, x)
    )(x),
    "custom cotangent dtype": lambda f, x: jax.grad(lambda x: f(x.astype(jnp.bfloat16), 4).astype(jnp.float32).sum())(
        x
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_same_as_lax(transform):
    x = separated((5, 16))
    got, want = transform(ours, x), transform(lax, x)
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-6), got, want)
    assert any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(want)), "compares only zeros"


def test_cotangent_goes_to_the_selected_under_ties():
    x = jnp.array([2.0, 5.0, 5.0, 1.0, 5.0])
    cotangent = jnp.array([10.0, 20.0])
    assert jax.vjp(lambda x: topk(x, 2).values, x)[1](cotangent)[0].tolist() == [0, 10, 20, 0, 0]
    assert jax.vjp(lambda x: topk(x, 2, largest=False).values, x)[1](cotangent)[0].tolist() == [20, 0, 0, 10, 0]


@pytest.mark.parametrize("by_magnitude", [False, True])
def test_sparsify_passes_the_cotangent_to_exactly_the_kept(by_magnitude):
    x = jnp.array([[2.0, -5.0, 5.0, 1.0, 5.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    cotangent = jnp.array([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    dense, pullback = jax.vjp(lambda x: topk_sparsify(x, 2, by_magnitude=by_magnitude), x)
    kept = oracle.mask(np.asarray(x), 2, by_magnitude=by_magnitude)
    np.testing.assert_array_equal(dense, np.where(kept, x, 0))
    np.testing.assert_array_equal(pullback(cotangent)[0], np.where(kept, cotangent, 0))


def test_straight_through():
    x = separated((3, 8))

    def function(x):
        return topk_sparsify(x, 2, straight_through=True)

    dense, tangent = jax.jvp(function, (x,), (jnp.cos(x),))
    np.testing.assert_array_equal(dense, topk_sparsify(x, 2))
    np.testing.assert_array_equal(tangent, jnp.cos(x))
    np.testing.assert_array_equal(jax.vjp(function, x)[1](jnp.sin(x))[0], jnp.sin(x))
    # d/dx sum(f(x)^3) = 3 f(x)^2, and again = 6 f(x), each time with df/dx = 1.
    second = jax.jvp(jax.grad(lambda x: jnp.sum(function(x) ** 3)), (x,), (jnp.ones_like(x),))[1]
    np.testing.assert_allclose(second, 6 * dense, rtol=1e-6)
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: function(x).sum()))(x), jnp.ones_like(x))


def test_indices_and_mask_have_no_tangent():
    x = separated((3, 8))
    _, tangents = jax.jvp(lambda x: (topk(x, 2), topk_mask(x, 2)), (x,), (x,))
    assert tangents[0].indices.dtype == tangents[1].dtype == jax.dtypes.float0
    assert not jax.grad(lambda x: topk(x, 2).indices.sum() * 1.0 + topk_mask(x, 2).sum() * 1.0)(x).any()


def test_integer_operand_inside_a_differentiated_function():
    x = jnp.arange(6.0)

    def function(x):
        ranks = topk(jnp.array([3, 1, 4, 1, 5, 9]), 2)
        return (x[ranks.indices] * ranks.values).sum() + topk_sparsify(jnp.array([3, 1, 4]), 1).sum() * x[0]

    assert jax.grad(function)(x).tolist() == [4, 0, 0, 0, 5, 9]


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_float_dtypes(dtype):
    """The tangent has the operand's dtype, in every dtype that can be differentiated."""
    with oracle.x64_for(dtype):
        x = jnp.array([1, 4, 2, 8], dtype)
        tangent = jnp.array([1, 2, 3, 4], dtype)
        primal, forward = jax.jvp(lambda x: topk(x, 2).values, (x,), (tangent,))
        (reverse,) = jax.vjp(lambda x: topk(x, 2).values, x)[1](jnp.array([5, 6], dtype))
        (sparse,) = jax.vjp(lambda x: topk_sparsify(x, 2), x)[1](tangent)
    oracle.assert_same(primal, np.array([8, 4], dtype))
    oracle.assert_same(forward, np.array([4, 2], dtype))
    oracle.assert_same(reverse, np.array([0, 6, 0, 5], dtype))
    oracle.assert_same(sparse, np.array([0, 2, 0, 4], dtype))


# Name -> what is to equal f(x) itself.
PRIMALS = {
    "jvp": lambda f, x: jax.jvp(f, (x,), (jnp.ones_like(x),))[0],
    "vjp": lambda f, x: jax.vjp(f, x)[0],
    "twice": lambda f, x: jax.jvp(lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[0], (x,), (jnp.ones_like(x),))[0],
}
DIFFERENTIABLE = {
    "topk": lambda x: topk(x, 7).values,
    "sparsify": lambda x: topk_sparsify(x, 7),
    "by_magnitude": lambda x: topk_sparsify(x, 7, by_magnitude=True),
    "straight_through": lambda x: topk_sparsify(x, 7, straight_through=True),
}


@pytest.mark.parametrize("transform", PRIMALS.values(), ids=PRIMALS)
@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_differentiating_changes_no_bit(dtype, transform):
    def all_functions(x):
        return {name: function(x) for name, function in DIFFERENTIABLE.items()}

    with oracle.x64_for(dtype):
        rng = np.random.default_rng(0)
        x = jnp.asarray(np.concatenate([oracle.operand(rng, dtype, (6, 40), kind) for kind in ("bits", "special")]))
        got = jax.jit(lambda x: transform(all_functions, x))(x)
        want = all_functions(x)
    for name in DIFFERENTIABLE:
        oracle.assert_same(got[name], np.asarray(want[name]))


@pytest.mark.parametrize("function", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
def test_differentiating_changes_no_dtype(function):
    """A weakly typed result would take the dtype of whatever it is combined with."""

    def weak(s):
        return jax.lax.broadcast(s, (3, 8))

    assert jax.eval_shape(weak, 1.5).weak_type
    assert not jax.eval_shape(lambda s: function(weak(s)), 1.5).weak_type
    primal, tangent = jax.jvp(lambda s: function(weak(s)), (1.5,), (1.0,))
    assert not primal.weak_type
    assert not tangent.weak_type
    scaled = jax.vjp(lambda s: function(weak(s)) * jnp.bfloat16(2), 1.5)[0]
    assert scaled.dtype == jnp.float32
    assert not jax.vjp(lambda s: function(weak(s)), 1.5)[0].weak_type
    assert jax.grad(lambda s: function(weak(s)).sum())(1.5).dtype == jnp.float32


def test_sparsify_searches_once_when_differentiated():
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda x: topk_sparsify(x, 2).sum()))(jnp.ones((3, 8))))
    assert jaxpr.count("jax_rtopk_") == 1


def test_reverse_mode_scatters_to_indices_that_are_known_to_be_distinct():
    """So XLA needs no atomic additions."""
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda x: topk(x, 2).values.sum()))(jnp.ones((3, 8))))
    assert "unique_indices=True" in jaxpr[jaxpr.index("scatter-add[") :]
