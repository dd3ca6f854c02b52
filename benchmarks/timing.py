"""Timing with sides that take turns, and what is to be said of the machine."""

from __future__ import annotations

import json
import os
import platform
import random
import time
from collections.abc import Callable
from pathlib import Path

import jax
from sections import ROOT
from summary import installed, summary

from jax_rtopk import _native

Side = Callable[[], object]
REST = 0.02  # seconds between sides: OpenMP threads of the last one still spin for a few milliseconds
SHORTEST = 2e-3  # a sample of less than this many seconds would be mostly clock


def blocking(function: Callable[[jax.Array], object], x: jax.Array) -> Side:
    """A side that compiles a function and waits for its result."""
    jitted = jax.jit(function)
    return lambda: jax.block_until_ready(jitted(x))


def take_turns(
    sides: dict[str, Side], seconds: float = 8.0, clock: Callable[[], float] = time.perf_counter
) -> dict[str, dict[str, float]]:
    """Milliseconds a call of each side: median and quartiles over rounds in which every side has a turn.

    The order within a round is random. The first call of a turn is not timed: it finds cores that the rest before it
    has put to sleep, and memory that is slow for a while. `seconds` bounds the whole, but there are at least 7 rounds.
    `clock` tells what is measured, in seconds.
    """
    calls = {}
    for name, side in sides.items():
        side()
        start = time.perf_counter()
        side()
        calls[name] = max(1, round(SHORTEST / (time.perf_counter() - start)))
    samples: dict[str, list[float]] = {name: [] for name in sides}
    order, shuffle = list(sides), random.Random(0).shuffle
    begin = time.perf_counter()
    while len(samples[order[0]]) < 7 or (time.perf_counter() - begin < seconds and len(samples[order[0]]) < 101):
        shuffle(order)
        for name in order:
            time.sleep(REST)
            side = sides[name]
            side()
            start = clock()
            for _ in range(calls[name]):
                side()
            samples[name].append((clock() - start) / calls[name])
    return {name: summary(values) for name, values in samples.items()}


def machine() -> dict[str, object]:
    """CPU model, the instruction set that our kernels use, cores, and versions."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    versions = installed("jax", "jaxlib", "jax_rtopk", "numpy", "torch")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    simd = _native.BACKENDS["cpu"].module.simd_level()
    return {"cpu": model, "simd": simd, "cores": cores, "device": jax.devices()[0].platform, "versions": versions}


def write_cases(path: Path, about: dict, cases: list[dict]) -> None:
    """Records what was timed, and `about` what machine that says something."""
    path.write_text(json.dumps({"machine": about, "cases": cases}, indent=1) + "\n")
    print(f"\nwrote {path.relative_to(ROOT)}")
