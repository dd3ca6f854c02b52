"""What the published RTop-K kernel selects, in numpy, for comparison.

Written from the description in the paper (arXiv 2409.00822) and from how its CUDA kernel behaves with early stopping:
a bisection between the row's smallest and largest *value*, which counts the elements at or above the middle.
`max_iter=t` halves the range at most t times, so the kernel counts t+1 times: the last count is not used to halve the
range, its middle is the threshold. Emission takes elements at or above the threshold by ascending index, then, if they
are fewer than k, elements between the lower end and the threshold by ascending index.

Finite float32 rows only: infinities and NaN defeat the published kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def _first(mask: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The first `room` (one number for each row) True elements of each row."""
    return mask & (np.cumsum(mask, axis=1) <= room[:, None])


def selections(x: np.ndarray, k: int, passes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What 1, 2, ... `passes` counting passes select (max_iter = passes - 1).

    Yields the mask of selected elements and how many passes each row has needed so far.
    """
    rows = len(x)
    low, high = x.min(axis=1), x.max(axis=1)
    middle = (low + high) / np.float32(2)
    live = np.ones(rows, bool)
    exhausted = np.zeros(rows, bool)  # no float lies between the ends
    counted = np.zeros(rows, int)
    for _ in range(passes):
        count = (x >= middle[:, None]).sum(axis=1)
        counted += live
        threshold = np.where(exhausted, high, middle)
        reached = x >= threshold[:, None]
        first = _first(reached, np.full(rows, k))
        rest = (x >= low[:, None]) & ~reached
        yield first | _first(rest, k - first.sum(axis=1)), counted.copy()

        live &= count != k
        high = np.where(live & (count < k), middle, high)
        low = np.where(live & (count > k), middle, low)
        halved = (low + high) / np.float32(2)
        exhausted |= live & ((halved == low) | (halved == high))
        live &= ~exhausted
        middle = np.where(live, halved, middle)
