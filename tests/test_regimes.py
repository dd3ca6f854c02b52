"""Rows on both sides of the lengths at which back ends change kernels, and more rows than they hold at a time."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest
import search_spec

from jax_rtopk import topk, topk_mask, topk_sparsify

pytestmark = pytest.mark.native_only


def assert_selects(backend, x, k, max_iter):
    """All four outputs against the specification."""
    mask = search_spec.mask(x, k, max_iter)
    with oracle.x64_for(x.dtype):
        operand = jnp.asarray(x)
        for is_sorted in (False, True):
            got = topk(operand, k, sorted=is_sorted, max_iter=max_iter)
            for leaf, want in zip(got, oracle.listed(x, mask, sorted=is_sorted), strict=True):
                oracle.assert_same(leaf, want)
        oracle.assert_same(topk_mask(operand, k, max_iter=max_iter), mask)
        oracle.assert_same(topk_sparsify(operand, k, max_iter=max_iter), np.where(mask, x, np.zeros((), x.dtype)))


@pytest.mark.parametrize(
    "dtype", [np.uint8, ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda d: np.dtype(d).name
)
@pytest.mark.parametrize(
    ("n", "k", "max_iter"),
    [
        (1023, 100, None),
        (1024, 1024, None),
        (1024, 160, None),
        (1024, 512, None),
        (1024, 513, None),
        (1025, 64, 2),
        (4096, 1, None),
        (4096, 2000, None),
        (4096, 1500, 2),
        (4097, 3000, None),
        (4097, 4097, None),
        (16384, 300, 3),
        (16385, 2, None),
        (16385, 6000, None),
        (40000, 100, 1),
        (100001, 1, None),
        (100001, 50, None),
        (100001, 30000, None),
    ],
)
def test_long_rows(backend, dtype, n, k, max_iter):
    x = oracle.operand(np.random.default_rng(n + k), np.dtype(dtype), (2, n), oracle.KINDS[0])
    assert_selects(backend, x, k, max_iter)


@pytest.mark.parametrize("kind", ["few", "constant"])
@pytest.mark.parametrize("n", [1024, 4096, 16384, 20000])
def test_ties_across_the_boundary(backend, n, kind):
    levels = 3 if kind == "few" else 1
    x = np.random.default_rng(n).integers(0, levels, (2, n)).astype(np.float32)
    assert_selects(backend, x, n // 5, None)


@pytest.mark.parametrize(
    ("rows", "n", "k"), [(70000, 8, 3), (2100, 5, 2), (1100, 33, 7), (600, 64, 8), (300, 130, 20), (20, 1100, 9)]
)
def test_more_rows_than_are_held_at_a_time(backend, rows, n, k):
    x = np.random.default_rng(rows).standard_normal((rows, n)).astype(np.float32)
    assert_selects(backend, x, k, None)


def rows_of_one_sign_and_of_both(n):
    """Rows whose k-th largest element is positive, negative, or one of several that are equal, at any k < n / 2."""
    x = np.random.default_rng(n).standard_normal((4, n)).astype(np.float32)
    near = np.round(x * 4) / 4 + 0.0
    tied = np.where(x > np.quantile(x, 0.9), x, 0.25)
    return np.concatenate([x, -np.abs(x), np.abs(x) - 2.5, x - 1, near, tied, -near, np.sort(x, axis=1)])


@pytest.mark.parametrize("max_iter", [None, 1])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(
    ("n", "k"), [(256, 1), (256, 16), (256, 17), (256, 32), (256, 33), (256, 60), (512, 40), (1024, 64), (1024, 120)]
)
def test_rows_that_fill_a_warp(backend, n, k, dtype, max_iter):
    assert_selects(backend, rows_of_one_sign_and_of_both(n).astype(dtype), k, max_iter)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(("n", "k"), [(256, 32), (200, 25), (1024, 64)])
def test_integers_in_a_warp(backend, n, k, dtype):
    x = rows_of_one_sign_and_of_both(n) * 5000
    assert_selects(backend, (x if dtype == np.int32 else np.abs(x)).astype(dtype), k, None)


@pytest.mark.parametrize("max_iter", [None, 1])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(("n", "k"), [(200, 25), (248, 60), (264, 40), (768, 64), (1016, 100)])
def test_rows_that_end_on_a_pack_and_do_not_fill_a_warp(backend, n, k, dtype, max_iter):
    hard = [oracle.operand(np.random.default_rng(n), np.dtype(dtype), (3, n), kind) for kind in oracle.KINDS]
    assert_selects(backend, np.concatenate([rows_of_one_sign_and_of_both(n).astype(dtype), *hard]), k, max_iter)


def test_equal_group_maxima_do_not_hide_the_search_from_max_iter(backend):
    """The search's first pivot is 0, as 20 of the group maxima are; the seventh smallest that differ is one from which
    up lie 49 elements. Those are few enough for an exact answer, but one pass does not find them.
    """
    n, k = 256, 32
    group, _ = search_spec.groups_of(search_spec.SearchPlan.make(n, k, 4))
    fractions = np.random.default_rng(0).permuted(np.tile(np.arange(1, n + 1), (4, 1)), axis=1) / (n + 1)
    x = np.where(group < 12, fractions + np.where(group < 5, 2, np.where(group == 5, 1, 0)), 0).astype(np.float32)
    assert (search_spec.mask(x, k, 1) != oracle.mask(x, k)).any(axis=1).all()
    assert_selects(backend, x, k, 1)
