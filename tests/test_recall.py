"""Predicted recall: the bucket formulas against exact fractions and drawn rows, early stopping against the search."""

import math
import time
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
import search_spec
from row_kinds import KINDS, float32_keys, make_rows, share_found

import jax_rtopk
from jax_rtopk import expected_recall, expected_recall_early_stop, plan_buckets, recall_variance
from jax_rtopk._plan import STAGE1, plan_cost
from jax_rtopk._search_plan import SearchPlan


def bucket_sizes(n, b):
    return [n // b + (i < n % b) for i in range(b)]


def recall_as_fraction(n, k, b, j):
    """By ranks, in integers: an element is found if fewer than j of the larger ones are in its bucket."""
    found = Fraction(0)
    for size in set(bucket_sizes(n, b)):
        in_such = Fraction(size * bucket_sizes(n, b).count(size), n)
        ways = sum(
            math.comb(larger, met) * math.comb(n - 1 - larger, size - 1 - met)
            for larger in range(k)
            for met in range(min(j, size))
        )
        found += in_such * Fraction(ways, math.comb(n - 1, size - 1))
    return found / k


def recalls_of_all_rows(n, k, b, j):
    """The recall of every way in which the k can lie in the row."""
    for places in combinations(range(n), k):
        kept = np.minimum(np.bincount(np.array(places) % b, minlength=b), j).sum()
        yield Fraction(int(kept), k)


def valid_plans(n):
    for k, b in product(range(1, n + 1), repeat=2):
        for j in range(-(-k // b), n // b + 1):
            yield n, k, b, j


@pytest.mark.parametrize(
    ("plan", "known"),
    [
        ((1024, 64, 64, 1), 0.64673),
        ((1024, 64, 32, 2), 0.74211),
        ((256, 32, 16, 2), 0.75508),
        ((4096, 256, 256, 2), 0.90869),
        ((16384, 128, 128, 4), 0.99611),
    ],
)
def test_known_recalls(plan, known):
    assert round(expected_recall(*plan), 5) == known


@pytest.mark.parametrize("n", [1, 2, 5, 7, 8])
def test_every_plan_of_short_rows(n):
    for plan in valid_plans(n):
        recalls = list(recalls_of_all_rows(*plan))
        mean = sum(recalls) / len(recalls)
        variance = sum((recall - mean) ** 2 for recall in recalls) / len(recalls)
        assert expected_recall(*plan) == pytest.approx(float(mean), abs=1e-13), plan
        assert recall_variance(*plan) == pytest.approx(float(variance), abs=1e-13), plan


@pytest.mark.parametrize(
    "plan",
    [
        (1000, 100, 37, 3),  # ragged
        (1023, 64, 64, 1),
        (4096, 500, 130, 5),
        (2000, 1990, 100, 20),  # nearly all wanted
        (600, 140, 2, 80),  # few buckets
        (3000, 40, 2999, 1),  # as many buckets as elements, but one
        (5000, 1000, 1001, 1),
    ],
)
def test_recall_against_exact_fractions(plan):
    assert expected_recall(*plan) == pytest.approx(float(recall_as_fraction(*plan)), abs=1e-12)


@pytest.mark.parametrize(
    ("n", "k", "b", "j"),
    [
        (1000, 100, 37, 3),
        (1000, 900, 30, 31),
        (128, 16, 16, 2),
        (4096, 256, 256, 1),
        (65536, 1024, 1024, 2),
        (2**20, 512, 1000, 1),
        (999_999_937, 1000, 999, 2),
    ],
)
def test_mean_and_variance_of_drawn_rows(n, k, b, j):
    rows = 4000
    in_buckets = np.random.default_rng(n).multivariate_hypergeometric(bucket_sizes(n, b), k, rows, method="marginals")
    recalls = np.minimum(in_buckets, j).sum(axis=1) / k
    mean, variance = recalls.mean(), recalls.var()
    assert abs(expected_recall(n, k, b, j) - mean) <= 4 * math.sqrt(variance / rows)
    error_of_variance = math.sqrt((np.mean((recalls - mean) ** 4) - variance**2) / rows)
    assert abs(recall_variance(n, k, b, j) - variance) <= 4 * error_of_variance


def test_interleaved_buckets_of_drawn_rows():
    """The formula is of element i in bucket i mod b: drawn as such, the row in random order."""
    n, k, b, j, rows = 1003, 60, 40, 2, 2000
    x = np.random.default_rng(0).random((rows, n))
    padded = np.pad(x, ((0, 0), (0, -n % b)), constant_values=-1).reshape(rows, -1, b)
    lost = np.sort(padded, axis=1)[:, :-j]  # all but the j largest of each bucket
    kth = np.partition(x, n - k, axis=1)[:, n - k]
    recalls = 1 - (lost >= kth[:, None, None]).sum(axis=(1, 2)) / k
    assert abs(expected_recall(n, k, b, j) - recalls.mean()) <= 4 * recalls.std() / math.sqrt(rows)


def test_recall_is_one_only_where_nothing_can_be_missed():
    assert expected_recall(2**20, 64, 2**14, 16) < 1  # by 1e-30 or so
    assert expected_recall(2**20, 16, 2**14, 16) == 1
    assert expected_recall(1001, 1000, 500, 2) < 1  # one bucket is of three
    assert expected_recall(1000, 1000, 500, 2) == 1
    assert recall_variance(1000, 1000, 500, 2) == 0


def test_longest_rows():
    """Where differences of log-factorials would have lost all digits: for k much below n buckets fill independently."""
    n, k, b = 2**31 - 1, 4096, 2**16
    assert expected_recall(n, k, b) == pytest.approx(b / k * (1 - (1 - 1 / b) ** k), abs=1e-6)
    # Two halves: the smaller one's share of k is about normal around k / 2, with a variance of k / 4 (1 - k / n).
    k = 2**30
    lost = math.sqrt(k / 8) / math.sqrt(2 * math.pi) * 2
    assert expected_recall(n, k, 2, k // 2) == pytest.approx(1 - lost / k, abs=1e-7)


def fastest(function, *arguments, **keywords):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function(*arguments, **keywords)
        times.append(time.perf_counter() - start)
    return min(times)


def test_fast():
    n, k = 2**20, 4096
    for b, j in [(2, 2048), (64, 64), (4096, 1), (300001, 3), (2**19, 1)]:
        assert fastest(expected_recall, n, k, b, j) < 0.005
        assert fastest(recall_variance, n, k, b, j) < 0.005
    for target in (0.5, 0.95, 0.999, 1.0):
        assert fastest(plan_buckets, n, k, recall_target=target) < 0.02


@pytest.mark.parametrize(("j", "candidates"), [(1, 1146), (2, 392), (4, 228), (8, 176)])
def test_plans_take_the_fewest_candidates_for_their_bucket_k(j, candidates, monkeypatch):
    only_j = tuple(0.0 if i == j else math.inf for i in range(1, 17))
    monkeypatch.setattr("jax_rtopk._plan.STAGE1", only_j)
    plan = plan_buckets(16384, 128, recall_target=0.95)
    assert plan.bucket_k == j
    assert plan.num_buckets * j == candidates


@pytest.mark.parametrize(("n", "k"), [(300, 20), (257, 31), (200, 199), (64, 3), (90, 1)])
@pytest.mark.parametrize("target", [0.3, 0.9, 0.99, 1.0])
def test_no_plan_is_cheaper(n, k, target):
    plan = plan_buckets(n, k, recall_target=target)
    assert plan.expected_recall == expected_recall(n, k, *plan[:2]) >= target
    cheapest = min(
        plan_cost(n, k, b, j)
        for b in range(1, n + 1)
        for j in range(-(-k // b), min(n // b, len(STAGE1)) + 1)
        if expected_recall(n, k, b, j) >= target
    )
    assert plan_cost(n, k, *plan[:2]) == cheapest


def test_exact_plans():
    assert plan_buckets(16384, 128, recall_target=1) == (16384, 1, 1.0)
    assert plan_buckets(100, 99, recall_target=0.99) == (100, 1, 1.0)  # nothing else is cheaper
    assert plan_buckets(1, 1) == (1, 1, 1.0)
    assert plan_buckets(2**31 - 1, 2**31 - 1) == (2**31 - 1, 1, 1.0)


# Shapes of which the search takes all maxima, samples, or has one of each element; k below and above n / 2.
SEARCHES = [
    (20, 7),
    (40, 13),
    (1000, 1),
    (64, 8),
    (128, 16),
    (256, 32),
    (256, 64),
    (300, 50),
    (256, 160),
    (1000, 64),
    (2048, 400),
]


# Not what is correlated, which is in no random order, nor where the k-th largest is near or among a ReLU's zeros.
EARLY_STOPPED = [
    (n, k, kind) for n, k in SEARCHES for kind in KINDS if kind != "correlated 0.9" and (kind != "ReLU" or k <= n / 4)
]


@pytest.mark.parametrize(("n", "k", "kind"), EARLY_STOPPED)
def test_early_stopping(n, k, kind):
    rows = 400_000 // n
    x = make_rows(kind, rows, n)
    search = search_spec.Search(float32_keys(x), k, item_bytes=4)
    for passes in (1, 2, 3, 4):
        search.run(passes)
        shares = share_found(x, search.selected(), k)
        # 4 standard errors, of these rows and of as many as were simulated.
        tolerance = 4 * shares.std() * math.sqrt(1 / rows + 1 / 8192) + 1e-12
        if passes > 2 or (passes == 2 and (kind != "Cauchy" or k > n / 2)):
            tolerance += 0.007  # as documented: where pivots go by values, and keys are not logistic
        assert abs(shares.mean() - expected_recall_early_stop(n, k, passes)) <= tolerance, passes


def test_the_first_pass_where_nearly_all_are_wanted():
    """The search samples one element of each group, in front in the row, and so selects some by index too often."""
    x = make_rows("uniform", 8000, 50)
    search = search_spec.Search(float32_keys(x), 49, item_bytes=4)
    search.run(1)
    share = share_found(x, search.selected(), 49).mean()
    assert expected_recall_early_stop(50, 49, 1) == pytest.approx(share, abs=0.0015)  # .0012 and simulation


def test_early_stopping_knows_the_plan_of_the_search():
    rng = np.random.default_rng(0)
    for n in [*range(2, 70), *rng.integers(70, 5000, 300)]:
        k = int(rng.integers(1, n))
        ours, plan = SearchPlan.make(int(n), k), search_spec.SearchPlan.make(int(n), k, item_bytes=4)
        group, sampled = search_spec.groups_of(plan)
        np.testing.assert_array_equal(ours.sizes, np.bincount(group[sampled]))
        for field in ("rank", "spread", "slope"):
            assert getattr(ours, field) == pytest.approx(float(getattr(plan, field)), rel=1e-6), (n, k, field)


def test_early_stopping_ends():
    assert expected_recall_early_stop(256, 256, 1) == 1
    assert expected_recall_early_stop(256, 32, None) == 1
    assert expected_recall_early_stop(256, 32, 10**9) == pytest.approx(1, abs=1e-6)
    assert expected_recall_early_stop(2**31 - 1, 2**20, 1) == pytest.approx(
        0.9, abs=0.02
    )  # as at any n with this k / n
    assert expected_recall_early_stop(256, 32, 2) == expected_recall_early_stop(256, 32, 2)


PLAN = "The nearest valid plan is num_buckets={}, bucket_k={}"

# arguments of expected_recall -> error, what the message must give: the rule, what was got, the fix.
BAD_PLANS = {
    "float n": ((10.0, 2, 2), TypeError, "n must be a static Python int, got 10.0", "int()"),
    "no elements": ((0, 1, 1), ValueError, "n must be between 1 and 2**31 - 1", "got 0"),
    "long row": ((2**31, 1, 1), ValueError, "n must be between 1 and 2**31 - 1", "got 2147483648"),
    "k = 0": ((10, 0, 2), ValueError, "k must be between 1 and n=10", "got 0"),
    "large k": ((10, 11, 2), ValueError, "k must be between 1 and n=10, got 11", "min(k, n)"),
    "bool": ((10, 3, True), TypeError, "num_buckets must be a static Python int, got the bool True", "int(True)"),
    "float bucket_k": ((10, 3, 2, 2.0), TypeError, "bucket_k must be a static Python int, got 2.0", "int()"),
    "no buckets": ((10, 3, 0), ValueError, "num_buckets must be between 1 and n=10", PLAN.format(1, 3)),
    "empty buckets": (
        (10, 3, 11),
        ValueError,
        "between 1 and n=10, as no bucket may be empty, got 11",
        PLAN.format(10, 1),
    ),
    "nothing kept": ((10, 3, 5, 0), ValueError, "bucket_k must be between 1 and n // num_buckets=2", PLAN.format(5, 1)),
    "small buckets": ((1024, 64, 512, 4), ValueError, "num_buckets=2, the size of the smallest", PLAN.format(512, 2)),
    "ragged": ((1000, 8, 300, 4), ValueError, "n // num_buckets=3, the size", PLAN.format(250, 4)),
    "too few kept": ((1024, 64, 32), ValueError, "must be at least k=64, got 32 * 1 = 32", PLAN.format(32, 2)),
    "one bucket short": ((1024, 64, 63), ValueError, "must be at least k=64, got 63 * 1 = 63", PLAN.format(64, 1)),
    "all wanted": ((10, 10, 4, 3), ValueError, "bucket_k must be between 1 and n // num_buckets=2", PLAN.format(10, 1)),
}


@pytest.mark.parametrize("function", [expected_recall, recall_variance])
@pytest.mark.parametrize(("arguments", "error", "rule", "fix"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_bad_plans(function, arguments, error, rule, fix):
    with pytest.raises(error) as caught:
        function(*arguments)
    message = str(caught.value)
    assert message.startswith(f"{function.__name__}: ")
    assert rule in message
    assert fix in message


def test_nearest_plans_are_valid():
    for n, k in product((1, 2, 5, 10, 12, 97), repeat=2):
        for b, j in product((-3, 0, 1, 2, 3, 7, 50, 200), repeat=2):
            if k > n:
                continue
            try:
                expected_recall(n, k, b, j)
            except ValueError as error:
                nearest = [
                    int(part.split("=")[1]) for part in str(error).split("plan is ")[1].split(";")[0].split(", ")
                ]
                expected_recall(n, k, *nearest)


@pytest.mark.parametrize("target", [95, 0, -0.5, 1.001, math.nan])
def test_recall_targets_are_shares(target):
    with pytest.raises(ValueError, match=r"plan_buckets: recall_target must be .* at most 1, got .*0.95 is 95 %"):
        plan_buckets(100, 10, recall_target=target)


@pytest.mark.parametrize("target", [None, True, "0.95", [0.95]])
def test_recall_targets_are_numbers(target):
    with pytest.raises(TypeError, match=r"plan_buckets: recall_target must be a number .* got .* Pass a Python float"):
        plan_buckets(100, 10, recall_target=target)


def test_other_bad_calls():
    with pytest.raises(ValueError, match="plan_buckets: k must be between 1 and n=10, got 11"):
        plan_buckets(10, 11)
    with pytest.raises(TypeError, match="positional"):
        plan_buckets(10, 3, 0.95)
    with pytest.raises(ValueError, match="expected_recall_early_stop: max_iter must be at least 1, got 0"):
        expected_recall_early_stop(10, 3, 0)
    with pytest.raises(TypeError, match=r"expected_recall_early_stop: max_iter must be a static Python int, got 2\.5"):
        expected_recall_early_stop(10, 3, 2.5)


def test_numpy_numbers_are_numbers():
    assert plan_buckets(np.int32(1000), np.int64(10), recall_target=np.float32(0.5)) == plan_buckets(
        1000, 10, recall_target=0.5
    )
    assert isinstance(plan_buckets(1000, 10), jax_rtopk.BucketPlan)
