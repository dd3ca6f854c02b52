"""Times what approx_topk chooses between, and fits the constants of the cost model to it (jax_rtopk/_plan.py).

    python benchmarks/approx_cost.py                # some minutes; writes benchmarks/results/approx_cost.json
    python benchmarks/approx_cost.py --seconds 1    # a rough look, writes nothing

Float32 normal rows, unsorted, recall .95, on one core of the CPU; all ways of one shape take turns, medians. What is
measured is the processor time, in nanoseconds a row, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial
from math import sqrt

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before XLA counts the cores

import jax
import numpy as np
from plotting import RESULTS, ROOT
from timing import machine, take_turns

from jax_rtopk import approx_topk, topk
from jax_rtopk._plan import VECTOR, fewest_buckets, whole_vectors

SECONDS = 6.0
TARGET = 0.95
ELEMENTS = 2**21
SHAPES = [(n, k) for n in (1024, 4096, 16384, 65536, 262144) for k in (16, 64, 256, 512, 2048) if 4 * k <= n]
BUCKET_KS = (1, 2, 3, 4, 5, 8, 16)


def measure(n: int, k: int, seconds: float) -> dict[str, dict]:
    """The median of each way, in nanoseconds a row, with what the cost model knows of it."""
    x = jax.random.normal(jax.random.key(0), (ELEMENTS // n, n))
    ways = {"exact": (partial(topk, max_iter=None), {})}
    ways |= {f"max_iter={p}": (partial(topk, max_iter=p), {"max_iter": p}) for p in (1, 2)}
    for bucket_k in BUCKET_KS:
        if num_buckets := fewest_buckets(n, k, bucket_k, TARGET):
            plan = {"num_buckets": num_buckets, "bucket_k": bucket_k}
            ways[f"{num_buckets} x {bucket_k}"] = (partial(approx_topk, **plan), plan)
    sides = {}
    for name, (function, _) in ways.items():
        jitted = jax.jit(partial(function, k=k, sorted=False))
        sides[name] = lambda jitted=jitted: jax.block_until_ready(jitted(x))
    times = take_turns(sides, seconds, clock=time.process_time)
    return {
        name: {**plan, "ns": round(times[name]["median_ms"] * 1e6 / x.shape[0], 1)} for name, (_, plan) in ways.items()
    }


def fit(terms: list[list[float]], times: list[float]) -> list[float]:
    """What each term costs, by least squares of the relative errors."""
    weights = 1 / np.array(times)
    return np.linalg.lstsq(np.array(terms) * weights[:, None], np.ones(len(times)), rcond=None)[0].round(3).tolist()


def report(cases: list[dict]) -> None:
    """The constants of jax_rtopk/_plan.py."""
    exact = fit(
        [[case["n"], sqrt(case["n"] * case["k"])] for case in cases], [case["ways"]["exact"]["ns"] for case in cases]
    )
    print("exact: {} n + {} sqrt(n k)".format(*exact))
    early = [(case, passes, case["ways"][f"max_iter={passes}"]["ns"]) for case in cases for passes in (1, 2)]
    found = fit([[case["n"], passes * case["n"], case["k"]] for case, passes, _ in early], [ns for *_, ns in early])
    print("early stopping: {} n + {} max_iter n + {} k".format(*found))
    terms, times = [], []
    for case in cases:
        n, k = case["n"], case["k"]
        for way in case["ways"].values():
            if way.get("num_buckets", 0) < VECTOR:  # never chosen with long queues, whose cost is another then
                continue
            candidates = way["num_buckets"] * way["bucket_k"]
            second = exact[0] * candidates + exact[1] * sqrt(candidates * k)
            places = n / way["num_buckets"] * whole_vectors(way["num_buckets"])
            terms.append([places * (way["bucket_k"] == j) for j in BUCKET_KS] + [k, 1])
            times.append((way["ns"], second))
    weights = 1 / np.array([ns for ns, _ in times])
    rest = np.array([ns - second for ns, second in times])
    found = np.linalg.lstsq(np.array(terms) * weights[:, None], rest * weights, rcond=None)[0]
    *elements, selected, row = found.round(3).tolist()
    print(f"buckets, beside that of the candidates: {selected} k, {row} a row, and of n:")
    print("   ", ", ".join(f"{x:.2f}" for x in np.interp(range(1, 17), BUCKET_KS, elements)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each shape, about")
    seconds = parser.parse_args().seconds
    about = machine()
    cases = []
    for n, k in SHAPES:
        cases.append({"n": n, "k": k, "ways": measure(n, k, seconds)})
        print(
            f"{n}, {k}: " + ", ".join(f"{name} {way['ns']:.0f}" for name, way in cases[-1]["ways"].items()), flush=True
        )
    report(cases)
    if seconds == SECONDS:
        path = RESULTS / "approx_cost.json"
        path.write_text(json.dumps({"machine": about, "recall_target": TARGET, "cases": cases}, indent=1) + "\n")
        print(f"\nwrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
