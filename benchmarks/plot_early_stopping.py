"""How much of the true top k early stopping finds, ours against the published RTop-K kernel.

Runs the numpy specification of the search (to which the tests hold the native code bit for bit) and an emulation of the
published kernel on every kind of rows; prints tables, writes benchmarks/results/early_stopping.json,
docs/early_stopping.svg and the README's table:

    python benchmarks/plot_early_stopping.py
"""

from __future__ import annotations

import json
import sys

import numpy as np
from plotting import GREY, OTHER, OURS, OURS_LIGHT, RESULTS, ROOT, plt, save
from sections import README, write_section
from tqdm import tqdm

sys.path.insert(0, str(ROOT / "tests"))
from row_kinds import BAD_KINDS, KINDS, float32_keys, make_rows, share_found
from rtopk_published import selections
from search_spec import Search

ROWS = 4096
PASSES = 8
TO_THE_END = 60  # more passes than either search ever needs on float32
SHAPES = ((256, 32), (256, 64), (1024, 64))
PLOTTED = (256, 32)
README_ROWS = ((256, 32, "normal"), (256, 32, "Cauchy"), (256, 64, "normal"), (1024, 64, "normal"))


def percent(x: np.ndarray, selected: np.ndarray, k: int) -> float:
    return round(100 * float(share_found(x, selected, k).mean()), 2)


def to_exact(passes: np.ndarray) -> dict[str, float]:
    return {"mean": round(float(passes.mean()), 2), "p99": int(np.percentile(passes, 99, method="higher"))}


def measure(kind: str, n: int, k: int) -> dict:
    x = make_rows(kind, ROWS, n)
    search = Search(float32_keys(x), k, item_bytes=4)
    ours = []
    for passes in range(1, PASSES + 1):
        search.run(passes)
        ours.append(percent(x, search.selected(), k))
    search.run(TO_THE_END)
    published = []
    needed = np.zeros(ROWS, int)
    for passes, (selected, counted) in enumerate(selections(x, k, TO_THE_END), start=1):
        if passes <= PASSES:
            published.append(percent(x, selected, k))
        elif (counted == needed).all():
            break
        needed = counted
    return {
        "kind": kind,
        "n": n,
        "k": k,
        "rows": ROWS,
        "ours": {"found_percent": ours, "passes_to_exact": to_exact(search.needed)},
        "rtopk_published": {"found_percent": published, "passes_to_exact": to_exact(needed)},
    }


def print_table(results: list[dict]) -> None:
    for n, k in SHAPES:
        print(f"\nn = {n}, k = {k}: % of the true top k after 1 / 2 / 3 / 4 passes; mean (p99) passes to exact")
        print(f"{'':15}{'ours, two pivots a pass':38}published RTop-K, one pivot a pass")
        for result in results:
            if (result["n"], result["k"]) != (n, k):
                continue
            cells = []
            for side in ("ours", "rtopk_published"):
                end = result[side]["passes_to_exact"]
                found = " / ".join(f"{value:4.1f}" for value in result[side]["found_percent"][:4])
                cells.append(f"{found:28}{end['mean']:4.1f} ({end['p99']})")
            print(f"{result['kind']:15}{cells[0]:38}{cells[1]}")


def readme_table(results: list[dict]) -> str:
    lines = [
        "| % of the true top k after 1 / 2 / 3 / 4 passes; mean passes to exact | jax_rtopk | RTop-K as published |"
    ]
    lines.append("|---|---|---|")
    by_case = {(result["n"], result["k"], result["kind"]): result for result in results}
    for n, k, kind in README_ROWS:
        cells = [f"n={n}, k={k}, {kind}"]
        for side in ("ours", "rtopk_published"):
            measured = by_case[n, k, kind][side]
            found = " / ".join(f"{value:.1f}" for value in measured["found_percent"][:4])
            cells.append(f"{found}; {measured['passes_to_exact']['mean']:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(results: list[dict]) -> None:
    shown = {result["kind"]: result for result in results if (result["n"], result["k"]) == PLOTTED}
    good, bad = list(KINDS), list(BAD_KINDS)
    figure, axes = plt.subplots(3, 4, figsize=(9, 6.2), sharex=True, sharey=True, layout="constrained")
    sweeps = np.arange(1, PASSES + 1)
    half = PASSES // 2
    for ax, kind in zip(axes.flat, [*good, *bad], strict=True):
        # On a logarithmic axis of what is missed, 90, 99 and 99.9 % found are equally far apart.
        theirs, ours = (
            np.maximum(100 - np.array(shown[kind][side]["found_percent"]), 1e-3) for side in ("rtopk_published", "ours")
        )
        ax.plot(sweeps, theirs, "s-", color=OTHER, ms=4, label="RTop-K as published (one pivot a pass)")
        ax.plot(sweeps, ours, "o-", color=OURS, ms=4, label="jax_rtopk (two pivots a pass)")
        against = "jax_rtopk against pivots counted instead of passes"
        ax.plot(2 * sweeps[:half], ours[:half], "o:", color=OURS_LIGHT, ms=3, label=against)
        ax.set_title(kind, fontsize=9)
        if kind in bad:
            ax.set_title(f"bad case: {kind}", fontsize=9, color=GREY)
        ax.set_yscale("log")
        ax.set_ylim(100, 0.04)
        ax.set_yticks([50, 10, 1, 0.1], ["50", "90", "99", "99.9"])
        ax.minorticks_off()
        ax.set_xticks(sweeps)
    figure.supylabel("% of the true top k found", fontsize=9)
    figure.supxlabel("passes (sweeps over the row) before stopping", fontsize=9)
    title = "Early stopping, n = {}, k = {}".format(*PLOTTED)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, title=title)
    save(figure, "early_stopping")


def main() -> None:
    cases = [(kind, n, k) for n, k in SHAPES for kind in [*KINDS, *BAD_KINDS]]
    results = [measure(*case) for case in tqdm(cases, desc="searching", unit="case")]
    print_table(results)
    path = RESULTS / "early_stopping.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwrote {path.relative_to(ROOT)}")
    draw(results)
    write_section(README, "early stopping", readme_table(results))


if __name__ == "__main__":
    main()
