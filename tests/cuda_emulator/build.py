"""Builds the CUDA kernels for the CPU: the sources of cuda/, compiled by g++ against the emulator of this folder.

Only g++ and an installed jaxlib (for the FFI headers) are needed. What was built is kept beside this file, under
names made of the contents of all sources, so that a second call is free.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import jax.ffi

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILT = HERE / "build"
# `#pragma unroll` is nvcc's.
WARNINGS = ("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror")
FLAGS = ("-x", "c++", "-std=c++20", "-DRTOPK_CUDA_EMULATOR", "-O1", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden")


class EmulatedModule:
    """What the native module `_cuda` offers, run by the emulator on the CPU."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def targets(self) -> dict[str, object]:
        """FFI target names and the capsules to register for them, for the platform `cpu`."""
        selections = ("topk", "bucketed", "mask", "sparsify")
        of_long_rows = ("topk_in_parts", "topk_by_digits", "mask_by_digits", "sparsify_by_digits")
        sparse = ("gather_sum", "sampled_dot", "scatter_add", "neighbor_sum", "neighbor_dot", "edge_dot")
        return {
            f"jax_rtopk_{name}": jax.ffi.pycapsule(getattr(self._library, f"jax_rtopk_emulated_{name}"))
            for name in selections + of_long_rows + sparse
        }

    SCATTERS_IN_ORDER = True  # as the native module

    # As the functions of the native module.

    def topk_parts(self, rows: int, n: int, k: int, item_bytes: int) -> int:
        return int(self._library.jax_rtopk_topk_parts(rows, n, k, item_bytes))

    def topk_in_parts_workspace(self, parts: int, k: int, item_bytes: int) -> int:
        return int(self._library.jax_rtopk_topk_in_parts_workspace(parts, k, item_bytes))

    def by_digits(self, rows: int, n: int, item_bytes: int) -> bool:
        return bool(self._library.jax_rtopk_by_digits(rows, n, item_bytes))

    def by_digits_workspace(self, item_bytes: int) -> int:
        return int(self._library.jax_rtopk_by_digits_workspace(item_bytes))

    def bucketed_workspace(self, candidates: int, k: int, item_bytes: int) -> int:
        return int(self._library.jax_rtopk_bucketed_workspace(candidates, k, item_bytes))


@cache
def load() -> EmulatedModule:
    """The emulated CUDA back end."""
    sources = [
        *sorted((ROOT / "cuda").glob("*.cu")),
        *sorted((ROOT / "cuda").glob("*handlers.cc")),
        HERE / "targets.cc",
    ]
    library = ctypes.CDLL(str(_library("cuda_emulated", sources)))
    for function, sizes in (
        (library.jax_rtopk_topk_parts, 3),
        (library.jax_rtopk_topk_in_parts_workspace, 2),
        (library.jax_rtopk_by_digits, 2),
        (library.jax_rtopk_by_digits_workspace, 0),
        (library.jax_rtopk_bucketed_workspace, 2),
    ):
        function.restype = ctypes.c_int64
        function.argtypes = *[ctypes.c_int64] * sizes, ctypes.c_int
    return EmulatedModule(library)


@cache
def load_faults() -> ctypes.CDLL:
    """The kernels with planted mistakes."""
    library = ctypes.CDLL(str(_library("faults", [HERE / "faults.cc"])))
    library.jax_rtopk_run_fault.restype = ctypes.c_char_p
    return library


def _library(name: str, sources: list[Path]) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("g++")
    if not compiler:
        raise RuntimeError("the emulated CUDA back end needs g++ (or CXX set to a C++20 compiler)")
    BUILT.mkdir(exist_ok=True)
    with open(BUILT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test process may be building the same
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda source: _object(compiler, source), sources))
        return _once(name, ".so", repr(objects), [compiler, "-shared", *map(str, objects)])


def _object(compiler: str, source: Path) -> Path:
    includes = [f"-I{ROOT}", f"-I{HERE}"]
    fingerprint = _fingerprint()
    if source.suffix != ".cu":  # only kernels know nothing of XLA, and serve any version
        includes += ["-isystem", jax.ffi.include_dir()]
        fingerprint += jax.__version__
    return _once(source.name, ".o", fingerprint, [compiler, *FLAGS, *WARNINGS, *includes, "-c", str(source)])


def _once(name: str, suffix: str, fingerprint: str, command: list[str]) -> Path:
    """The file that `command` makes, kept under a name made of `fingerprint` and of it."""
    digest = hashlib.sha256(repr((fingerprint, command)).encode()).hexdigest()[:16]
    output = BUILT / f"{name}-{digest}{suffix}"
    if not output.exists():
        with tempfile.TemporaryDirectory(dir=BUILT) as scratch:
            made = f"{scratch}/{output.name}"
            done = subprocess.run([*command, "-o", made], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-6000:]}")
            for old in BUILT.glob(f"{name}-*{suffix}"):
                old.unlink()
            os.replace(made, output)  # at once: a process that is stopped must not leave half a file
    return output


@cache
def _fingerprint() -> str:
    digest = hashlib.sha256()
    for folder in (ROOT / "native", ROOT / "ffi", ROOT / "cuda", HERE):
        for path in sorted(p for p in folder.iterdir() if p.suffix in {".h", ".cuh", ".cu", ".cc"}):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
