"""The early-stopped search, as an executable specification in numpy.

Every native back end must return exactly what this file returns, for every row and every `max_iter`. It is vectorised
over rows (a row's result never depends on its neighbours) and otherwise written to be read beside
`native/search_plan.h` and `native/search.h`, whose names it shares.

Keys are unsigned integers of the dtype's own width: a larger key is selected first (see `native/ordered_key.h`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import oracle

GROUPS = 32
RESOLVED = 64  # a bracket of at most so many elements is put in order without another pass over the row
F32 = np.float32


@dataclass(frozen=True)
class SearchPlan:
    """What the search knows before it has seen a row."""

    n: int
    k: int
    groups: int  # how many groups the row is cut into
    chunk: int  # consecutive elements, at most 16 bytes, that a GPU's lane holds together
    sampled: int  # elements of each group whose maximum is taken; n: all of them
    step: int  # every so many of a group's elements one is sampled
    rank: np.float32  # expected rank of the k-th largest element among the group maxima, counted from 0
    spread: np.float32  # half the distance, in ranks, between the two pivots of the first pass
    slope: np.float32  # ranks per element near the k-th largest

    @staticmethod
    def make(n: int, k: int, item_bytes: int) -> SearchPlan:
        groups = min(n, GROUPS)
        chunk = 16 // item_bytes
        while chunk > 1 and chunk * groups > n:
            chunk //= 2
        if groups == n:  # the maxima are the row itself
            return SearchPlan(n, k, groups, chunk, n, 1, F32(k - 0.5), F32(0), F32(1))
        exceed = k / n
        size, sampled, step = n / groups, n, 1
        if (1 - exceed) ** size < 0.2:  # too few maxima would fall below the threshold: sample less of each group
            size, sampled = 1.0, 1
            while (1 - exceed) ** (2 * size) >= 0.2:
                size, sampled = 2 * size, 2 * sampled
            while 2 * step * sampled <= n // groups:
                step *= 2
        spared = (1 - exceed) ** size  # a group has no element above the threshold
        both_spared = spared**2 * (1 - size * k / ((n - size) * (n - k))) ** size
        variance = groups * spared + groups * (groups - 1) * both_spared - (groups * spared) ** 2
        slope = F32(groups * size / n * (1 - exceed) ** (size - 1))
        # So far that the k-th largest lies between the pivots nearly always, if these then leave few enough elements;
        # else as far as tells most.
        deviation = math.sqrt(max(variance, 0.0))
        spread = max(0.9 * deviation, min(2.5 * deviation, 0.3 * RESOLVED * float(slope)))
        # Rounded: where the first pass counts must not hang on the last bit of a platform's pow.
        rank = math.floor(groups * (1 - spared) * 1024 + 0.5) / 1024
        spread = math.floor(spread * 1024 + 0.5) / 1024
        return SearchPlan(n, k, groups, chunk, sampled, step, F32(rank), F32(spread), slope)


def groups_of(plan: SearchPlan) -> tuple[np.ndarray, np.ndarray]:
    """The group of each element of a row, and whether the element is sampled.

    Chunks go to the groups in turn, and the elements of a chunk to groups far apart, so that neighbours, which are
    often alike, do not meet in one.
    """
    index = np.arange(plan.n)
    chunk, place = index // plan.chunk, index % plan.chunk
    group = (chunk + plan.groups // plan.chunk * place) % plan.groups
    position = chunk // plan.groups * plan.chunk + place  # in its group
    sampled = (position % plan.step == 0) & (position < plan.sampled * plan.step)
    return group, sampled


def group_maxima(keys: np.ndarray, plan: SearchPlan) -> np.ndarray:
    """The maxima of the groups' sampled elements, largest first."""
    group, sampled = groups_of(plan)
    maxima = [keys[:, (group == g) & sampled].max(axis=1) for g in range(plan.groups)]
    return np.sort(np.stack(maxima, axis=1), axis=1)[:, ::-1]


