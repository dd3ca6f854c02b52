"""What share of the true top k bucketed top-k finds: its expectation and variance over rows in random order.

A row of n elements is dealt to b buckets in turn, and the j largest of each bucket are kept. The recall of the top k
among what was kept depends on nothing but how the k are spread over the buckets, which in random order is a
multivariate hypergeometric matter: of a bucket of s elements X are among the k, as in s draws without replacement, and
(X - j)+ of them are lost.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from jax_rtopk._checks import check_buckets, check_row

_Floats = NDArray[np.float64]


def expected_recall(n: int, k: int, num_buckets: int, bucket_k: int = 1) -> float:
    """The share of a row's k largest elements that are among the `bucket_k` largest of their bucket, in expectation.

    Element i is in bucket i mod `num_buckets`. The expectation is over rows in random order, and exact, whatever the
    distribution of the values; where the row length is no multiple of the number of buckets too. Rows in which an
    element's place tells of its value may do worse: with all of the top k in one bucket, `bucket_k / k` of them are
    found.

    >>> from jax_rtopk import expected_recall
    >>> round(expected_recall(16384, 128, num_buckets=128, bucket_k=4), 5)
    0.99611

    The method is that of arXiv 2412.04358, whose own model, rows without end, reads up to 2.4 points low where
    k = n / 8; for `bucket_k=1` the bound (1 - 1/b)^(k-1) of arXiv 2206.14286 is lower still. The hypergeometric
    expectation here is this project's.

    Arguments:
        n: how many elements a row has, an int between 1 and 2**31 - 1.
        k: how many are looked for, an int between 1 and `n`.
        num_buckets: how many buckets the row is dealt to, an int between 1 and `n`.
        bucket_k: how many elements are kept of each, an int between 1 and the size of the smallest bucket,
            `n // num_buckets`. Together the buckets must keep k or more.

    Returns:
        The expected recall; 1.0 only where nothing can be missed.

    Raises:
        TypeError: if an argument is no static int.
        ValueError: if an argument is out of range; the message says which plan is the nearest valid one.
    """
    n, k = check_row("expected_recall", n, k)
    return bucketed_recall(n, k, *check_buckets("expected_recall", n, k, num_buckets, bucket_k))


def recall_variance(n: int, k: int, num_buckets: int, bucket_k: int = 1) -> float:
    """The variance, from row to row, of the recall whose expectation `expected_recall` is.

    Exact as well. With z = 2.33, `expected_recall(...) - z * math.sqrt(recall_variance(...))` is a recall that about 99
    of 100 rows reach, where k times the share missed is not small (say 5 or more: the normal approximation); the mean
    over r rows varies by r times less.

    >>> import math
    >>> from jax_rtopk import expected_recall, recall_variance
    >>> plan = {"num_buckets": 512, "bucket_k": 1}
    >>> mean, std = expected_recall(8192, 128, **plan), math.sqrt(recall_variance(8192, 128, **plan))
    >>> print(f"{mean:.3f}; 99 of 100 rows: {mean - 2.33 * std:.3f}")
    0.892; 99 of 100 rows: 0.834

    Derived by this project: the sum of the variances of what single buckets lose and the covariances of pairs.

    Arguments:
        n: as of `expected_recall`.
        k: as of `expected_recall`.
        num_buckets: as of `expected_recall`.
        bucket_k: as of `expected_recall`.

    Returns:
        The variance.

    Raises:
        TypeError: as `expected_recall`.
        ValueError: as `expected_recall`.
    """
    n, k = check_row("recall_variance", n, k)
    b, j = check_buckets("recall_variance", n, k, num_buckets, bucket_k)
    sizes = _bucket_sizes(n, b)
    total = 0.0
    for size, buckets in sizes:
        counts, weights = _loss_weights(n, k, size, j)
        total += buckets * float(weights[counts >= j].sum())
        for other, others in sizes:
            pairs = buckets * (others - (other == size))
            if pairs and len(counts):
                total -= pairs * float(weights @ _relief(n, k, size, other, j, counts))
    return max(0.0, total) / k**2


def bucketed_recall(n: int, k: int, num_buckets: int, bucket_k: int) -> float:
    """`expected_recall` of arguments known to be valid."""
    if min(k, -(-n // num_buckets)) <= bucket_k:
        return 1.0
    lost = 0.0
    for size, buckets in _bucket_sizes(n, num_buckets):
        first, pmf = _hypergeometric(n, k, size)
        over = np.arange(first, first + len(pmf)) - bucket_k
        lost += buckets * float(np.maximum(over, 0) @ pmf)
    return min(1 - lost / k, math.nextafter(1, 0))  # below 1, where something can be missed


def _bucket_sizes(n: int, num_buckets: int) -> list[tuple[int, int]]:
    """Each size that buckets have, and how many have it."""
    size, larger = divmod(n, num_buckets)
    return [(size, num_buckets - larger)] + ([(size + 1, larger)] if larger else [])


def _hypergeometric(population: int, special: int, sample: int) -> tuple[int, _Floats]:
    """The probabilities of `first`, `first` + 1, ... special elements in a sample; all others are below 1e-17."""
    share = special / max(population, 1)
    mean = sample * share
    variance = mean * (1 - share) * (population - sample) / max(population - 1, 1)
    # The count is a sum of independent indicators, so Bernstein's inequality holds: beyond t on either side there is
    # less than exp(-t^2 / (2 variance + 2 t / 3)), which is exp(-40.5) or less for this t.
    reach = 27 + 9 * math.sqrt(variance)
    first = max(0, special + sample - population, math.floor(mean - reach))
    last = min(special, sample, math.ceil(mean + reach))
    mode = min(max(first, (special + 1) * (sample + 1) // (population + 2)), last)
    r = np.arange(first, last, dtype=np.float64)
    ratios = (special - r) * (sample - r) / ((r + 1) * (population - special - sample + r + 1))
    pmf = _from_ratios(ratios, mode - first)
    return first, pmf / pmf.sum()


def _from_ratios(ratios: _Floats, origin: int) -> _Floats:
    """The sequence that is 1 at `origin` and whose neighbours have the given ratios, of the next to the former.

    Nothing cancels, where differences of log-factorials lose all digits when n is large.
    """
    down, up = ratios[:origin][::-1], ratios[origin:]
    return np.concatenate([np.cumprod(1 / down)[::-1], [1.0], np.cumprod(up)])


def _loss_weights(n: int, k: int, size: int, j: int) -> tuple[_Floats, _Floats]:
    """Counts v and weights w: Cov((X - j)+, g(X)) is the sum of w(v) (g(v + 1) - g(v)), for any g.

    By Hoeffding's covariance identity w(v) is the sum over u >= j of P(X > max(u, v)) P(X <= min(u, v)). All terms are
    positive, so that small variances keep their digits.
    """
    first, pmf = _hypergeometric(n, k, size)
    counts = np.arange(first, first + len(pmf) - 1, dtype=np.float64)
    at_most, more = np.cumsum(pmf[:-1]), np.cumsum(pmf[:0:-1])[::-1]
    up_to = np.cumsum(at_most * (counts >= j))  # over u <= v
    beyond = np.cumsum((more * (counts >= j))[::-1])[::-1] - more * (counts >= j)  # over u > v
    return counts, more * up_to + at_most * beyond


def _relief(n: int, k: int, size: int, other: int, j: int, counts: _Floats) -> _Floats:
    """How much less another bucket loses, in expectation, when one more than v of the k is in this one; for each v.

    That one is missing in the rest of the row. The other bucket loses one less if it would have been there, beside j or
    more others of the k.
    """
    rest = n - size
    fewest, most = k - 1 - int(counts[-1]), k - 1 - int(counts[0])  # others of the k in the rest
    return other / rest * _at_least(j, rest - 1, fewest, most, other - 1)[::-1]


def _at_least(count: int, population: int, fewest: int, most: int, sample: int) -> _Floats:
    """The probability of `count` or more special elements in a sample, for `fewest` to `most` of them in all."""
    if sample < count:
        return np.zeros(most + 1 - fewest)
    first, pmf = _hypergeometric(population, fewest, sample)
    # One more special element makes the difference if it is in the sample beside count - 1 others.
    steps = np.zeros(most - fewest)
    others, places, wanted = population - 1, sample - 1, count - 1
    low, high = max(fewest, wanted), min(most - 1, others - places + wanted)  # where there may be so many others
    if low <= high:
        likeliest = min(max(low, wanted * population // max(places, 1)), high)
        s = np.arange(low, high, dtype=np.float64)
        ratios = (s + 1) * (others - s - places + wanted) / ((s + 1 - wanted) * (others - s))
        steps[low - fewest : high + 1 - fewest] = _from_ratios(ratios, likeliest - low)
        steps *= sample / population * _probability(wanted, *_hypergeometric(others, likeliest, places))
    return float(pmf[max(0, count - first) :].sum()) + np.append(0.0, np.cumsum(steps))


def _probability(count: int, first: int, pmf: _Floats) -> float:
    return float(pmf[count - first]) if first <= count < first + len(pmf) else 0.0
