"""Times jax_rtopk, lax.top_k's settings and a device copy of the same bytes on the GPU. Run by gpu_check.sh.

JAX has no device events. So what is timed is a chain: programs dispatched one after the other without waiting, and one
wait at the end. The device works through them back to back while the host is ahead, so the chain's time is the
device's. What a chain costs beside that, the first launch and the last wake-up, is the time of a program that does
nothing, and is subtracted. Programs take operands in turn that together are far larger than the L2 cache. A program
makes up to 8 calls on as many operands, so that the device does not wait for the host even where a call takes
microseconds; lax.top_k, which takes longer to compile and to run, has one call a program. Where dispatch takes most of
a chain all the same, the JSON says `may_be_host_bound`.

gpu_check.sh turns CUDA graphs off here: XLA could let the calls within one overlap. torch times the same copy with CUDA
events: where the two agree, so do the methods.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from gpu_cases import APPROX_MODE, Case
from gpu_sampling import Chain, parser, sample, time_cases
from summary import installed

import jax_rtopk

CALLS = 8
CHECKED_ELEMENTS = 1 << 16


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def make_rows(key: jax.Array, rows: int, n: int, kind: str, dtype: str) -> jax.Array:
    """The kinds of tests/row_kinds.py, made on the device."""
    if kind == "uniform":
        return jax.random.uniform(key, (rows, n)).astype(dtype)
    x = jax.random.normal(key, (rows, n))
    if kind == "varying scale":
        x *= jnp.exp(2 * jax.random.normal(jax.random.fold_in(key, 1), (rows, 1)))
    return (jnp.maximum(x, 0) if kind == "ReLU" else x).astype(dtype)


@cache
def overhead() -> float:
    """Seconds of a program that does nothing, from dispatch until it is known to be done."""
    nothing, x = jax.jit(lambda x: x + 1), jnp.zeros(())
    samples = []
    for _ in range(200):
        start = time.perf_counter()
        nothing(x).block_until_ready()
        samples.append(time.perf_counter() - start)
    return float(np.median(samples))


class Programs:
    """Programs of one function, each of which calls it on a few of the operands."""

    def __init__(self, function: Callable[[jax.Array], object], operands: Sequence[jax.Array], calls: int = CALLS):
        self.calls = min(calls, len(operands))
        self.turns = [operands[i : i + self.calls] for i in range(0, len(operands), self.calls)]
        self.program = jax.jit(lambda *xs: [function(x) for x in xs])

    def compile(self) -> None:
        """Compiles ahead of the first run. What goes wrong goes wrong again when that comes, and is reported then."""
        with contextlib.suppress(Exception):
            self.program.lower(*self.turns[0]).compile()

    def method(self) -> str:
        """What XLA makes of lax.top_k: a kernel for top-k (its own, or RAFT's) or a sort of everything."""
        return "top-k" if "TopK" in self.program.lower(*self.turns[0]).compile().as_text() else "sort"

    def run(self, programs: int) -> tuple[float, float]:
        """What `Chain` wants."""
        start = time.perf_counter()
        for i in range(programs):
            result = self.program(*self.turns[i % len(self.turns)])
        dispatched = time.perf_counter()
        jax.block_until_ready(result)  # the last one's: a device runs its programs in order
        return max(time.perf_counter() - start - overhead(), 1e-9), dispatched - start


def ours(case: Case, mode: str) -> Callable[[jax.Array], jax_rtopk.TopK]:
    if mode.startswith("recall="):
        return partial(jax_rtopk.approx_topk, k=case.k, recall_target=float(mode.removeprefix("recall=")))
    passes = int(mode.removeprefix("max_iter=")) if mode.startswith("max_iter=") else None
    return partial(jax_rtopk.topk, k=case.k, sorted=mode == "sorted", max_iter=passes)


def is_right(case: Case, mode: str, x: jax.Array, result: jax_rtopk.TopK) -> bool:
    """Whether the first rows' answers are exact or, where stopped early, valid."""
    some = max(1, min(case.rows, CHECKED_ELEMENTS // case.n))
    rows, values, indices = (np.asarray(array[:some]).astype(np.float64) for array in (x, *result))
    indices = indices.astype(np.int64)
    if not np.array_equal(values, np.take_along_axis(rows, indices, 1)):
        return False
    if mode.startswith(("max_iter=", "recall=")):
        has_maximum = (indices == rows.argmax(axis=1)[:, None]).any(axis=1)
        return bool((np.diff(np.sort(indices, axis=1), axis=1) > 0).all() and has_maximum.all())
    expected = np.argsort(-rows, axis=1, kind="stable")[:, : case.k]
    return np.array_equal(indices, expected if mode == "sorted" else np.sort(expected, axis=1))


def programs_of(case: Case, operands: Sequence[jax.Array], keys: Sequence[jax.Array]) -> dict[str, Programs]:
    """All sides by name: ours in the case's modes, JAX's own, the copy."""
    found = {mode: Programs(ours(case, mode), operands) for mode in case.modes}
    found["lax.top_k"] = Programs(partial(jax.lax.top_k, k=case.k), operands, calls=1)
    if "is_stable" in inspect.signature(jax.lax.top_k).parameters:
        unstable = partial(jax.lax.top_k, k=case.k, is_stable=False)
        found["lax.top_k, is_stable=False"] = Programs(unstable, operands, calls=1)
    if APPROX_MODE in case.modes:
        target = float(APPROX_MODE.removeprefix("recall="))
        found["approx_max_k"] = Programs(
            partial(jax.lax.approx_max_k, k=case.k, recall_target=target), operands, calls=1
        )
    # A copy reads and writes each of its bytes.
    copied = [jax.random.bits(key, (case.moved_bytes // 8,)) for key in keys]
    return found | {"copy": Programs(jnp.copy, copied)}


def time_case(case: Case, arguments: argparse.Namespace) -> dict[str, dict]:
    key = jax.random.key(0, impl="rbg")  # the fastest to compile and to run
    keys = [jax.random.fold_in(key, i) for i in range(2 if arguments.rehearse else case.buffers)]
    operands = [make_rows(key, case.rows, case.n, case.kind, case.dtype) for key in keys]
    if arguments.only_lax:
        sides = {arguments.only_lax: Programs(partial(jax.lax.top_k, k=case.k), operands, calls=1)}
    else:
        sides = programs_of(case, operands, keys)
    with ThreadPoolExecutor() as pool:  # compiling takes longest
        list(pool.map(Programs.compile, sides.values()))
    results = sample({name: Chain(side.run, side.calls) for name, side in sides.items()})
    for name, side in sides.items():
        if name.startswith("lax") and "error" not in results[name]:
            results[name]["method"] = side.method()
    for mode in case.modes:
        if mode in sides and "error" not in results[mode]:
            first = sides[mode].program(*sides[mode].turns[0])[0]
            results[mode] = results[mode] if is_right(case, mode, operands[0], first) else {"error": "WRONG ANSWER"}
    return results


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only-lax", metavar="NAME", help="time lax.top_k alone, under this name: XLA_FLAGS differ")
    arguments = options.parse_args()
    device = jax.devices()[0]
    if not arguments.rehearse:
        assert device.platform == "gpu", f"no GPU for JAX, but {device}"
    about = {
        "device": device.device_kind,
        "versions": installed("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "jax_rtopk", "numpy"),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "overhead_us": round(1e6 * overhead(), 1),
    }
    done = time_cases(arguments, about, time_case)
    failures = [case["name"] for case in done if any("error" in case["sides"].get(mode, {}) for mode in case["modes"])]
    print(f"wrong answers or errors of ours: {'; '.join(failures) or 'none'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
