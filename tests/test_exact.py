"""Exact mode, bit for bit: against numpy and jax.lax.top_k, over dtypes, shapes, axes, k, flags and contents."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_rtopk import TopK, topk, topk_mask, topk_sparsify

pytestmark = pytest.mark.usefixtures("backend")

examples = settings(deadline=None, max_examples=25)

# Row lengths around those at which kernels change their ways.
LENGTHS = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 300)


@st.composite
def problems(draw, lengths=LENGTHS):
    """An operand, its selection axis and a k."""
    dtype = draw(st.sampled_from(oracle.DTYPES))
    n = draw(st.sampled_from(lengths))
    shape = draw(st.sampled_from([(), (1,), (3,), (5,), (2, 3), (0,)]))
    axis = draw(st.integers(0, len(shape)))
    shape = (*shape[:axis], n, *shape[axis:])
    kind = draw(st.sampled_from(oracle.KINDS))
    x = oracle.operand(np.random.default_rng(draw(st.integers(0, 2**32 - 1))), dtype, shape, kind)
    k = draw(st.sampled_from(sorted({0, 1, n // 8, n // 2, n - 1, n})))
    return x, k, axis - draw(st.sampled_from([0, len(shape)]))


@examples
@given(problems(), st.booleans(), st.booleans())
def test_topk(problem, largest, is_sorted):
    x, k, axis = problem
    with oracle.x64_for(x.dtype):
        values, indices = topk(jnp.asarray(x), k, axis=axis, largest=largest, sorted=is_sorted)
    want_values, want_indices = oracle.topk(x, k, axis=axis, largest=largest, sorted=is_sorted)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)


@examples
@given(problems(), st.booleans())
def test_mask(problem, largest):
    x, k, axis = problem
    with oracle.x64_for(x.dtype):
        mask = topk_mask(jnp.asarray(x), k, axis=axis, largest=largest)
    oracle.assert_same(mask, oracle.mask(x, k, axis=axis, largest=largest))


@examples
@given(problems(), st.booleans())
def test_sparsify(problem, by_magnitude):
    x, k, axis = problem
    with oracle.x64_for(x.dtype):
        dense = topk_sparsify(jnp.asarray(x), k, axis=axis, by_magnitude=by_magnitude)
    kept = oracle.mask(x, k, axis=axis, by_magnitude=by_magnitude)
    oracle.assert_same(dense, np.where(kept, x, np.zeros((), x.dtype)))


@pytest.mark.parametrize("dtype", oracle.DTYPES, ids=str)
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_every_dtype(dtype, largest, kind):
    """Every dtype on one shape of each kernel regime, whatever hypothesis draws."""
    rng = np.random.default_rng(0)
    for n, k in ((40, 8), (260, 33), (1100, 30)):
        x = oracle.operand(rng, dtype, (3, n), kind)
        with oracle.x64_for(dtype):
            values, indices = topk(jnp.asarray(x), k, largest=largest)
        want_values, want_indices = oracle.topk(x, k, largest=largest)
        oracle.assert_same(indices, want_indices)
        oracle.assert_same(values, want_values)


@pytest.mark.parametrize("dtype", oracle.DTYPES, ids=str)
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_sparsify_every_dtype_by_magnitude(dtype, kind):
    x = oracle.operand(np.random.default_rng(0), dtype, (3, 260), kind)
    if kind == "ties" and dtype.kind not in "bu":
        x[:, 1::2] *= -1
    with oracle.x64_for(dtype):
        dense = topk_sparsify(jnp.asarray(x), 90, by_magnitude=True)
    oracle.assert_same(dense, np.where(oracle.mask(x, 90, by_magnitude=True), x, np.zeros((), dtype)))


@pytest.mark.parametrize("dtype", oracle.DTYPES, ids=str)
def test_equals_lax(dtype):
    """jax.lax.top_k itself. Only payloads of NaNs are left out, which it loses in bfloat16 and float8_e5m2."""
    rng = np.random.default_rng(1)
    x = oracle.operand(rng, dtype, (4, 500), "bits")
    x[:, :40] = rng.choice(oracle.special_values(dtype), (4, 40))
    x = oracle.with_canonical_nans(x)
    with oracle.x64_for(dtype):
        want = jax.lax.top_k(jnp.asarray(x), 50)
        got = topk(jnp.asarray(x), 50)
    oracle.assert_same(got.indices, np.asarray(want[1]))
    oracle.assert_same(oracle.with_canonical_nans(got.values), oracle.with_canonical_nans(want[0]))


@pytest.mark.parametrize("share", ["one", "few", "half", "all"])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_long_rows(backend, share, is_sorted):
    n = backend.max_n
    k = {"one": 1, "few": n // 100, "half": n // 2 + 1, "all": n}[share]
    x = np.random.default_rng(2).standard_normal((2, n)).astype(np.float32)
    values, indices = topk(jnp.asarray(x), k, sorted=is_sorted)
    want_values, want_indices = oracle.topk(x, k, sorted=is_sorted)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)


def test_every_k():
    x = oracle.operand(np.random.default_rng(3), np.dtype(np.float32), (2, 17), "special")
    for k in range(18):
        got = topk(jnp.asarray(x), k)
        want_values, want_indices = oracle.topk(x, k)
        oracle.assert_same(got.indices, want_indices)
        oracle.assert_same(got.values, want_values)


def test_one_dimension():
    got = topk(jnp.array([1.0, 3.0, 2.0]), 2)
    assert isinstance(got, TopK)
    assert got.indices.tolist() == [1, 2]


@pytest.mark.parametrize("rank", [4, 7, 20])
def test_many_axes(rank):
    """Also more than there are letters for in the sharding rule."""
    x = np.random.default_rng(4).standard_normal((2, 3, *(1,) * (rank - 3), 9)).astype(np.float32)
    oracle.assert_same(topk(jnp.asarray(x), 4).indices, oracle.topk(x, 4)[1])
    oracle.assert_same(topk_mask(jnp.asarray(x), 2, axis=1 - rank), oracle.mask(x, 2, axis=1))


def test_numpy_operand():
    x = np.random.default_rng(5).standard_normal((3, 20)).astype(np.float32)
    oracle.assert_same(topk(x, 4).indices, oracle.topk(x, 4)[1])
    oracle.assert_same(topk_mask(x, 4), oracle.mask(x, 4))
    oracle.assert_same(topk_sparsify(x, 4), np.where(oracle.mask(x, 4), x, np.float32(0)))


def test_numpy_integers_for_k_and_axis():
    x = np.random.default_rng(6).standard_normal((3, 20)).astype(np.float32)
    oracle.assert_same(topk(x, np.int64(2), axis=np.int32(0)).indices, oracle.topk(x, 2, axis=0)[1])


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (2, 0, 5), (2, 5)])
def test_empty_results(shape):
    x = jnp.ones(shape)
    k = min(3, shape[-1]) if 0 in shape else 0
    values, indices = topk(x, k)
    assert values.shape == indices.shape == (*shape[:-1], k)
    assert values.dtype == jnp.float32
    assert indices.dtype == jnp.int32
    assert topk_mask(x, k).shape == topk_sparsify(x, k).shape == shape
    assert not topk_mask(x, k).any()
    assert not topk_sparsify(x, k).any()
    assert jax.grad(lambda x: topk(x, k).values.sum() + topk_sparsify(x, k).sum())(x).shape == shape
