"""Executed warp instructions of the CUDA kernels a row, counted by running their PTX in an interpreter.

The interpreter is no part of this project: a Python package `ptxrun` with `load(text)`, `Struct` and, of a kernel,
`launch(blocks, threads, arguments, shared_bytes)`. It counts PTX, of which the assembler makes somewhat different
machine code: compare counts with counts. Every exact answer is checked on the way.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sections import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from cuda_policy import WARP, Launch, QuickPlan, launch_of, staged_room
from row_kinds import make_rows
from search_spec import SearchPlan


@dataclass(frozen=True)
class Case:
    """Rows of n floats, at most as many as a warp holds, of which k are wanted, and how."""

    item_bytes: int  # 4: float32, 2: bfloat16
    n: int
    k: int
    max_iter: int | None = None
    is_sorted: bool = False

    @property
    def name(self) -> str:
        """As tables have it."""
        how = "exact" if self.max_iter is None else f"max_iter={self.max_iter}"
        dtype = {4: "f32", 2: "bf16"}[self.item_bytes]
        return f"{dtype} {self.n}, {self.k} {how}, {'sorted' if self.is_sorted else 'unsorted'}"


class Interpreter:
    """Runs the kernels of cuda/ as nvcc compiles them."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        self._ptxrun = importlib.import_module("ptxrun")
        self._kernels: dict[str, object] = {}

    def instructions(self, case: Case, kind: str, rows: int) -> float:
        """Warp instructions a row. One block takes all rows in turn, as the blocks of a large launch do."""
        x, bits = _rows(case, kind, rows)
        launch = launch_of(case.n, case.k, case.item_bytes, is_sorted=case.is_sorted)
        room = np.int32(staged_room(case.n, case.k, case.item_bytes, is_sorted=case.is_sorted))
        ranks = case.k * (case.k - 1) // 2
        values, indices = np.zeros((rows, case.k), bits.dtype), np.zeros((rows, case.k), np.int32)
        sink = self._ptxrun.Struct(values, indices, np.int32(case.k), room, np.bool_(case.is_sorted), np.uint32(ranks))
        arguments = [self._task(case, bits, launch), sink]
        if case.k > 1:
            arguments.append(np.int32(launch.team_bytes))
        stats = self._kernel(launch, case.item_bytes).launch(
            1, launch.threads, arguments, shared_bytes=launch.shared_bytes
        )
        if case.max_iter is None:
            expected = np.argsort(-x, axis=1, kind="stable")[:, : case.k]
            expected = expected if case.is_sorted else np.sort(expected, axis=1)
            np.testing.assert_array_equal(indices, expected)
            np.testing.assert_array_equal(values, np.take_along_axis(bits, expected, axis=1))
        return stats.warp_instructions / rows

    def _task(self, case: Case, bits: np.ndarray, launch: Launch) -> object:
        """The kernels' Task."""
        plan = SearchPlan.make(case.n, case.k, case.item_bytes)
        integers = (plan.n, plan.k, plan.groups, plan.chunk, plan.sampled, plan.step)
        deviation = np.float32(0)  # the last of SearchPlan; no kernel reads it
        on_host = self._ptxrun.Struct(*map(np.int32, integers), plan.rank, plan.spread, plan.slope, deviation)
        quick = QuickPlan.make(plan, WARP * launch.slots, early=case.max_iter is not None)
        quickly = self._ptxrun.Struct(
            np.int32(quick.place),
            np.int32(quick.turn),
            np.int32(quick.spare),
            np.int32(quick.stride),
            np.bool_(quick.early),
            np.int32(quick.reach),
        )
        # Of floats, the largest first.
        sign = bits.dtype.type(1 << (8 * case.item_bytes - 1))
        key_map = self._ptxrun.Struct(~sign, sign, bits.dtype.type(0))
        swift = np.bool_(case.n == launch.lanes * launch.packs * 16 // case.item_bytes)
        usual = np.bool_(swift and quick.spare > 0 and plan.sampled >= plan.n)
        packed = np.bool_(case.n * case.item_bytes % 16 == 0)
        passes = np.int32(case.max_iter or 2**31 - 1)
        return self._ptxrun.Struct(
            bits, np.int64(len(bits)), on_host, quickly, passes, packed, np.bool_(True), swift, usual, key_map
        )

    def _kernel(self, launch: Launch, item_bytes: int):
        if launch.name not in self._kernels:
            self._kernels[launch.name] = self._ptxrun.load(_ptx(launch, item_bytes)).kernel(launch.name)
        return self._kernels[launch.name]


def _rows(case: Case, kind: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Values, and their bits."""
    x = make_rows(kind, rows, case.n)
    if case.item_bytes == 4:
        return x, x.view(np.uint32)
    upper = (x.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16, rounded towards zero
    return (upper.astype(np.uint32) << 16).view(np.float32), upper


def _ptx(launch: Launch, item_bytes: int) -> str:
    """Of this one kernel: to compile and to read all of them takes minutes."""
    bits = f"uint{8 * item_bytes}_t"
    sizes = f"{launch.lanes}, {launch.packs}"
    kernel, bytes_of_team = f"first_in_warp<{bits}, {sizes}>", ""
    if launch.name.startswith("select"):
        kernel = f"select_in_warp<{bits}, {sizes}, {launch.chunks}, jax_rtopk::cuda::PairSink<{bits}>>"
        bytes_of_team = ", int"
    source = f"""#include "cuda/kernels.cuh"
        template __global__ void jax_rtopk::cuda::{kernel}(
            jax_rtopk::cuda::Task<{bits}>, jax_rtopk::cuda::PairSink<{bits}>{bytes_of_team});"""
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder) / "kernel.cu", Path(folder) / "kernel.ptx"
        path.write_text(source)
        flags = ["-arch=sm_90", "-ptx", "-std=c++20", "-O3", "--fmad=false", f"-I{ROOT}"]
        subprocess.run(["nvcc", *flags, path, "-o", target], check=True)
        return target.read_text()
