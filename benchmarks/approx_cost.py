"""Times what approx_topk chooses between, and fits the constants of the cost model to it (jax_rtopk/_plan.py).

    python benchmarks/approx_cost.py                # some minutes; writes benchmarks/results/approx_cost.json
    python benchmarks/approx_cost.py --seconds 1    # a rough look, writes nothing

Float32 normal rows, unsorted, recall .95, on the CPU; all ways of one shape take turns, medians. The constants are
nanoseconds of one core: times are multiplied by the cores that shared them.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import jax
import numpy as np
from plotting import RESULTS, ROOT
from timing import machine, take_turns

from jax_rtopk import approx_topk, topk
from jax_rtopk._plan import fewest_buckets

SECONDS = 6.0
TARGET = 0.95
ELEMENTS = 2**22
SHAPES = [(n, k) for n in (1024, 4096, 16384, 65536, 262144) for k in (16, 64, 256, 512, 2048) if 4 * k <= n]
BUCKET_KS = (1, 2, 3, 4, 6, 8, 12, 16)


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
    times = take_turns(sides, seconds)
    return {
        name: {**plan, "ns": round(times[name]["median_ms"] * 1e6 / x.shape[0], 1)} for name, (_, plan) in ways.items()
    }


def fit(terms: list[list[float]], times: list[float]) -> list[float]:
    """Least squares of the relative errors."""
    weights = 1 / np.array(times)
    return np.linalg.lstsq(np.array(terms) * weights[:, None], np.ones(len(times)), rcond=None)[0].round(3).tolist()


def report(cases: list[dict], cores: int) -> None:
    for many in (False, True):
        chosen = [case for case in cases if (case["k"] > 256) == many]
        print(f"\nk {'above' if many else 'up to'} 256: ns of one core = per element * n + per selected * k")
        for way in ("exact", "max_iter=1", "max_iter=2"):
            terms = [[case["n"], case["k"]] for case in chosen]
            constants = fit(terms, [case["ways"][way]["ns"] * cores for case in chosen])
            print(f"  {way}: {constants}")
        element, selected = fit(
            [[case["n"], case["k"]] for case in chosen], [case["ways"]["exact"]["ns"] * cores for case in chosen]
        )
        print("  bucketed, less exact selection from the candidates: per element * n + per selected * k")
        for bucket_k in BUCKET_KS:
            terms, times = [], []
            for case in chosen:
                for way in case["ways"].values():
                    if way.get("bucket_k") == bucket_k:
                        candidates = way["num_buckets"] * bucket_k
                        rest = way["ns"] * cores - element * candidates - selected * case["k"]
                        terms.append(case["n"])
                        times.append(rest)
            if terms:
                print(f"    bucket_k={bucket_k}: {np.median(np.array(times) / np.array(terms)):.3f} an element")


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
    report(cases, int(str(about["cores"])))
    if seconds == SECONDS:
        path = RESULTS / "approx_cost.json"
        path.write_text(json.dumps({"machine": about, "recall_target": TARGET, "cases": cases}, indent=1) + "\n")
        print(f"\nwrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
