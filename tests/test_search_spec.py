"""Early-stopped answers, bit for bit: every back end against the numpy specification in search_spec.py."""

import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import search_spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_kinds import KINDS, make_rows

from jax_rtopk import topk, topk_mask, topk_sparsify

examples = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Around the sizes of groups, chunks and kernel regimes.
LENGTHS = (2, 3, 31, 32, 33, 63, 64, 65, 100, 128, 129, 255, 256, 257, 500, 512, 513)


def specified(backend, x, k, max_iter, **order):
    """The mask of what is selected. The pure-JAX definition answers exactly whatever max_iter says."""
    return search_spec.mask(x, k, max_iter if backend.native else 0, **order)


def assert_topk(backend, x, k, max_iter, *, largest=True):
    mask = specified(backend, x, k, max_iter, largest=largest)
    for is_sorted in (False, True):
        got = topk(jnp.asarray(x), k, max_iter=max_iter, largest=largest, sorted=is_sorted)
        for leaf, want in zip(got, oracle.listed(x, mask, sorted=is_sorted, largest=largest), strict=True):
            oracle.assert_same(leaf, want)


@examples
@given(
    st.sampled_from(oracle.DTYPES),
    st.sampled_from(LENGTHS),
    st.floats(0, 1),
    st.sampled_from([1, 2, 3, 5, 9, 100]),
    st.sampled_from(oracle.KINDS),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_topk(backend, dtype, n, share, max_iter, kind, largest, seed):
    x = oracle.operand(np.random.default_rng(seed), dtype, (3, n), kind)
    with oracle.x64_for(dtype):
        assert_topk(backend, x, max(1, round(share * n)), max_iter, largest=largest)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_iter", [1, 2, 3, 4])
def test_kinds_of_rows(backend, kind, max_iter):
    x = make_rows(kind, 16, 256)
    for k in (8, 32, 64, 128):
        assert_topk(backend, x, k, max_iter)


@pytest.mark.parametrize("order", ["ascending", "descending", "same"])
def test_ordered_rows(backend, order):
    x = np.sort(np.random.default_rng(6).standard_normal((3, 600)).astype(np.float32), axis=1)
    x = {"ascending": x, "descending": x[:, ::-1].copy(), "same": np.full_like(x, 3)}[order]
    for k in (1, 40, 400):
        for max_iter in (1, 2, 4, 30):
            assert_topk(backend, x, k, max_iter)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_long_rows(backend, dtype):
    dtype = np.dtype(dtype)
    x = oracle.operand(np.random.default_rng(7), dtype, (2, backend.max_n), "bits")
    with oracle.x64_for(dtype):
        for k in (1, 70, backend.max_n // 3):
            assert_topk(backend, x, k, 2)


@examples
@given(
    st.sampled_from(oracle.DTYPES),
    st.sampled_from(LENGTHS),
    st.floats(0, 1),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_mask_and_sparsify(backend, dtype, n, share, max_iter, by_magnitude, seed):
    x = oracle.operand(np.random.default_rng(seed), dtype, (2, n), "bits")
    k = max(1, round(share * n))
    with oracle.x64_for(dtype):
        mask = topk_mask(jnp.asarray(x), k, max_iter=max_iter)
        dense = topk_sparsify(jnp.asarray(x), k, max_iter=max_iter, by_magnitude=by_magnitude)
    oracle.assert_same(mask, specified(backend, x, k, max_iter))
    kept = specified(backend, x, k, max_iter, by_magnitude=by_magnitude)
    oracle.assert_same(dense, np.where(kept, x, np.zeros((), dtype)))


@pytest.mark.parametrize("max_iter", [1, 3])
def test_rows_of_zeros_and_few_others(backend, max_iter):
    """The pivots are among the zeros, whose key as of unsigned integers is the least there is."""
    x = np.zeros((20, 256), np.uint32)
    for row, others in zip(x, range(20), strict=True):
        row[np.random.default_rng(others).permutation(256)[:others]] = others
    assert_topk(backend, x, 32, max_iter)
