"""How much of the true top k an early-stopped search finds, on kinds of rows that practice knows.

The numpy specification is what is measured here; other tests hold the native back ends to it bit for bit.
"""

import numpy as np
import pytest
from row_kinds import BAD_KINDS, KINDS, float32_keys, make_rows, share_found
from rtopk_published import selections
from search_spec import Search

ELEMENTS = 1 << 20
PASSES = 8

# Least share of the true top k after 1, 2, 3, 4 passes, on every kind of rows.
FLOORS = {
    (256, 32): (0.895, 0.958, 0.979, 0.986),
    (256, 64): (0.88, 0.945, 0.975, 0.987),
    (1024, 64): (0.86, 0.94, 0.968, 0.98),
}


def early_stopped(x, k):
    """The masks that the specification selects after 1, 2, ... passes."""
    search = Search(float32_keys(x), k, item_bytes=4)
    for passes in range(1, PASSES + 1):
        search.run(passes)
        yield search.selected()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), FLOORS)
def test_share_of_the_true_top_k(n, k, kind):
    x = make_rows(kind, ELEMENTS // n, n)
    published = selections(x, k, PASSES)
    for passes, (ours, (theirs, _)) in enumerate(zip(early_stopped(x, k), published, strict=True), start=1):
        share = share_found(x, ours, k).mean()
        assert share >= share_found(x, theirs, k).mean(), f"the published kernel finds more in {passes} passes"
        if passes <= len(FLOORS[n, k]):
            assert share >= FLOORS[n, k][passes - 1], f"in {passes} passes"


# At k = n / 2 the published kernel finds more of uniform rows in one pass: its first guess, the middle of the range,
# happens to be the answer.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), [(8, 3), (64, 8), (100, 16), (256, 16), (256, 230), (1000, 1), (4096, 64)])
def test_at_least_the_published_share_at_other_shapes(n, k, kind):
    x = make_rows(kind, 400, n)
    published = selections(x, k, PASSES)
    for ours, (theirs, _) in zip(early_stopped(x, k), published, strict=True):
        assert share_found(x, ours, k).mean() >= share_found(x, theirs, k).mean()


@pytest.mark.parametrize("kind", [*KINDS, *BAD_KINDS])
@pytest.mark.parametrize(("n", "k"), FLOORS)
def test_k_are_selected_and_the_row_maximum_is_never_lost(n, k, kind):
    x = make_rows(kind, 1000, n)
    first_maximum = x.argmax(axis=1)
    for selected in early_stopped(x, k):
        assert (selected.sum(axis=1) == k).all()
        assert selected[np.arange(len(x)), first_maximum].all()


@pytest.mark.parametrize("kind", [*KINDS, *BAD_KINDS])
@pytest.mark.parametrize(("n", "k"), [*FLOORS, (8, 3), (64, 8), (256, 230)])
def test_exact_when_run_to_the_end(n, k, kind):
    x = make_rows(kind, 500, n)
    search = Search(float32_keys(x), k, item_bytes=4)
    search.run(200)
    assert search.done.all()
    top = np.argsort(-x, axis=1, kind="stable")[:, :k]
    expected = np.zeros(x.shape, bool)
    np.put_along_axis(expected, top, values=True, axis=1)
    np.testing.assert_array_equal(search.selected(), expected)
