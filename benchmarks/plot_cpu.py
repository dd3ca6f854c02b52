"""Draws the CPU timings and writes the README's table, from the files in benchmarks/results/.

    python benchmarks/plot_cpu.py

Times are those of the newest jax measured.
"""

from __future__ import annotations

import json

from plotting import GREY, OTHER, OURS, RESULTS, plt, save
from sections import README, write_section
from summary import described

LIBRARIES = {  # in the order and the looks of the plots: label, marker, colour
    "jax_rtopk": ("jax_rtopk", "o", OURS),
    "lax.top_k": ("jax.lax.top_k", "s", OTHER),
    "torch": ("torch.topk, the better of sorted and unsorted", "^", "#7b3294"),
    "np.argpartition": ("np.argpartition", "v", "#1b9e77"),
    "read floor": ("read floor: jnp.max of each row (sparsify: x * 1.5)", "|", GREY),
}
MODES = {"sorted": "exact, sorted", "unsorted": "exact, unsorted", "sparsify": "topk_sparsify"}


def version_of(run: dict) -> tuple[int, ...]:
    return tuple(int(part) for part in run["machine"]["versions"]["jax"].split("."))


def medians(case: dict) -> dict[str, float]:
    """Milliseconds by library, torch's two modes made one."""
    times = {name: side["median_ms"] for name, side in case["sides"].items()}
    torch = [times.pop(name) for name in ("torch.topk sorted", "torch.topk unsorted") if name in times]
    return times | ({"torch": min(torch)} if torch else {})


def load() -> tuple[dict, list[dict]]:
    """The machine and cases of the run on the newest jax; each case with "ms" by library."""
    newest = max((json.loads(path.read_text()) for path in RESULTS.glob("cpu-jax*.json")), key=version_of)
    for case in newest["cases"]:
        case["ms"] = medians(case)
    return newest["machine"], newest["cases"]


def mode_of(case: dict) -> str:
    return MODES.get(case["mode"], f"{case['mode']}, unsorted")


def shape_of(case: dict) -> str:
    extra = [text for text, usual in ((case["dtype"], "float32"), (case["kind"], "normal")) if text != usual]
    return ", ".join([f"{case['rows']}x{case['n']}, k={case['k']}", *extra])


def draw_table(cases: list[dict]) -> None:
    figure, ax = plt.subplots(figsize=(9, 0.34 * len(cases) + 1.3), layout="constrained")
    for y, case in enumerate(reversed(cases)):
        times = {name: ms / case["ms"]["jax_rtopk"] for name, ms in case["ms"].items()}
        ax.plot([min(times.values()), max(times.values())], [y, y], color="#dddddd", lw=1, zorder=1)
        for name, (_, marker, colour) in LIBRARIES.items():
            if name in times:
                ax.scatter(times[name], y, 90 if marker == "|" else 34, colour, marker=marker, zorder=2)
    for label, marker, colour in LIBRARIES.values():
        ax.scatter([], [], 34, colour, marker=marker, label=label)
    ax.set_yticks(range(len(cases)), [f"{shape_of(case)}, {mode_of(case)}" for case in reversed(cases)])
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("time in multiples of jax_rtopk's (medians; further right is slower)")
    ax.grid(visible=False, axis="y")
    figure.legend(loc="outside upper center", ncols=3)
    save(figure, "cpu_table")


def draw_sweeps(by_n: list[dict], by_k: list[dict]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for ax, cases, along in zip(axes, (by_n, by_k), ("n", "k"), strict=True):
        for name, (label, marker, colour) in LIBRARIES.items():
            shown = [case for case in cases if name in case["ms"]]
            times = [1e6 * case["ms"][name] / (case["rows"] * case["n"]) for case in shown]
            style = "--" if marker == "|" else f"{marker}-"
            ax.plot([case[along] for case in shown], times, style, color=colour, ms=4, label=label)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
    axes[0].set(xlabel=f"n (k = {by_n[0]['k']}, 4 Mi elements)", ylabel="nanoseconds an element")
    axes[1].set(xlabel=f"k (n = {by_k[0]['n']}, {by_k[0]['rows']} rows)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    save(figure, "cpu_sweeps")


def times_text(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def table_text(machine: dict, cases: list[dict]) -> str:
    lines = ["| rows x n, k | what | ms | lax.top_k takes | torch.topk takes | np.argpartition takes | jnp.max takes |"]
    lines.append("|---|---|---|---|---|---|---|")
    for case in cases:
        ms = case["ms"]
        others = ("lax.top_k", "torch", "np.argpartition", "read floor")
        ratios = [times_text(ms[name] / ms["jax_rtopk"]) if name in ms else "" for name in others]
        lines.append("| " + " | ".join([shape_of(case), mode_of(case), f"{ms['jax_rtopk']:.3g}", *ratios]) + " |")
    return "\n".join([*lines, "", described(machine)])


def main() -> None:
    machine, cases = load()
    groups = {name: [case for case in cases if case["group"] == name] for name in ("table", "by n", "by k")}
    draw_table(groups["table"])
    draw_sweeps(groups["by n"], groups["by k"])
    write_section(README, "CPU table", table_text(machine, groups["table"]))


if __name__ == "__main__":
    main()
