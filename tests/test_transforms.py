"""jit, vmap, control flow, layouts: the same bits as without them."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from jax_rtopk import TopK, topk, topk_mask, topk_sparsify

pytestmark = pytest.mark.usefixtures("backend")


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("in_axis", [0, 1, 2, -1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vmap(in_axis, axis):
    x = normal((4, 5, 6))
    values, indices = jax.vmap(lambda x: topk(x, 3, axis=axis), in_axes=in_axis)(jnp.asarray(x))
    moved = np.moveaxis(x, in_axis, 0)
    want_values, want_indices = oracle.topk(moved, 3, axis=1 + axis % 2)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)
    mask = jax.vmap(lambda x: topk_mask(x, 3, axis=axis), in_axes=in_axis, out_axes=-1)(jnp.asarray(x))
    oracle.assert_same(jnp.moveaxis(mask, -1, 0), oracle.mask(moved, 3, axis=1 + axis % 2))


def test_nested_vmap_of_one_row():
    x = normal((3, 4, 7))
    mapped = jax.vmap(jax.vmap(lambda row: topk(row, 2).indices, in_axes=0), in_axes=1, out_axes=1)
    oracle.assert_same(mapped(jnp.asarray(x)), oracle.topk(x, 2)[1])


def test_vmap_leaves_leading_batch_axes_where_they_are():
    jaxpr = str(jax.make_jaxpr(jax.vmap(lambda x: topk(x, 2).values, in_axes=1, out_axes=1))(jnp.ones((3, 4, 5))))
    assert "jax_rtopk_topk" in jaxpr
    assert "transpose" not in jaxpr


def test_vmap_with_an_unmapped_operand():
    x = normal((3, 8))
    got = jax.vmap(lambda s: topk(jnp.asarray(x), 2).values * s)(jnp.arange(4.0))
    np.testing.assert_array_equal(got, oracle.topk(x, 2)[0] * np.arange(4.0, dtype=np.float32)[:, None, None])


def test_jit_with_static_k():
    x = normal((3, 8))
    by_number = jax.jit(topk, static_argnums=1)
    by_name = jax.jit(topk, static_argnames=("k", "largest", "sorted", "max_iter"))
    for k in (2, 5, 2):  # another k is another program
        oracle.assert_same(by_number(x, k).indices, oracle.topk(x, k)[1])
        oracle.assert_same(
            by_name(x, k=k, largest=False, sorted=False, max_iter=None).indices,
            oracle.topk(x, k, largest=False, sorted=False)[1],
        )


def test_jit_results_in_a_pytree():
    result = jax.jit(lambda x: topk(x, 2))(jnp.arange(6.0))
    assert isinstance(result, TopK)
    assert jax.tree.map(jnp.shape, result) == TopK((2,), (2,))
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path({"best": result})]
    assert paths == ["['best'].values", "['best'].indices"]


def test_transposed_operand():
    """A transposition inside the program, which XLA may turn into a layout of the operand."""
    x = normal((40, 6))
    oracle.assert_same(jax.jit(lambda x: topk(x.T, 3).indices)(x), oracle.topk(x.T, 3)[1])
    oracle.assert_same(jax.jit(lambda x: topk(x, 3, axis=0).indices)(x), oracle.topk(x, 3, axis=0)[1])
    oracle.assert_same(jax.jit(lambda x: topk_mask(x.T, 3).T)(x), oracle.mask(x, 3, axis=0))


def test_sliced_and_computed_operands():
    x = normal((6, 64))
    got = jax.jit(lambda x: topk(jnp.abs(x)[1:5, 3:60:2], 4).indices)(x)
    oracle.assert_same(got, oracle.topk(np.abs(x)[1:5, 3:60:2], 4)[1])


def test_scan_and_while():
    x = normal((5, 20))
    _, scanned = jax.lax.scan(lambda c, row: (c, topk(row, 3).indices), 0, jnp.asarray(x))
    oracle.assert_same(scanned, oracle.topk(x, 3)[1])
    looped = jax.lax.fori_loop(0, 20, lambda _, x: topk(x, 20).values, jnp.asarray(x))
    oracle.assert_same(looped, -np.sort(-x, axis=-1))


def test_donated_operand():
    x = normal((8, 32))
    got = jax.jit(lambda x: topk_sparsify(x, 4), donate_argnums=0)(jnp.asarray(x))
    oracle.assert_same(got, np.where(oracle.mask(x, 4), x, np.float32(0)))


def test_weak_type_does_not_leak():
    operand = jax.lax.full_like(jnp.ones(4), jnp.asarray(2.0).astype(float))
    weak = jax.jit(lambda x: 2.0 * jax.lax.broadcast(1.0, (4,)))(operand)
    assert weak.weak_type
    assert not topk(weak, 2).values.weak_type
    assert not topk_sparsify(weak, 2).weak_type


@pytest.mark.parametrize("x64", [False, True])
def test_indices_are_int32(x64):
    with oracle.x64_for(np.dtype(np.float64 if x64 else np.float32)):
        assert topk(jnp.arange(5.0), 2).indices.dtype == jnp.int32
        assert topk(np.arange(5.0), 2).values.dtype == (np.float64 if x64 else np.float32)


def test_eval_shape_runs_nothing():
    out = jax.eval_shape(lambda x: topk(x, 5), jax.ShapeDtypeStruct((1 << 20, 1 << 20), jnp.bfloat16))
    assert out.values.shape == out.indices.shape == (1 << 20, 5)
    assert out.values.dtype == jnp.bfloat16


def test_under_jax_s_strict_modes():
    x = jnp.asarray(normal((3, 20)))
    with (
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
        jax.checking_leaks(),
        jax.transfer_guard("disallow"),
    ):
        got = [topk(x, 3, sorted=False), topk_mask(x, 3, axis=0), topk_sparsify(x, 3, by_magnitude=True)]
        jax.jit(jax.grad(lambda x: (topk(x, 3).values + topk_sparsify(x, 3)[:, :3]).sum()))(x)
    oracle.assert_same(got[0].indices, oracle.topk(np.asarray(x), 3, sorted=False)[1])


def test_without_jit():
    x = normal((3, 20))
    with jax.disable_jit():
        oracle.assert_same(topk(x, 3).indices, oracle.topk(x, 3)[1])
        assert jax.grad(lambda x: topk_sparsify(x, 3).sum())(jnp.asarray(x)).sum() == 9


def test_concurrent_calls():
    """Several executions at once share XLA's thread pool."""
    from concurrent.futures import ThreadPoolExecutor

    x = normal((64, 200))
    want = oracle.topk(x, 9)[1]
    function = jax.jit(lambda x: topk(x, 9).indices)
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: np.asarray(function(x)), range(64)):
            oracle.assert_same(got, want)
