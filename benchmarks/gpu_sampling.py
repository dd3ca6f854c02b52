"""How GPU timings are sampled: sides take turns, and every case is written as soon as it is done.

A side runs chains of calls and says how long a whole chain took on the device, so that launching is hidden behind what
was launched before: see `Chain`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_cases import Case, planned, rehearsed
from summary import summary

CHAIN_SECONDS = 5e-3  # a chain lasts about so long,
MOST_PROGRAMS = 24  # but has no more programs: JAX lets so many run ahead before dispatch waits for the device
CASE_SECONDS = 0.3
LEAST_ROUNDS, MOST_ROUNDS = 5, 31
HOST_BOUND = 0.9  # a chain whose dispatch takes this share of it may have waited for the host


@dataclass
class Chain:
    """A side as chains of programs, each of which makes `calls` calls on operands of their own."""

    run: Callable[
        [int], tuple[float, float]
    ]  # programs -> seconds until the last was done, and until it was dispatched
    calls: int
    programs: int = 1

    def warm_up(self) -> None:
        """Finds how many programs make a chain."""
        self.run(1)
        seconds, _ = self.run(2)
        self.programs = min(MOST_PROGRAMS, max(1, round(2 * CHAIN_SECONDS / seconds)))


def sample(sides: dict[str, Chain]) -> dict[str, dict]:
    """Milliseconds a call of each side; the order within a round is random. A side that cannot run says why."""
    results: dict[str, dict] = {}
    for name, side in sides.items():
        try:
            side.warm_up()
        except Exception as error:  # out of memory, mostly: the other sides go on
            results[name] = {"error": _first_line(error)}
    order = [name for name in sides if name not in results]
    samples: dict[str, list[float]] = {name: [] for name in order}
    host: dict[str, list[float]] = {name: [] for name in order}
    shuffle = random.Random(0).shuffle
    begin = time.perf_counter()
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and time.perf_counter() - begin > CASE_SECONDS:
            break
        shuffle(order)
        for name in order:
            side = sides[name]
            seconds, dispatch = side.run(side.programs)
            samples[name].append(seconds / (side.programs * side.calls))
            host[name].append(dispatch / seconds)
    for name in samples:
        chain = {"chain": sides[name].programs * sides[name].calls}
        shares = sorted(host[name])
        bound = {"may_be_host_bound": True} if chain["chain"] > 1 and shares[len(shares) // 2] > HOST_BOUND else {}
        results[name] = summary(samples[name]) | chain | bound
    return {name: results[name] for name in sides}


def time_cases(
    arguments: argparse.Namespace, about: dict, time_case: Callable[[Case, argparse.Namespace], dict[str, dict]]
) -> list[dict]:
    """Times the cases in their order until the seconds are used up; `arguments.output` always holds what is done."""
    begin, done = time.perf_counter(), []
    for case in rehearsed() if arguments.rehearse else planned():
        start = time.perf_counter()
        if start - begin > arguments.seconds:
            break
        try:
            sides = time_case(case, arguments)
        except Exception as error:
            sides = {"rows": {"error": _first_line(error)}}
        seconds = round(time.perf_counter() - start, 2)
        done.append({"name": case.name, **asdict(case), "seconds": seconds, "sides": sides})
        arguments.output.write_text(json.dumps({"about": about, "cases": done}))
        times = ", ".join(f"{name} {side.get('median_ms', side.get('error'))}" for name, side in sides.items())
        print(f"{seconds:6.1f} s  {case.name}: {times}", flush=True)
    return done


def parser(description: str) -> argparse.ArgumentParser:
    """The options that the timing processes share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, required=True, help="begin no case after so many")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--rehearse", action="store_true", help="a few small cases on the CPU")
    return parser


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__
