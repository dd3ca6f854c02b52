"""Recall against time on the CPU: exact, early-stopped and bucketed top-k on the same axes.

    python benchmarks/plot_recall_time.py               # two minutes; writes recall_time.json and docs/cpu_recall.svg
    python benchmarks/plot_recall_time.py --seconds 1   # a rough look, writes nothing

Float32 normal rows, unsorted; all ways of one shape take turns, medians, in multiples of jnp.max of each row, which is
about the time to read the rows. Buckets are the cheapest, by the cost model, that reach each of some recalls.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from approx_table import share_found
from plotting import GREY, OTHER, OURS, RESULTS, plt, save
from timing import blocking, machine, take_turns, write_cases

from jax_rtopk import TopK, approx_topk, expected_recall, expected_recall_early_stop, topk
from jax_rtopk._plan import STAGE1, cheapest_buckets, plan_cost

SECONDS = 30.0
SHAPES = ((512, 65536, 256), (4096, 4096, 64), (65536, 256, 32))
PASSES = (1, 2, 3)
TARGETS = (0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
LOOKS = {"exact": ("*", OURS, 11), "early-stopped": ("^", OTHER, 6), "bucketed": ("o-", OURS, 4)}
MOST, LEAST = 40, 0.02  # % missed at the ends of the plot's axis; nothing missed is put at its end

Select = Callable[[jax.Array], TopK]


def ways(n: int, k: int) -> dict[str, tuple[str, float, Select]]:
    """Each way to select: of which sort it is, the recall to be expected, and the function."""
    exact = partial(topk, k=k, sorted=False)
    found: dict[str, tuple[str, float, Select]] = {"exact": ("exact", 1.0, exact)}
    for passes in PASSES:
        expected = expected_recall_early_stop(n, k, passes)
        found[f"max_iter={passes}"] = "early-stopped", expected, partial(exact, max_iter=passes)
    for target in TARGETS:
        num_buckets, bucket_k = cheapest_plan(n, k, target)
        select = partial(approx_topk, k=k, sorted=False, num_buckets=num_buckets, bucket_k=bucket_k)
        found[f"{num_buckets} x {bucket_k}"] = "bucketed", expected_recall(n, k, num_buckets, bucket_k), select
    return found


def cheapest_plan(n: int, k: int, target: float) -> tuple[int, int]:
    """As plan_buckets, but never the exact plan that it prefers where that is as cheap."""
    plans = [(cheapest_buckets(n, k, bucket_k, target), bucket_k) for bucket_k in range(1, min(len(STAGE1), k) + 1)]
    return min(((b, j) for b, j in plans if b and b < n), key=lambda plan: plan_cost(n, k, *plan))


def measure(rows: int, n: int, k: int, seconds: float) -> dict:
    x = jax.random.normal(jax.random.key(0), (rows, n))
    selects = ways(n, k)
    sides = {name: blocking(select, x) for name, (*_, select) in selects.items()}
    sides |= {"jnp.max": blocking(partial(jnp.max, axis=-1), x), "lax.top_k": blocking(partial(jax.lax.top_k, k=k), x)}
    times = take_turns(sides, seconds)
    points = [
        {
            "way": name,
            "sort": sort,
            "expected": round(expected, 4),
            "recall": share_found(select, x, k),
            **times.pop(name),
        }
        for name, (sort, expected, select) in selects.items()
    ]
    return {"rows": rows, "n": n, "k": k, "ways": points, "others": times}


def title(case: dict) -> str:
    return f"{case['rows']}x{case['n']}, k={case['k']}"


def multiple(case: dict, side: dict) -> float:
    return side["median_ms"] / case["others"]["jnp.max"]["median_ms"]


def print_table(case: dict) -> None:
    print(f"\n{title(case):24}{'recall: expected':>17}{'measured':>10}{'ms':>10}{'x jnp.max':>11}")
    for way in case["ways"]:
        print(
            f"{way['way']:24}{way['expected']:>17.4f}{way['recall']:>10.4f}{way['median_ms']:>10.3f}"
            f"{multiple(case, way):>11.2f}"
        )
    for name, side in case["others"].items():
        print(f"{name:24}{'':27}{side['median_ms']:>10.3f}{multiple(case, side):>11.2f}")


def draw(cases: list[dict]) -> None:
    figure, axes = plt.subplots(1, len(cases), figsize=(9, 3.2), sharey=True, layout="constrained")
    for ax, case in zip(axes, cases, strict=True):
        for sort, (style, colour, size) in LOOKS.items():
            shown = sorted((way["recall"], multiple(case, way)) for way in case["ways"] if way["sort"] == sort)
            # On a logarithmic axis of what is missed, 90, 99 and 99.9 % found are equally far apart.
            missed = [max(100 * (1 - recall), LEAST) for recall, _ in shown]
            ax.plot([time for _, time in shown], missed, style, color=colour, ms=size, label=sort, clip_on=False)
        ax.axvline(1, color=GREY, ls="--", lw=1, label="jnp.max of each row")
        ax.set_title(
            f"{title(case)}\n(lax.top_k: {multiple(case, case['others']['lax.top_k']):.0f})", fontsize=9, pad=10
        )
        ax.set_yscale("log")
        ax.set_ylim(MOST, LEAST)
        ax.set_yticks([30, 10, 5, 1, 0.1, LEAST], ["70", "90", "95", "99", "99.9", "100"])
        ax.minorticks_off()
        ax.set_xlim(0, 1.1 * max(1, *(multiple(case, way) for way in case["ways"])))
    axes[0].set_ylabel("% of the true top k found")
    figure.supxlabel("time in multiples of jnp.max of each row", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    save(figure, "cpu_recall")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each shape, about")
    seconds = parser.parse_args().seconds
    cases = []
    for shape in SHAPES:
        cases.append(measure(*shape, seconds))
        print_table(cases[-1])
    if seconds == SECONDS:
        write_cases(RESULTS / "recall_time.json", machine(), cases)
        draw(cases)


if __name__ == "__main__":
    main()
