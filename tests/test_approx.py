"""approx_topk: the recall that is measured beside that expected, which way is taken, and errors."""

import math
import re

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from jax_rtopk import _plan, approx_topk, expected_recall, expected_recall_early_stop, recall_variance
from jax_rtopk._plan import ApproxPlan, BucketPlan, plan_approx

pytestmark = pytest.mark.usefixtures("backend")


def recall(x, k, **arguments):
    """The mean share of the true top k."""
    _, got = jax.jit(lambda x: approx_topk(x, k, sorted=False, **arguments))(x)
    true = np.argpartition(-x, k - 1, axis=-1)[:, :k]
    found = [np.isin(g, t, assume_unique=True).mean() for g, t in zip(np.asarray(got), true, strict=True)]
    return float(np.mean(found))


PLANS = [
    # n, k, num_buckets, bucket_k
    (64, 8, 16, 1),
    (100, 10, 30, 1),
    (100, 30, 15, 3),
    (256, 32, 16, 2),
    (257, 32, 60, 2),
    (1000, 50, 97, 1),
    (1024, 64, 64, 1),
    (1024, 64, 32, 2),
    (1024, 300, 60, 8),
    (2048, 256, 512, 1),
    (4096, 256, 256, 2),
    (4096, 512, 700, 1),
    (4099, 512, 200, 5),
]


@pytest.mark.parametrize(("n", "k", "b", "j"), PLANS)
def test_measured_recall_is_the_expected_one(n, k, b, j):
    rows = 400
    x = np.random.default_rng([n, k, b, j]).standard_normal((rows, n)).astype(np.float32)
    error = math.sqrt(recall_variance(n, k, b, j) / rows)
    assert recall(x, k, num_buckets=b, bucket_k=j) == pytest.approx(expected_recall(n, k, b, j), abs=4 * error)


@pytest.mark.parametrize(("n", "k"), [(64, 8), (256, 32), (2048, 16), (4096, 512), (16384, 128)])
@pytest.mark.parametrize("target", [0.8, 0.95, 0.99])
def test_recall_is_at_least_what_is_asked_for(backend, n, k, target):
    rows = 2**20 // n
    plan = plan_approx(n, k, target)
    if backend.name == "emulated" and plan.buckets is None:
        rows = 2**13 // n + 1  # the search is emulated; its recall has tests of its own
    x = np.random.default_rng([n, k]).standard_normal((rows, n)).astype(np.float32)
    if plan.buckets:
        noise = 4 * math.sqrt(recall_variance(n, k, plan.buckets.num_buckets, plan.buckets.bucket_k) / rows)
    else:
        noise = 0.003 * math.sqrt(2**20 / (rows * n))
    assert recall(x, k, recall_target=target) >= target - noise


def test_correlated_rows():
    """Neighbours that are alike are in different buckets: contiguous ones would find some .3."""
    rng = np.random.default_rng(7)
    x = np.empty((200, 2048), np.float32)
    x[:, 0] = rng.standard_normal(200)
    for i in range(1, 2048):
        x[:, i] = 0.9 * x[:, i - 1] + math.sqrt(1 - 0.9**2) * rng.standard_normal(200)
    assert recall(x, 256, num_buckets=256) > 0.63


def test_values_with_the_period_of_the_buckets():
    """The documented bad case: all of the top k in one bucket, of which bucket_k are found."""
    x = np.zeros((1, 1024), np.float32)
    x[:, ::32] = 1 + np.random.default_rng(8).random((1, 32))
    assert recall(x, 32, num_buckets=32, bucket_k=4) == pytest.approx(4 / 32)


def calls(function, x):
    return set(re.findall(r"jax_rtopk_(?:emulated_)?(topk|bucketed)", jax.jit(function).lower(x).as_text()))


def test_which_way_is_taken(backend, monkeypatch):
    x = jnp.ones((2, 4096))

    def way(recall_target):
        return calls(lambda x: approx_topk(x, 64, recall_target=recall_target), x)

    exact = {"topk"} if backend.native else set()
    dealt = {"bucketed"} if backend.native else set()
    assert way(1.0) == exact
    plans = {0.5: ApproxPlan(0, BucketPlan(300, 1, 0.9)), 0.6: ApproxPlan(2, None), 0.7: ApproxPlan(0, None)}
    monkeypatch.setattr("jax_rtopk._approx.plan_approx", lambda n, k, recall_target: plans[recall_target])
    assert way(0.5) == dealt
    assert way(0.6) == way(0.7) == exact


