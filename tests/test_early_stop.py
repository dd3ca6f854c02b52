"""What holds of an early-stopped search whatever its pivots are. `test_search.py` holds it to its specification."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_kinds import KINDS, make_rows

from jax_rtopk import topk, topk_mask, topk_sparsify

pytestmark = pytest.mark.usefixtures("backend")

examples = settings(deadline=None, max_examples=20)


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(oracle.DTYPES))
    n = draw(st.sampled_from((1, 2, 5, 16, 33, 64, 100, 129, 256, 300)))
    kind = draw(st.sampled_from(oracle.KINDS))
    x = oracle.operand(np.random.default_rng(draw(st.integers(0, 2**32 - 1))), dtype, (4, n), kind)
    return x, draw(st.integers(1, n)), draw(st.integers(1, 6))


@examples
@given(problems(), st.booleans(), st.booleans())
def test_correct_selection_of_some_k_elements(problem, largest, is_sorted):
    x, k, max_iter = problem
    with oracle.x64_for(x.dtype):
        values, indices = topk(jnp.asarray(x), k, largest=largest, sorted=is_sorted, max_iter=max_iter)
    indices = np.asarray(indices)
    assert all(len(set(row)) == k for row in indices.tolist())
    assert indices.min() >= 0
    assert indices.max() < x.shape[1]
    oracle.assert_same(values, np.take_along_axis(x, indices, -1))
    # The first element of the exact answer is never lost.
    first = oracle.topk(x, 1, largest=largest)[1]
    assert (indices == first).any(axis=1).all()
    if is_sorted:  # what was selected is in the order of the exact answer
        selected = np.sort(indices, axis=1)
        order = oracle.topk(np.take_along_axis(x, selected, -1), k, largest=largest)[1]
        np.testing.assert_array_equal(indices, np.take_along_axis(selected, order, -1))
    else:
        np.testing.assert_array_equal(indices, np.sort(indices, axis=1))


@settings(examples, max_examples=10)
@given(problems(), st.booleans())
def test_sorted_unsorted_and_mask_select_the_same(problem, largest):
    x, k, max_iter = problem
    with oracle.x64_for(x.dtype):
        operand = jnp.asarray(x)
        by_rank, by_index = (
            topk(operand, k, largest=largest, sorted=is_sorted, max_iter=max_iter).indices
            for is_sorted in (True, False)
        )
        mask = topk_mask(operand, k, largest=largest, max_iter=max_iter)
        dense = topk_sparsify(operand, k, max_iter=max_iter)
    np.testing.assert_array_equal(np.sort(by_rank, axis=1), by_index)
    np.testing.assert_array_equal(np.nonzero(mask)[1].reshape(-1, k), by_index)
    if largest:
        oracle.assert_same(dense, np.where(mask, x, np.zeros((), x.dtype)))


@pytest.mark.parametrize("dtype", oracle.DTYPES, ids=str)
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_exact_once_max_iter_suffices(dtype, kind):
    x = oracle.operand(np.random.default_rng(0), dtype, (4, 300), kind)
    with oracle.x64_for(dtype):
        operand = jnp.asarray(x)
        np.testing.assert_array_equal(topk(operand, 40, max_iter=200).indices, oracle.topk(x, 40)[1])
        np.testing.assert_array_equal(topk_mask(operand, 260, max_iter=2**40), oracle.mask(x, 260))
        np.testing.assert_array_equal(topk(operand, 300, max_iter=1).indices, oracle.topk(x, 300)[1])


@pytest.mark.parametrize("max_iter", [1, 2, 4])
@pytest.mark.parametrize(("n", "k"), [(64, 8), (200, 50), (1100, 20)])
def test_a_row_depends_on_nothing_else(n, k, max_iter):
    x = np.concatenate([make_rows(kind, 2, n) for kind in KINDS])
    together = np.asarray(topk(x, k, max_iter=max_iter).indices)
    reordered = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_array_equal(topk(x[reordered], k, max_iter=max_iter).indices, together[reordered])
    by_itself = [topk(row, k, max_iter=max_iter).indices for row in x]
    np.testing.assert_array_equal(np.stack(by_itself), together)
    in_batches = topk(x.reshape(2, -1, n), k, max_iter=max_iter).indices
    np.testing.assert_array_equal(np.reshape(in_batches, (-1, k)), together)
    mapped = jax.vmap(lambda row: topk(row, k, max_iter=max_iter).indices)(x)
    np.testing.assert_array_equal(mapped, together)


def test_exact_mode_does_not_depend_on_the_rows_before():
    """Kernels may start from what the previous row taught them; the answer may not show it."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 256)).astype(np.float32)
    x[1::4] *= 1e30
    x[2::4] = np.round(x[2::4])
    x[3::4] -= 1e6
    np.testing.assert_array_equal(topk(x, 32).indices, oracle.topk(x, 32)[1])
    np.testing.assert_array_equal(topk(x[::-1], 32).indices, oracle.topk(x[::-1], 32)[1])


def test_more_passes_find_more():
    x = make_rows("normal", 64, 256)
    true = oracle.mask(x, 32)
    found = [(np.asarray(topk_mask(x, 32, max_iter=p)) & true).mean() for p in (1, 2, 4)]
    assert found == sorted(found)
    assert found[0] > 0.85 * true.mean()
