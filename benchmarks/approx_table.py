"""Times approx_topk on the CPU beside exact selection, lax.top_k and the read floor, with the recall that it finds.

    python benchmarks/approx_table.py               # about two minutes; writes README's table and its JSON
    python benchmarks/approx_table.py --seconds 1   # a rough look, writes nothing

Float32 normal rows, unsorted; all sides of one shape take turns, medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from plotting import RESULTS
from sections import README, write_section
from summary import described
from timing import blocking, machine, take_turns, write_cases

from jax_rtopk import TopK, approx_topk, topk
from jax_rtopk._plan import ApproxPlan, plan_approx

SECONDS = 8.0
SELECTED = 2**16  # elements to know the recall from: its standard error is .002 at most
CASES = (  # rows, n, k, recall_target
    (1024, 4096, 64, 0.9),
    (1024, 4096, 512, 0.95),
    (256, 16384, 128, 0.95),
    (512, 65536, 256, 0.95),
    (512, 65536, 256, 0.99),
    (64, 65536, 2048, 0.95),
    (64, 131072, 64, 0.95),
    (65536, 256, 32, 0.95),
)


def measure(rows: int, n: int, k: int, target: float, seconds: float) -> dict[str, object]:
    x = jax.random.normal(jax.random.key(0), (rows, n))

    approximate = partial(approx_topk, k=k, sorted=False, recall_target=target)
    sides = {
        "approx_topk": blocking(approximate, x),
        "topk": blocking(partial(topk, k=k, sorted=False), x),
        "lax.top_k": blocking(partial(jax.lax.top_k, k=k), x),
        "jnp.max": blocking(partial(jnp.max, axis=-1), x),
    }
    return {
        "rows": rows,
        "n": n,
        "k": k,
        "recall_target": target,
        "way": describe(plan_approx(n, k, target)),
        "recall": share_found(approximate, x, k),
        "sides": take_turns(sides, seconds),
    }


def share_found(select: Callable[[jax.Array], TopK], x: jax.Array, k: int) -> float:
    """The share of the true top k of some rows that is selected."""
    some = x[: -(-SELECTED // k)]
    found, true = (np.asarray(jax.jit(function)(some).indices) for function in (select, partial(topk, k=k)))
    shares = [np.isin(f, t, assume_unique=True).mean() for f, t in zip(found, true, strict=True)]
    return round(float(np.mean(shares)), 4)


def describe(plan: ApproxPlan) -> str:
    if plan.buckets is not None:
        return f"{plan.buckets.num_buckets} buckets, bucket_k={plan.buckets.bucket_k}"
    return f"max_iter={plan.max_iter}" if plan.max_iter else "exact"


def row_of(case: dict) -> str:
    """Of the table in Markdown."""
    times = {name: side["median_ms"] for name, side in case["sides"].items()}
    ours = times.pop("approx_topk")
    cells = [f"{case['rows']}x{case['n']}, k={case['k']}", f"{case['recall_target']:g}", case["way"]]
    cells += [f"{100 * case['recall']:.1f} %", f"{ours:.3g}", *(f"{other / ours:.1f}x" for other in times.values())]
    return f"| {' | '.join(cells)} |"


def section(about: dict, cases: list[dict]) -> str:
    """What README says."""
    columns = ["rows x n, k", "asked for", "way", "found", "ms", "`topk` takes", "lax.top_k takes", "jnp.max takes"]
    table = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *map(row_of, cases)]
    return "\n".join(table) + (
        f"\n\n{described(about)} Float32 normal rows, unsorted, medians of sides that take turns"
        " (`benchmarks/approx_table.py`), on a virtual machine with busy neighbours."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each case, about")
    seconds = parser.parse_args().seconds
    cases = []
    for case in CASES:
        cases.append(measure(*case, seconds))
        print(row_of(cases[-1]), flush=True)
    if seconds == SECONDS:
        about = machine()
        write_cases(RESULTS / "approx_table.json", about, cases)
        write_section(README, "approximate", section(about, cases))


if __name__ == "__main__":
    main()