CHEAP = (0.1, 0.02, 0.1)  # nanoseconds, which bring plans to stop early that with those measured do not


@pytest.mark.parametrize("early_stop", [_plan.EARLY_STOP, CHEAP], ids=["as measured", "cheap early stop"])
def test_plans_reach_the_recall_with_a_margin(monkeypatch, early_stop):
    monkeypatch.setattr(_plan, "EARLY_STOP", early_stop)
    plan_anew = plan_approx.__wrapped__  # past the cache, which does not know of it
    plans = []
    longer = ((256, 32), (1024, 512), (4096, 512), (16384, 4096), (65536, 64), (65536, 2048))
    for n, k in ((64, 8), *(() if early_stop == CHEAP else longer)):  # of longer rows it is worked out slowly
        for target in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999):
            plan = plan_anew(n, k, target)
            plans.append(plan)
            if plan.buckets:
                assert plan.max_iter == 0
                assert plan.buckets.expected_recall >= target
            elif plan.max_iter:
                assert expected_recall_early_stop(n, k, plan.max_iter) - (0.007 if 4 * k >= n else 0.0015) >= target
    assert any(plan.max_iter if early_stop == CHEAP else plan.buckets for plan in plans)


def test_buckets_that_miss_nothing_are_the_exact_answer(backend):
    x = np.random.default_rng(9).standard_normal((3, 100)).astype(np.float32)
    for b, j in ((100, 1), (10, 10), (5, 7)):
        oracle.assert_same(approx_topk(x, 7, num_buckets=b, bucket_k=j).indices, oracle.topk(x, 7)[1])
        if backend.native:
            assert calls(lambda x, b=b, j=j: approx_topk(x, 7, num_buckets=b, bucket_k=j), x) == {"topk"}


@pytest.mark.parametrize("shape", [(0, 50), (3, 0), (2, 50)])
def test_empty_results(shape):
    k = 3 if shape[0] == 0 else 0
    for arguments in ({}, {"num_buckets": 10}):
        values, indices = approx_topk(jnp.ones(shape), k, **arguments)
        assert values.shape == indices.shape == (*shape[:-1], k)


ERRORS = {
    "too few kept": (
        {"k": 64, "num_buckets": 32},
        ValueError,
        "at least k=64, got 32 . 1 = 32.*num_buckets=32, bucket_k=2",
    ),
    "empty buckets": ({"num_buckets": 1025}, ValueError, "between 1 and n=1024, as no bucket may be empty, got 1025"),
    "small buckets": ({"num_buckets": 512, "bucket_k": 4}, ValueError, "the size of the smallest bucket, got 4"),
    "float": ({"num_buckets": 64.0}, TypeError, "num_buckets must be a static Python int, got 64.0"),
    "bool": ({"num_buckets": 64, "bucket_k": True}, TypeError, "bucket_k must be a static Python int, got the bool"),
    "bucket_k alone": ({"bucket_k": 2}, ValueError, "needs num_buckets, got bucket_k=2 alone"),
    "recall in percent": ({"recall_target": 95}, ValueError, "recall_target must be .* at most 1, got 95"),
    "no recall": ({"recall_target": None}, TypeError, "recall_target must be a number"),
    "large k": ({"k": 1025}, ValueError, "k must be at most the size of the selection axis"),
    "flag": ({"largest": 1}, TypeError, "largest must be a Python bool"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("jit", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_errors(arguments, error, message, jit):
    arguments = {"k": 8, **arguments}
    with pytest.raises(error, match=f"^approx_topk: .*{message}"):
        jit(lambda x: approx_topk(x, **arguments))(jnp.ones((2, 1024)))


def test_symbolic_row_length():
    shape = jax.export.symbolic_shape("rows, n", constraints=["n >= 8"])
    with pytest.raises(ValueError, match=r"approx_topk: the selection axis must have a static size.* size n.*use topk"):
        jax.eval_shape(lambda x: approx_topk(x, 8), jax.ShapeDtypeStruct(shape, jnp.float32))


def test_native_that_is_not_there(backend):
    if backend.native:
        assert approx_topk(jnp.ones((4, 100)), 3, num_buckets=9, implementation="native").indices.shape == (4, 3)
        return
    with pytest.raises(NotImplementedError, match='implementation="native" needs native code'):
        approx_topk(jnp.ones((4, 100)), 3, num_buckets=9, implementation="native")
