"""What users of other top-k functions have reported."""

from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest

from jax_rtopk import topk, topk_mask, topk_sparsify

pytestmark = pytest.mark.usefixtures("backend")


def check(x, k, **arguments):
    for is_sorted in (True, False):
        values, indices = topk(jnp.asarray(x), k, sorted=is_sorted, **arguments)
        want_values, want_indices = oracle.topk(x, k, sorted=is_sorted, **arguments)
        oracle.assert_same(indices, want_indices)
        oracle.assert_same(values, want_values)


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("x", "k", "indices"),
    [
        (f32(np.nan, -np.inf, np.inf, 0), 3, [0, 2, 3]),
        (f32(np.nan, 1, 2, 3), 2, [0, 3]),
        (f32(1, 2, 3, np.nan), 2, [3, 2]),
        (f32(-np.nan, 1, 2, 3), 2, [3, 2]),
        (f32(-np.inf, -np.nan), 1, [0]),
        (f32(0.0, -0.0), 1, [0]),
        (f32(-0.0, 0.0), 1, [1]),
        (f32(-np.inf, -np.inf, -np.inf), 2, [0, 1]),  # a queue that starts at -inf never takes them
        (f32(-3, -1, -2), 1, [1]),  # a maximum that starts at the smallest positive number
    ],
    ids=str,
)
def test_small_rows(x, k, indices):
    assert topk(x, k).indices.tolist() == indices
    check(x, k)
    check(x, k, largest=False)


def test_negative_nan_in_long_rows():
    """XLA's GPU kernel for f32, n >= 1024 and k <= 16."""
    x = np.random.default_rng(0).standard_normal((3, 1500)).astype(np.float32)
    x.view(np.uint32)[:, ::100] = 0xFFC00000
    check(x, 8)
    check(x, 8, largest=False)


def test_mostly_zeros():
    rng = np.random.default_rng(0)
    x = np.where(rng.random((8, 500)) < 0.02, rng.standard_normal((8, 500)), 0).astype(np.float32)
    check(x, 50)
    check(np.abs(x), 50)


def test_fewer_finite_values_than_k():
    x = np.random.default_rng(0).standard_normal((8, 400)).astype(np.float32)
    x[np.random.default_rng(1).random((8, 400)) < 0.95] = -np.inf
    check(x, 64)


def test_rows_that_differ_in_the_low_mantissa_bits():
    x = (np.float32(1).view(np.uint32) + np.random.default_rng(0).integers(0, 1024, (8, 700), np.uint32)).view(
        np.float32
    )
    check(x, 30)


def test_values_in_a_narrow_range():
    x = np.random.default_rng(0).uniform(10.0, 10.2, (8, 700)).astype(np.float32)
    check(x, 30)


def test_100_winners_and_8220_zeros(backend):
    zeros = min(8220, backend.max_n)
    x = np.zeros((1, 100 + zeros), np.float32)
    x[0, np.random.default_rng(0).permutation(100 + zeros)[:100]] = 1 + np.arange(100)
    check(x, 2048)


def test_bfloat16_with_many_ties():
    check(((np.arange(2048) % 64) / 64).astype(ml_dtypes.bfloat16)[None], 1024)


def test_infinities_and_overflowing_midpoints():
    largest = np.finfo(np.float32).max
    x = np.random.default_rng(0).choice(f32(largest, largest / 2, -largest, np.inf, -np.inf, 0, 1), (8, 300))
    check(x, 100)


@pytest.mark.parametrize(("n", "k"), [(100, 16), (31, 31), (33, 1), (129, 64), (2048, 2048)])
def test_row_lengths_that_are_no_multiple_of_32(n, k):
    """A published kernel reads into the next row."""
    x = np.random.default_rng(0).standard_normal((7, n)).astype(np.float32)
    x[1::2] += 100
    check(x, k)


def test_exactly_k_are_kept_under_ties():
    """Threshold masks keep every element that equals the k-th largest."""
    x = jnp.zeros((3, 50))
    assert topk_mask(x, 7).sum(axis=1).tolist() == [7, 7, 7]
    assert jnp.count_nonzero(topk_sparsify(x + 1, 7), axis=1).tolist() == [7, 7, 7]


def test_k_that_changes_from_call_to_call():
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    function = jax.jit(topk, static_argnames="k")
    for k in (3, 9, 3, 64, 9):
        oracle.assert_same(function(x, k=k).indices, oracle.topk(x, k)[1])


def test_empty_batch_inside_jit():
    assert jax.jit(partial(topk, k=3))(jnp.ones((0, 8))).values.shape == (0, 3)


# Sizes at which grids, 32-bit offsets and memory have failed. Native code takes them in a second; pure JAX and the
# emulator get the same shapes in small.


def check_some_rows(x, k):
    """Compares the first, middle and last rows of a 2-d operand that is too large for the oracle."""
    indices = topk(x, k).indices
    rows = np.r_[0:3, len(x) // 2 : len(x) // 2 + 3, len(x) - 3 : len(x)]
    oracle.assert_same(indices[rows], oracle.topk(np.asarray(x[rows]), k)[1])


@pytest.mark.parametrize("shape", [(60 * 1000, 1000), (160 * 256 * 3, 1024)], ids=str)
def test_many_rows(backend, shape):
    rows, n = shape if backend.takes_large else (300, 100)
    check_some_rows(jax.random.bits(jax.random.key(0), (rows, n), jnp.uint16), 4)


def test_more_than_2_to_the_31_elements(backend):
    rows, n = (2**11 + 3, 2**20) if backend.takes_large else (3, 2**10)

    @jax.jit
    def pattern():
        row, column = (jax.lax.broadcasted_iota(jnp.uint32, (rows, n), axis) for axis in (0, 1))
        return ((row * n + column) * np.uint32(2654435761) >> 24).astype(jnp.int8)

    check_some_rows(pattern(), 5)


def test_all_zeros_along_the_middle_axis(backend):
    x = jnp.zeros((20, 1000, 1000) if backend.takes_large else (2, 30, 40))
    assert (topk(x, 5, axis=1).indices == jnp.arange(5)[:, None]).all()
