"""approx_topk: the top k with a recall that is asked for, by the cheapest way."""

from __future__ import annotations

from typing import Any

from jax.typing import ArrayLike

from jax_rtopk._checks import check_buckets, check_flag, check_recall, check_static_row
from jax_rtopk._plan import ApproxPlan, BucketPlan, plan_approx
from jax_rtopk._primitive import bucketed_p, topk_p
from jax_rtopk._recall import bucketed_recall
from jax_rtopk._result import TopK
from jax_rtopk._rows import Implementation, move, prepare

_EXACT = ApproxPlan(0, None)


def approx_topk(
    operand: ArrayLike,
    k: int,
    *,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
    recall_target: float = 0.95,
    num_buckets: int | None = None,
    bucket_k: int | None = None,
    implementation: Implementation | None = None,
) -> TopK:
    """Most of the k largest elements along an axis: in expectation the share of them that `recall_target` asks for.

    Takes the cheapest way that finds so many: bucketed top-k, early stopping (see `topk`), or the exact answer where
    that is as cheap. Bucketed top-k (arXiv 2412.04358) deals each row to buckets, element i to bucket i mod
    `num_buckets`; of each bucket the `bucket_k` first in order of selection are candidates, and the answer is the k
    first of the candidates, ties to the lowest index. With `bucket_k=1` it is the method of arXiv 2206.14286, which
    `jax.lax.approx_max_k` follows on TPUs only. Which way is taken depends on the sizes and the recall alone, by costs
    measured on a CPU, and is the same on every platform.

    >>> import jax
    >>> from jax_rtopk import approx_topk, expected_recall
    >>> x = jax.random.normal(jax.random.key(0), (64, 16384))
    >>> values, indices = approx_topk(x, 128)
    >>> values.shape
    (64, 128)
    >>> values, indices = approx_topk(x, 128, num_buckets=512, bucket_k=2)
    >>> round(expected_recall(16384, 128, num_buckets=512, bucket_k=2), 3)
    0.992

    The result is always k distinct indices with their values, the row maximum among them (minimum, if not `largest`),
    in the order that `topk` has. The same bits come from native code and pure JAX, unless the way is early stopping,
    where pure JAX answers exactly. Differentiation, vmap and sharding are as for `topk`.

    The recall is that of rows in random order, whatever the values; `expected_recall` tells it for buckets, and
    `recall_variance` how much single rows differ. **Rows in which an element's place tells of its value can do worse.**
    The worst are values that repeat with a period of `num_buckets` or a divisor of it: the top k may then share few
    buckets, down to one, of which `bucket_k` are found. Neighbours that are alike do no harm: they are in different
    buckets.

    Arguments:
        operand: as of `topk`.
        k: as of `topk`.
        axis: as of `topk`. Its size must not be symbolic.
        largest: as of `topk`.
        sorted: as of `topk`.
        recall_target: the least expected share of the true top k, a number above 0 and at most 1; 1.0 is exact. Not
            used if `num_buckets` is given.
        num_buckets: None: what is cheapest. Otherwise bucketed top-k with so many buckets, between 1 and the size of
            the axis.
        bucket_k: how many elements to keep of each bucket, 1 if not given, at most as many as the smallest bucket has.
            Only with `num_buckets`. Together the buckets must keep k or more.
        implementation: as of `topk`.

    Returns:
        As `topk`.

    Raises:
        TypeError: as `topk`; or if `num_buckets` or `bucket_k` is no static int, or `recall_target` no number.
        ValueError: as `topk`; or if `num_buckets`, `bucket_k` or `recall_target` is out of range, in which case the
            message says which plan is the nearest valid one, `bucket_k` is given without `num_buckets`, or the size of
            the axis is symbolic.
        NotImplementedError: if `implementation="native"` and there is no native code for the platform.
    """
    rows, axis, params = prepare("approx_topk", operand, k, axis, implementation)
    params |= {
        "largest": check_flag("approx_topk", "largest", largest),
        "sorted": check_flag("approx_topk", "sorted", sorted),
    }
    n = check_static_row("approx_topk", rows, rows.ndim - 1)
    plan = _plan(n, params["k"], check_recall("approx_topk", recall_target), num_buckets, bucket_k)
    if plan.buckets is None:
        results = topk_p.bind(rows, max_iter=plan.max_iter, **params)
    else:
        results = bucketed_p.bind(rows, num_buckets=plan.buckets.num_buckets, bucket_k=plan.buckets.bucket_k, **params)
    return TopK(*(move(result, rows.ndim - 1, axis) for result in results))


def _plan(n: int, k: int, recall_target: float, num_buckets: Any, bucket_k: Any) -> ApproxPlan:
    if num_buckets is None:
        if bucket_k is not None:
            raise ValueError(
                "approx_topk: bucket_k is for a plan of your own and needs num_buckets, got "
                f"bucket_k={bucket_k!r} alone. Give both, or recall_target."
            )
        return plan_approx(n, k, recall_target) if k > 0 else _EXACT
    if n == 0:
        return _EXACT  # there is nothing to deal
    b, j = check_buckets("approx_topk", n, k, num_buckets, 1 if bucket_k is None else bucket_k)
    recall = bucketed_recall(n, k, b, j) if k > 0 else 1.0
    # Buckets that can miss nothing give the exact answer, which needs none.
    return _EXACT if recall == 1 else ApproxPlan(0, BucketPlan(b, j, recall))
