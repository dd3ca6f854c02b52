"""`python -m jax_rtopk`: what is installed and used, whether it answers correctly here, and how fast it is."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jax_rtopk import __version__, _native, approx_topk, topk, topk_mask, topk_sparsify

# rows, n, k
_TIMED_SHAPES = ((16384, 64, 8), (16384, 256, 32), (4096, 1024, 32), (512, 8192, 64), (1, 1 << 20, 64))
_COLUMNS = ("jnp.max", "lax.top_k", "topk", "unsorted", "2 passes", "sparsify")
_CHECKED_SHAPES = ((33, 100, 16), (16, 256, 32), (5, 1024, 1), (3, 5000, 700))
_CHECKED_DTYPES = ("float32", "bfloat16", "int32")


def main(arguments: Sequence[str] = ()) -> int:
    """Prints the report; returns 1 if an answer was wrong."""
    argparse.ArgumentParser(prog="python -m jax_rtopk", description=(__doc__ or "").partition(": ")[2]).parse_args(
        arguments
    )
    print("\n".join(describe()), end="\n\n")
    if missing := _native.missing_because():
        print(f"no native code, so nothing to check or time: {missing}")
        return 1
    failures = self_check()
    print("\n".join(failures) or "self-check: every answer equals the pure-JAX definition's", end="\n\n", flush=True)
    print("microseconds a row, float32, exact unless it says otherwise; jnp.max is the time to read the rows")
    print(f"{'rows x n, k':>20} " + " ".join(f"{column:>9}" for column in _COLUMNS))
    for rows, n, k in _TIMED_SHAPES:
        times = " ".join(f"{seconds / rows * 1e6:9.3f}" for seconds in timings(rows, n, k))
        print(f"{f'{rows} x {n}, {k}':>20} {times}", flush=True)
    return 1 if failures else 0


def describe() -> list[str]:
    """Versions, what was built, and what is used on this machine."""
    used = jax.devices()[0].platform
    cpu, cuda = (_native.BACKENDS.get(name) for name in ("cpu", "cuda"))
    devices = ", ".join(sorted({device.device_kind for device in jax.devices()}))
    return [
        f"jax_rtopk {__version__}, jax {jax.__version__}, jaxlib {version('jaxlib')}, numpy {np.__version__}, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"native code for cpu:  {cpu.module.simd_level() if cpu else 'not built'}",
        f"native code for cuda: {f'compute capability {cuda.module.archs()}' if cuda else 'not built'}",
        f"default devices: {len(jax.devices())} x {used} ({devices}), where topk is "
        f"{'native' if _platform_name(used) in _native.BACKENDS else 'pure JAX'}",
    ]


def _platform_name(used: str) -> str:
    return (
        "cuda" if used == "gpu" else used
    )  # how JAX names the devices, and how the lowering rules name their platform


def self_check() -> list[str]:
    """Compares exact answers with the pure-JAX definitions', bit for bit; one line for each that differs."""
    failures = []
    for dtype in _CHECKED_DTYPES:
        for rows, n, k in _CHECKED_SHAPES:
            x = (10 * jax.random.normal(jax.random.key(0), (rows, n))).astype(dtype)  # with ties, but for float32
            got, want = (jax.jit(partial(_answers, k=k, implementation=name))(x) for name in (None, "xla"))
            failures += [
                f"self-check: WRONG {name} of {dtype}[{rows},{n}], k={k}"
                for name in want
                if np.asarray(got[name]).tobytes() != np.asarray(want[name]).tobytes()
            ]
    return failures


def _answers(x: jax.Array, k: int, implementation: Literal["xla"] | None) -> dict[str, jax.Array]:
    values, indices = topk(x, k, implementation=implementation)
    through_buckets = partial(approx_topk, x, k, num_buckets=x.shape[1] // 4, implementation=implementation)
    return {
        "values": values,
        "indices": indices,
        "smallest, unsorted": topk(x, k, largest=False, sorted=False, implementation=implementation).indices,
        "mask": topk_mask(x, k, implementation=implementation),
        "sparsify, by magnitude": topk_sparsify(x, k, by_magnitude=True, implementation=implementation),
        "buckets that keep one": through_buckets(bucket_k=1).indices,
        "buckets that keep two": through_buckets(bucket_k=2).indices,
    }


def timings(rows: int, n: int, k: int) -> list[float]:
    """Seconds of each column of the table."""
    x = jax.random.normal(jax.random.key(0), (rows, n))
    functions: tuple[Callable[..., Any], ...] = (
        partial(jnp.max, axis=-1),
        partial(jax.lax.top_k, k=k),
        partial(topk, k=k),
        partial(topk, k=k, sorted=False),
        partial(topk, k=k, sorted=False, max_iter=2),
        partial(topk_sparsify, k=k),
    )
    return [_seconds(jax.jit(function), x) for function in functions]


def _seconds(function: Callable[..., Any], operand: jax.Array) -> float:
    """The best of several runs: what disturbs a run can only slow it."""
    jax.block_until_ready(function(operand))
    best, until = float("inf"), time.perf_counter() + 0.2
    while time.perf_counter() < until:
        start = time.perf_counter()
        jax.block_until_ready(function(operand))
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
