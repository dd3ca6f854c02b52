"""The cheapest way that reaches a recall: the bucket plan, and whether it, early stopping or exact selection is."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from jax_rtopk._checks import check_recall, check_row
from jax_rtopk._early_stop import expected_recall_early_stop
from jax_rtopk._recall import bucketed_recall

# The cost model, and the only place of it: nanoseconds a row, of one core, to select k of n elements unsorted.
# benchmarks/approx_cost.py measures it all and prints these constants; benchmarks/results/approx_cost.json says on what
# machine.
# Exact: n * element + sqrt(n * k) * threshold: the larger k is, the more elements pass before the threshold is found.
EXACT = (0.27, 1.35)
# Early stopping: n * (element + max_iter * counting) + k * selected.
EARLY_STOP = (0.71, 0.07, 1.4)
# Buckets: a row + places * STAGE1[bucket_k - 1] + k * order, and exact selection from the candidates. As many buckets
# as VECTOR are served at once, or fewer in the same time: the places are n where each line of buckets fills vectors.
VECTOR = 16
ROW, ORDER = 58.0, 8.7
STAGE1 = (0.25, 0.27, 0.35, 0.43, 0.67, 0.74, 0.82, 0.89, 0.89, 0.90, 0.90, 0.91, 0.92, 0.92, 0.93, 0.93)

# The recall of early stopping depends on the values a little, beside the ranks: so far below what is expected it was at
# most, where k is below n / 4 and where it is not.
EARLY_STOP_MARGINS = (0.0015, 0.007)


class BucketPlan(NamedTuple):
    """How to deal a row to buckets, and the recall to be expected."""

    num_buckets: int
    bucket_k: int
    expected_recall: float


class ApproxPlan(NamedTuple):
    """How to select: through buckets where there are some, otherwise with `max_iter` (0: exactly)."""

    max_iter: int
    buckets: BucketPlan | None


def exact_cost(n: int, k: int) -> float:
    """What exact selection costs a row."""
    element, threshold = EXACT
    return n * element + sqrt(n * k) * threshold


def early_stop_cost(n: int, k: int, max_iter: int) -> float:
    """What early stopping costs a row."""
    element, counting, selected = EARLY_STOP
    return n * (element + max_iter * counting) + k * selected


def plan_cost(n: int, k: int, num_buckets: int, bucket_k: int) -> float:
    """What a bucket plan costs a row; where each element is a bucket of its own that is exact selection."""
    if num_buckets == n:
        return exact_cost(n, k)
    places = n / num_buckets * whole_vectors(num_buckets)
    return ROW + places * STAGE1[bucket_k - 1] + k * ORDER + exact_cost(num_buckets * bucket_k, k)


def whole_vectors(num_buckets: int) -> int:
    """So many buckets cost no more in the first stage, a line."""
    return -(-num_buckets // VECTOR) * VECTOR


@lru_cache(maxsize=4096)
def plan_approx(n: int, k: int, recall_target: float) -> ApproxPlan:
    """The cheapest way of all; `n` and `k` are at least 1."""
    buckets = plan_buckets(n, k, recall_target=recall_target)
    cost = plan_cost(n, k, buckets.num_buckets, buckets.bucket_k)
    margin = EARLY_STOP_MARGINS[4 * k >= n]
    max_iter = 1
    while early_stop_cost(n, k, max_iter) < cost:
        if expected_recall_early_stop(n, k, max_iter) - margin >= recall_target:
            return ApproxPlan(max_iter, None)
        max_iter += 1
    return ApproxPlan(0, None) if buckets.num_buckets == n else ApproxPlan(0, buckets)


def plan_buckets(n: int, k: int, *, recall_target: float = 0.95) -> BucketPlan:
    """The cheapest plan for bucketed top-k that finds a share of the true top k, in expectation.

    It keeps up to 16 elements of each bucket. Where exact selection is as cheap, or nothing else finds as much, it is
    the exact plan: `num_buckets=n, bucket_k=1`, each element a bucket of its own. `recall_target=1.0` allows only plans
    that can miss nothing.

    >>> from jax_rtopk import plan_buckets
    >>> plan_buckets(16384, 128)
    BucketPlan(num_buckets=208, bucket_k=2, expected_recall=0.955...)
    >>> plan_buckets(16384, 128, recall_target=1.0)
    BucketPlan(num_buckets=16384, bucket_k=1, expected_recall=1.0)

    The choice over both parameters at once follows arXiv 2412.04358; see `expected_recall`, whose conditions hold here
    too.

    Arguments:
        n: as of `expected_recall`.
        k: as of `expected_recall`.
        recall_target: the least expected recall, a number above 0 and at most 1.

    Returns:
        `BucketPlan(num_buckets, bucket_k, expected_recall)`.

    Raises:
        TypeError: if `n` or `k` is no static int, or `recall_target` no number.
        ValueError: if an argument is out of range.
    """
    n, k = check_row("plan_buckets", n, k)
    recall_target = check_recall("plan_buckets", recall_target)
    best, cost = BucketPlan(n, 1, 1.0), plan_cost(n, k, n, 1)
    for bucket_k in range(1, min(len(STAGE1), k) + 1):
        if n * STAGE1[bucket_k - 1] >= cost:
            continue
        num_buckets = cheapest_buckets(n, k, bucket_k, recall_target)
        if num_buckets and (lower := plan_cost(n, k, num_buckets, bucket_k)) < cost:
            best, cost = BucketPlan(num_buckets, bucket_k, bucketed_recall(n, k, num_buckets, bucket_k)), lower
    return best


def cheapest_buckets(n: int, k: int, bucket_k: int, recall_target: float) -> int | None:
    """The buckets with which a `bucket_k` reaches the recall at the least cost, if any do."""
    fewest = fewest_buckets(n, k, bucket_k, recall_target)
    if fewest is None:
        return None
    most = min(whole_vectors(fewest), n // bucket_k)  # more would be more candidates for the same first stage
    return min(range(fewest, most + 1), key=lambda num_buckets: plan_cost(n, k, num_buckets, bucket_k))


def fewest_buckets(n: int, k: int, bucket_k: int, recall_target: float) -> int | None:
    """The fewest buckets with which a `bucket_k` reaches the recall, if any do."""
    # More buckets never find less: what a bucket finds is a concave function of its size, so evener sizes find more.
    fewest, most = -(-k // bucket_k), n // bucket_k
    if fewest > most or bucketed_recall(n, k, most, bucket_k) < recall_target:
        return None
    while fewest < most:
        middle = (fewest + most) // 2
        if bucketed_recall(n, k, middle, bucket_k) >= recall_target:
            most = middle
        else:
            fewest = middle + 1
    return most
