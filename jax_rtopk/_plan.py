"""The cheapest bucket plan that reaches a recall."""

from __future__ import annotations

from typing import NamedTuple

from jax_rtopk._checks import check_recall, check_row
from jax_rtopk._recall import bucketed_recall

# The cost model, and the only place of it. Selecting k of n elements through buckets costs
#     n * STAGE1[bucket_k - 1] + num_buckets * bucket_k * STAGE2,
# and selecting them exactly n * STAGE2; what selecting costs for each of the k is the same in both and left out.
# The unit is an AVX2 instruction. Until a benchmark writes measured costs here, the numbers are counts:
# - stage 1 takes three instructions, a comparison and two blends, to pass eight elements by one level of their queues;
# - exact selection takes 2.3 instructions an element and 85 for each of the k, which is within a tenth of what
#   benchmarks/results/instructions.json counts for float32 rows of 256 elements and more.
STAGE1 = tuple(3 / 8 * bucket_k for bucket_k in range(1, 17))
STAGE2 = 2.3


class BucketPlan(NamedTuple):
    """How to deal a row to buckets, and the recall to be expected."""

    num_buckets: int
    bucket_k: int
    expected_recall: float


def plan_cost(n: int, num_buckets: int, bucket_k: int) -> float:
    """What the plan costs a row; where each element is a bucket of its own there is no stage 1."""
    stage1 = 0.0 if num_buckets == n else n * STAGE1[bucket_k - 1]
    return stage1 + num_buckets * bucket_k * STAGE2


def plan_buckets(n: int, k: int, *, recall_target: float = 0.95) -> BucketPlan:
    """The cheapest plan for bucketed top-k that finds a share of the true top k, in expectation.

    It keeps up to 16 elements of each bucket. Where exact selection is as cheap, or nothing else finds as much, it is
    the exact plan: `num_buckets=n, bucket_k=1`, each element a bucket of its own. `recall_target=1.0` allows only plans
    that can miss nothing.

    >>> from jax_rtopk import plan_buckets
    >>> plan_buckets(16384, 128)
    BucketPlan(num_buckets=1146, bucket_k=1, expected_recall=0.950...)
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
    best, cost = BucketPlan(n, 1, 1.0), plan_cost(n, n, 1)
    for bucket_k in range(1, min(len(STAGE1), k) + 1):
        if n * STAGE1[bucket_k - 1] >= cost:
            continue
        num_buckets = _fewest_buckets(n, k, bucket_k, recall_target)
        if num_buckets and plan_cost(n, num_buckets, bucket_k) < cost:
            cost = plan_cost(n, num_buckets, bucket_k)
            best = BucketPlan(num_buckets, bucket_k, bucketed_recall(n, k, num_buckets, bucket_k))
    return best


def _fewest_buckets(n: int, k: int, bucket_k: int, recall_target: float) -> int | None:
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
