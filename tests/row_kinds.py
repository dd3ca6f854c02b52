"""Kinds of rows that top-k meets in practice, for the tests and the benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rows = Callable[[np.random.Generator, int, int], np.ndarray]


def _normal(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    return rng.standard_normal((rows, n))


def _softmax(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    weights = np.exp(3 * rng.standard_normal((rows, n)))
    return weights / weights.sum(axis=1, keepdims=True)


def _correlated(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    """Neighbours correlate by 0.9 (a first-order autoregressive process)."""
    x = rng.standard_normal((rows, n))
    for i in range(1, n):
        x[:, i] = 0.9 * x[:, i - 1] + np.sqrt(1 - 0.9**2) * x[:, i]
    return x


def _channels(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    """Four interleaved channels, each with an offset of its own."""
    return _normal(rng, rows, n) + 3 * np.tile(rng.standard_normal((rows, 4)), (1, n // 4 + 1))[:, :n]


def _periodic(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    """A noisy wave whose period is that of the search's groups."""
    return np.sin(2 * np.pi * (np.arange(n) / 32 + rng.random((rows, 1)))) + 0.1 * _normal(rng, rows, n)


# The kinds on which the early-stopped search promises its share of the top k.
KINDS: dict[str, Rows] = {
    "normal": _normal,
    "uniform": lambda rng, rows, n: rng.random((rows, n)),
    "lognormal": lambda rng, rows, n: np.exp(_normal(rng, rows, n)),
    "ReLU": lambda rng, rows, n: np.maximum(_normal(rng, rows, n), 0),
    "Cauchy": lambda rng, rows, n: rng.standard_cauchy((rows, n)),
    "softmax": _softmax,
    "varying scale": lambda rng, rows, n: _normal(rng, rows, n) * np.exp(2 * rng.standard_normal((rows, 1))),
    "bimodal": lambda rng, rows, n: _normal(rng, rows, n) + 20 * (rng.random((rows, n)) < 0.1),
    "correlated 0.9": _correlated,
}

# The search's bad cases, where an element's place in the row tells of its value. They cost recall at a given number of
# passes, never exactness.
BAD_KINDS: dict[str, Rows] = {
    "ascending": lambda rng, rows, n: np.sort(_normal(rng, rows, n), axis=1),
    "4 channels": _channels,
    "period of 32": _periodic,
}


def make_rows(kind: str, rows: int, n: int, seed: int = 0) -> np.ndarray:
    """Float32 rows [rows, n] of a kind in KINDS or BAD_KINDS; the same for the same arguments."""
    rng = np.random.default_rng([seed, n, *kind.encode()])
    return (KINDS | BAD_KINDS)[kind](rng, rows, n).astype(np.float32)


def float32_keys(x: np.ndarray) -> np.ndarray:
    """The ordered keys of finite float32 values (what native/ordered_key.h makes of them)."""
    bits = x.view(np.uint32)
    return np.where(bits >> 31 != 0, ~bits, bits | np.uint32(1 << 31))


def share_found(x: np.ndarray, selected: np.ndarray, k: int) -> np.ndarray:
    """Of each row's k largest values, the share that a mask of at most k selected elements holds.

    Equal values stand in for each other.
    """
    kth = np.partition(x, x.shape[1] - k, axis=1)[:, x.shape[1] - k]
    return (selected & (x >= kth[:, None])).sum(axis=1) / k
