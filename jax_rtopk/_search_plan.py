"""What the early-stopped search of float32 rows knows before it has seen a row."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RESOLVED = 64
_GROUPS = 32
_ITEM_BYTES = 4


class SearchPlan(NamedTuple):
    """SearchPlan of native/search_plan.h, where the terms are explained, as far as the recall depends on it."""

    n: int
    k: int
    sizes: NDArray[np.int64]  # of each group, as far as it is sampled
    rank: float
    spread: float
    slope: float
    front: float = 1.0  # the part of the row, from its beginning, in which samples are taken

    @staticmethod
    def make(n: int, k: int) -> SearchPlan:
        groups = min(n, _GROUPS)
        chunk = 16 // _ITEM_BYTES
        while chunk > 1 and chunk * groups > n:
            chunk //= 2
        sizes = _group_sizes(n, groups, chunk)
        if groups == n:
            return SearchPlan(n, k, sizes, k - 0.5, 0.0, 1.0)
        exceed = k / n
        size, front = n / groups, 1.0
        if (1 - exceed) ** size < 0.2:
            size = 1.0
            while (1 - exceed) ** (2 * size) >= 0.2:
                size *= 2
            sizes = np.full(groups, int(size))
            step = 1
            while 2 * step * int(size) <= n // groups:
                step *= 2
            front = ((int(size) - 1) * step // chunk + 1) * chunk * groups / n
        spared = (1 - exceed) ** size
        both_spared = spared**2 * (1 - size * k / ((n - size) * (n - k))) ** size
        variance = groups * spared + groups * (groups - 1) * both_spared - (groups * spared) ** 2
        rank = math.floor(groups * (1 - spared) * 1024 + 0.5) / 1024
        slope = groups * size / n * (1 - exceed) ** (size - 1)
        deviation = math.sqrt(max(variance, 0.0))
        spread = max(0.9 * deviation, min(2.5 * deviation, 0.3 * RESOLVED * slope))
        return SearchPlan(n, k, sizes, rank, math.floor(spread * 1024 + 0.5) / 1024, slope, front)


def _group_sizes(n: int, groups: int, chunk: int) -> NDArray[np.int64]:
    sizes = np.zeros(groups, np.int64)
    for place in range(chunk):  # of each chunk's elements, the one at this place
        chunks = -(-(n - place) // chunk)
        turns, rest = divmod(chunks, groups)
        sizes += turns + ((np.arange(groups) - groups // chunk * place) % groups < rest)
    return sizes