class Search:
    """Brackets the k-th largest key of each row.

    lo <= it <= last, and count(key >= lo) = c_lo >= k > c_last = count(key > last).
    """

    def __init__(self, keys: np.ndarray, k: int, item_bytes: int) -> None:
        rows, n = keys.shape
        self.keys, self.k = keys.astype(np.uint64), k
        self.plan = SearchPlan.make(n, k, item_bytes)
        self.maxima = group_maxima(self.keys, self.plan)
        self.lo = np.zeros(rows, np.uint64)
        self.last = self.keys.max(axis=1)
        self.c_lo = np.full(rows, n, np.int64)
        self.c_last = np.zeros(rows, np.int64)
        self.below = np.zeros(rows, bool)  # a count has raised lo
        self.above = np.zeros(rows, bool)  # a count has lowered last
        self.moved = np.full(rows, 3)  # which ends the last pass moved: bit 0 lo, bit 1 last
        self.rank = np.full(rows, self.plan.rank)
        self.top = self.last
        self.passes = np.zeros(rows, np.int64)
        self.needed = np.zeros(rows, np.int64)  # passes until the row was resolved

    @property
    def done(self) -> np.ndarray:
        return (self.c_lo == self.k) | (self.lo == self.last)

    @property
    def resolved(self) -> np.ndarray:
        """Exact in any case from here on: counting on, whatever max_iter says, stands for ordering the few."""
        return self.c_lo - self.c_last <= RESOLVED

    def maximum_at(self, rank: np.ndarray) -> np.ndarray:
        index = np.clip(rank, F32(0), F32(self.plan.groups - 1)).astype(np.int64)
        return np.take_along_axis(self.maxima, index[:, None], axis=1)[:, 0]

    def inside(self, pivot: np.ndarray) -> np.ndarray:
        return (pivot > self.lo) & (pivot <= self.last)

    def at_fraction(self, fraction: np.ndarray) -> np.ndarray:
        """The key at a fraction, in units of 2^-16, of the way from lo to last; lo itself excluded."""
        room = self.last - self.lo - np.uint64(1)
        f = fraction.astype(np.uint64)
        high, low = room >> np.uint64(16), room & np.uint64(0xFFFF)
        return self.lo + np.uint64(1) + high * f + (low * f >> np.uint64(16))

    def pivots(self) -> tuple[np.ndarray, np.ndarray]:
        one = np.uint64(1)
        both = self.below & self.above
        width = self.c_lo - self.c_last
        share = (self.k - self.c_last).astype(F32) / np.maximum(width, 1).astype(
            F32
        )  # of the bracket, from last downwards

        # First choice: group maxima, which are elements of the row and know its distribution.
        beyond = (self.maxima > self.last[:, None]).sum(axis=1)
        reached = (self.maxima >= self.lo[:, None]).sum(axis=1)
        between = (beyond.astype(F32) - F32(0.5)) + share * (reached - beyond + 1).astype(F32)
        rank = np.where(both, between, self.rank)
        spread = np.where(both, F32(0.5), self.plan.spread)
        maximum_low, maximum_high = self.maximum_at(rank + spread), self.maximum_at(rank - spread)

        # Second choice: interpolate on the counts, and stand a little to either side.
        middle = np.clip(((F32(1) - share) * F32(65536)).astype(np.int64), 1024, 64512)
        aside = 16384 >> ((np.frexp(np.maximum(width, 1).astype(np.float64))[1] - 1) >> 1)
        low = self.at_fraction(np.maximum(middle - aside, 512))
        high = self.at_fraction(np.minimum(middle + aside, 65024))
        # The last pass moved one end only: keys may be heaped at the other end, so ask there.
        low = np.where(self.moved == 2, self.lo + one, low)
        high = np.where(self.moved == 1, self.last, high)
        # From the eighth pass on, every other pass cuts the range of keys in three: the search ends on any row.
        cut = (self.passes >= 7) & (self.passes % 2 == 1)
        low = np.where(cut, self.at_fraction(np.full(len(low), 21845)), low)
        high = np.where(cut, self.at_fraction(np.full(len(low), 43690)), high)
        # Nothing counted below yet: gallop downwards. So many keys were met between the top and last; k wants so many
        # times the way.
        way = np.maximum(self.top - np.minimum(self.last, self.maxima[:, -1]), one)
        times = (
            np.frexp(np.maximum(self.k // np.maximum(self.c_last, 1), 1).astype(np.float64))[1].astype(np.uint64) - one
        )
        room = self.last - one
        near = np.where(way < room >> times, way << times, room)
        far = np.where(near < room >> np.uint64(2), near << np.uint64(2), room)
        low = np.where(self.below, low, self.last - far)
        high = np.where(self.below, high, self.last - near)

        low = np.where(self.inside(maximum_low), maximum_low, low)
        high = np.where(self.inside(maximum_high), maximum_high, high)
        low, high = np.minimum(low, high), np.maximum(low, high)
        # Equal pivots: count > as well as >=, which ends the search on a plateau.
        return low, np.where((low == high) & (high < self.last), high + one, high)

    def run(self, max_iter: int) -> None:
        """Runs until every row has done `max_iter` passes, or is exact."""
        while True:
            live = ~self.done & ((self.passes < max_iter) | self.resolved)
            if not live.any():
                return
            self.needed += live & ~self.resolved
            low, high = self.pivots()
            moved = np.zeros(len(low), np.int64)
            for pivot in (low, high):
                count = (self.keys >= pivot[:, None]).sum(axis=1)
                inside = live & self.inside(pivot)
                raised, lowered = inside & (count >= self.k), inside & (count < self.k)
                self.lo = np.where(raised, pivot, self.lo)
                self.c_lo = np.where(raised, count, self.c_lo)
                self.last = np.where(lowered, pivot - np.uint64(1), self.last)
                self.c_last = np.where(lowered, count, self.c_last)
                moved |= np.where(raised, 1, 0) | np.where(lowered, 2, 0)
            self.below |= live & ((moved & 1) != 0)
            self.above |= live & ((moved & 2) != 0)
            nearest = np.where(self.below, self.c_lo, self.c_last) - self.k
            self.rank = np.where(live, self.rank - self.plan.slope * nearest.astype(F32), self.rank)
            self.moved = np.where(live, moved, self.moved)
            self.passes += live

    def selected(self) -> np.ndarray:
        """The emission, as a mask: keys above the bracket, then those inside it by ascending index, k in all."""
        certain = self.keys > self.last[:, None]
        # If no count has lowered it, last is the row's maximum, a certain member: its first occurrence need not queue.
        is_top = np.arange(self.keys.shape[1]) == self.keys.argmax(axis=1)[:, None]
        certain |= is_top & (self.c_last == 0)[:, None]
        maybe = (self.keys >= self.lo[:, None]) & ~certain
        room = self.k - certain.sum(axis=1, keepdims=True)
        return certain | (maybe & (np.cumsum(maybe, axis=1) <= room))


def mask(x: np.ndarray, k: int, max_iter: int | None, **order: bool) -> np.ndarray:
    """What is selected in each row of `x` after at most `max_iter` passes (None or 0: exactly), as `oracle.mask`."""
    if not max_iter or k in (0, x.shape[1]):
        return oracle.mask(x, k, **order)
    search = Search(oracle.keys(x, **order), k, x.dtype.itemsize)
    search.run(max_iter)
    return search.selected()
