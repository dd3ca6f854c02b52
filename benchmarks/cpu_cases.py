"""What is timed on the CPU: shapes and modes, and the sides that take turns at each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from plotting import ROOT
from timing import Side, blocking

import jax_rtopk

sys.path.insert(0, str(ROOT / "tests"))
from row_kinds import make_rows

try:
    import torch
except ImportError:
    torch = None

OURS, LAX, FLOOR = "jax_rtopk", "lax.top_k", "read floor"


@dataclass(frozen=True)
class Case:
    """A shape with its k, dtype, kind of rows, and what is to be done."""

    rows: int
    n: int
    k: int
    mode: str = "sorted"  # "sorted", "unsorted", "sparsify" or "max_iter=<passes>" (unsorted)
    dtype: str = "float32"
    kind: str = "normal"

    @property
    def name(self) -> str:
        """For people: what differs from plain normal float32 rows is said."""
        extra = [text for text, default in ((self.dtype, "float32"), (self.kind, "normal")) if text != default]
        return ", ".join([f"{self.rows}x{self.n}, k={self.k}", *extra, self.mode])

    def operand(self) -> np.ndarray:
        """The rows [rows, n]."""
        if self.dtype.startswith("int"):
            info = np.iinfo(self.dtype)
            return np.random.default_rng(0).integers(info.min, info.max, (self.rows, self.n), self.dtype, endpoint=True)
        return make_rows(self.kind, self.rows, self.n).astype(jnp.dtype(self.dtype))


_WIDE = Case(65536, 256, 32)
TABLE = (
    _WIDE,
    replace(_WIDE, mode="unsorted"),
    replace(_WIDE, mode="max_iter=2"),
    replace(_WIDE, mode="sparsify"),
    replace(_WIDE, kind="varying scale"),
    replace(_WIDE, kind="ReLU"),
    Case(262144, 64, 8),
    Case(16384, 1024, 64),
    Case(4096, 4096, 64),
    Case(1, 4194304, 64),
    Case(16384, 256, 32, dtype="bfloat16"),
    Case(2048, 1024, 64, dtype="int32"),
    Case(8, 8, 2),
)
SWEEP_N = tuple(Case(2**22 // n, n, 32) for n in (64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536))
SWEEP_K = tuple(Case(4096, 1024, k) for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
SCALING = tuple(case for case in TABLE if case.rows * case.n >= 2**22)


def _ours(case: Case) -> Callable[[jax.Array], object]:
    if case.mode == "sparsify":
        return partial(jax_rtopk.topk_sparsify, k=case.k)
    if case.mode == "sorted":
        return partial(jax_rtopk.topk, k=case.k)
    passes = int(case.mode.removeprefix("max_iter=")) if case.mode.startswith("max_iter=") else None
    return partial(jax_rtopk.topk, k=case.k, sorted=False, max_iter=passes)


def _lax_sparsify(x: jax.Array, k: int) -> jax.Array:
    values, indices = jax.lax.top_k(x, k)
    return jnp.put_along_axis(jnp.zeros_like(x), indices, values, axis=-1, inplace=False)


def sides(case: Case) -> dict[str, Side]:
    """Every implementation that can do the case, by name, and the read (or, for sparsify, read and write) floor."""
    data = case.operand()
    x = jax.device_put(data)
    sparsify = case.mode == "sparsify"
    _check(case, x)
    found: dict[str, Side] = {
        OURS: blocking(_ours(case), x),
        LAX: blocking(partial(_lax_sparsify if sparsify else jax.lax.top_k, k=case.k), x),
        FLOOR: blocking((lambda x: x * 1.5) if sparsify else (lambda x: jnp.max(x, axis=-1)), x),
    }
    if not sparsify and case.dtype != "bfloat16":
        found["np.argpartition"] = lambda: np.argpartition(data, case.n - case.k, axis=-1)
    if not sparsify and torch is not None:
        tensor = (
            torch.from_numpy(data.astype("float32")).bfloat16() if case.dtype == "bfloat16" else torch.from_numpy(data)
        )
        found["torch.topk sorted"] = lambda: torch.topk(tensor, case.k)
        found["torch.topk unsorted"] = lambda: torch.topk(tensor, case.k, sorted=False)
    return found


def _check(case: Case, x: jax.Array) -> None:
    """What is timed must be right: the exact modes against lax.top_k."""
    if case.mode == "sparsify":
        assert (_ours(case)(x) == _lax_sparsify(x, case.k)).all()
    elif not case.mode.startswith("max_iter="):
        _, expected = jax.lax.top_k(x, case.k)
        _, indices = _ours(case)(x)
        assert (indices == (expected if case.mode == "sorted" else jnp.sort(expected))).all()
