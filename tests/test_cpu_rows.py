"""Rows that only the CPU kernels meet: long ones that are split over threads, and the longest there are."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest

from jax_rtopk import topk, topk_mask, topk_sparsify


def assert_selects(x, k, **order):
    want_values, want_indices = oracle.topk(x, k, **order)
    with oracle.x64_for(x.dtype):
        values, indices = topk(jnp.asarray(x), k, **order)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)


@pytest.mark.parametrize(
    "dtype", [np.uint8, ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda d: np.dtype(d).name
)
@pytest.mark.parametrize("kind", ["bits", "ties"])
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
def test_a_row_split_over_threads(dtype, kind, largest):
    n = 2**18 + 5
    x = oracle.operand(np.random.default_rng(9), np.dtype(dtype), (1, n), kind)
    for k in (1, 64, 256, 5000, 70000):
        for is_sorted in (True, False):
            assert_selects(x, k, largest=largest, sorted=is_sorted)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, ml_dtypes.bfloat16, np.float32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("rows", [1, 3])
def test_dense_results_of_a_row_split_over_threads(dtype, rows):
    """Three rows are enough for the threads of most machines: these aren't split."""
    n = 2**18 + 5
    x = oracle.operand(np.random.default_rng(10), np.dtype(dtype), (rows, n), "bits")
    with oracle.x64_for(x.dtype):
        operand = jnp.asarray(x)
        for largest in (True, False):
            oracle.assert_same(topk_mask(operand, 77, largest=largest), oracle.mask(x, 77, largest=largest))
        for by_magnitude in (True, False):
            kept = np.where(oracle.mask(x, 77, by_magnitude=by_magnitude), x, np.zeros((), x.dtype))
            oracle.assert_same(topk_sparsify(operand, 77, by_magnitude=by_magnitude), kept)


@pytest.mark.parametrize("order", ["shuffled", "ascending", "descending"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64], ids=lambda d: np.dtype(d).name)
def test_outliers_that_make_the_leading_bits_of_all_others_the_same(dtype, order):
    rng = np.random.default_rng(11)
    for n, k in ((20, 7), (256, 64), (384, 192), (384, 256), (3000, 100), (3000, 700)):
        x = np.array([rng.permutation(10 * n)[:n] for _ in range(5)])
        if order != "shuffled":
            x = np.sort(x, axis=1)[:, :: 1 if order == "ascending" else -1]
        x = x.astype(dtype) if np.dtype(dtype).kind == "i" else (1 + x * np.finfo(dtype).eps).astype(dtype)
        least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if np.dtype(dtype).kind == "i" else (-np.inf, np.inf)
        x[:, 5], x[:3, n // 2] = most, least
        for largest in (True, False):
            for is_sorted in (True, False):
                assert_selects(x, k, largest=largest, sorted=is_sorted)


def test_ties_across_segments():
    """The first of many equal maxima, wherever the row is cut."""
    x = np.zeros((1, 2**18), np.float32)
    x[0, ::1000] = 1
    oracle.assert_same(topk(jnp.asarray(x), 200).indices, np.arange(0, 200_000, 1000, dtype=np.int32)[None])


def test_ascending_row():
    """Every element is larger than all before it."""
    x = np.arange(2**18, dtype=np.int32)[None]
    oracle.assert_same(topk(jnp.asarray(x), 3).indices, np.array([[2**18 - 1, 2**18 - 2, 2**18 - 3]], np.int32))
    oracle.assert_same(topk_mask(jnp.asarray(x), 100), oracle.mask(x, 100))
    oracle.assert_same(topk(jnp.asarray(x), 3000).indices[0], x[0, :-3001:-1])


@pytest.mark.large
def test_the_longest_row():
    """2**31 - 1 elements: indices and block ends at the limits of int32."""
    n = 2**31 - 1
    ones = np.array([5, 2**30, n - 1030, n - 1])
    x = jnp.zeros((1, n), jnp.int8).at[0, ones].set(1)
    for k in (4, 2**30 - 1):
        mask = topk_mask(x, k)
        assert int(mask.sum()) == k
        assert mask[0, ones].all()
        assert mask[0, : k - 4].all()  # of the equal ones the first
