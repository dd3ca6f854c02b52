"""Puts what gpu_check.sh found into one JSON file, and prints a short table of it."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

from gpu_cases import ALL_MODES, APPROX_MODE, DTYPES, KINDS, KS, LENGTHS, ROWS, planned, rehearsed

OURS = (*ALL_MODES, APPROX_MODE)
RESULTS = Path(__file__).parent / "results"
COPY = "copy"
COPY_GOALS = {"unsorted": 1.35, "max_iter=2": 1.15}  # n=256, k=32, float32: in multiples of the copy's time, at most
TORCH_GOALS = {"unsorted": 15, "max_iter=2": 23}  # n=256, float32: what torch.topk takes on average, at least


def run(*command: str) -> str:
    """What a command says; empty where there is no such command."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def load(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {"about": {}, "cases": []}


def stages(path: Path) -> list[dict]:
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [{"stage": stage, "result": result, "seconds": int(seconds)} for stage, result, seconds in rows]


def merged(runs: list[dict]) -> list[dict]:
    """The cases of all processes, each with the sides of all of them."""
    cases: dict[str, dict] = {}
    for run in runs:
        for case in run["cases"]:
            cases.setdefault(case["name"], case | {"sides": {}})["sides"] |= case["sides"]
    order = {name: i for i, name in enumerate(case.name for case in [*planned(), *rehearsed()])}
    return sorted(cases.values(), key=lambda case: order[case["name"]])


def add_ratios(case: dict) -> None:
    """Adds our times in multiples of the copy's, and the others' in multiples of ours."""
    times = {name: side["median_ms"] for name, side in case["sides"].items() if "median_ms" in side}
    others = {name: ms for name, ms in times.items() if name not in OURS and "copy" not in name}
    case["ratios"] = {
        mode: {
            "of_the_copy": round(times[mode] / times[COPY], 3) if COPY in times else None,
            "others_take": {name: round(ms / times[mode], 2) for name, ms in others.items()},
        }
        for mode in OURS
        if mode in times
    }


def left_out(cases: list[dict], rehearse: bool) -> dict:
    """What there was no time for: cases, sides of cases, and how much of the cross product was timed."""
    full = len(ROWS) * len(DTYPES) * len(KINDS) * len(ALL_MODES) * sum(k < n for n in LENGTHS for k in KS)
    timed = sum(mode in ALL_MODES for case in cases if case["n"] in LENGTHS for mode in case["ratios"])
    sides = {name for case in cases for name in case["sides"] if name not in OURS and name != "rows"}

    def missing_of(case: dict) -> list[str]:
        extra = set() if APPROX_MODE in case["ratios"] else {"approx_max_k"}
        return sorted(sides - case["sides"].keys() - extra)

    return {
        "combinations of rows, n, k, dtype, kind and mode": {"all": full, "timed": timed},
        "cases": [
            case.name
            for case in (rehearsed() if rehearse else planned())
            if case.name not in {case["name"] for case in cases}
        ],
        "sides": {case["name"]: missing for case in cases if (missing := missing_of(case))},
    }


def best(case: dict, library: str, mode: str) -> float | None:
    """The fastest of a library's settings in multiples of our time."""
    others = case["ratios"].get(mode, {"others_take": {}})["others_take"]
    return min((ratio for name, ratio in others.items() if name.startswith(library)), default=None)


def print_table(cases: list[dict]) -> None:
    """Times in ms and, after them, in multiples of the copy's; others at their best in multiples of ours."""
    columns = ("sorted", "x copy", "unsorted", "x copy", "2 passes", "x copy", "recall95", "x copy")
    columns += ("lax/s", "torch/u", "torch/2", "lax/r95", "amk/r95")
    print(f"\n{'':44}" + " ".join(f"{column:>8}" for column in columns))
    for case in cases:
        cells = []
        for mode in ("sorted", "unsorted", "max_iter=2", APPROX_MODE):
            side, ratios = case["sides"].get(mode, {}), case["ratios"].get(mode, {})
            cells.append(f"{side['median_ms']:.4g}" if "median_ms" in side else side.get("error", "-")[:8])
            cells.append(f"{ratios['of_the_copy']:.2f}" if ratios.get("of_the_copy") else "-")
        beside = [("lax", "sorted"), ("torch", "unsorted"), ("torch", "max_iter=2")]
        beside += [("lax", APPROX_MODE), ("approx_max_k", APPROX_MODE)]
        for library, mode in beside:
            ratio = best(case, library, mode)
            cells.append(f"{ratio:.2f}x" if ratio else "-")
        print(f"{case['name']:44}" + " ".join(f"{cell:>8}" for cell in cells))


def goals(cases: list[dict]) -> list[str]:
    """What was aimed at, and what came of it, in a line each."""

    def line(what: str, reached: bool, found: str) -> str:
        return f"goal {'reached' if reached else 'MISSED'}: {what}: {found}"

    lines = []
    for case in cases:
        for mode, most in COPY_GOALS.items():
            if case["group"] == "goals" and (of_copy := case["ratios"].get(mode, {}).get("of_the_copy")):
                found = f"{of_copy:.2f}x"
                lines.append(line(f"{case['name']}, {mode}, at most {most}x of the copy", of_copy <= most, found))
    usual = [case for case in cases if (case["n"], case["dtype"], case["kind"]) == (256, "float32", "normal")]
    for mode, least in TORCH_GOALS.items():
        found = [ratio for case in usual if (ratio := best(case, "torch", mode))]
        if found:
            mean, what = sum(found) / len(found), f"n=256, {mode}, torch.topk takes {least}x on average"
            lines.append(line(what, mean >= least, f"{mean:.2f}x over {len(found)} cases"))
    beside_lax = {case["name"]: ratio for case in cases if (ratio := best(case, "lax", "sorted"))}
    if beside_lax:
        behind = [name for name, ratio in beside_lax.items() if ratio < 1]
        found = f"behind at {'; '.join(behind)}" if behind else f"in all {len(beside_lax)} cases"
        lines.append(line("sorted ahead of every setting of lax.top_k", not behind, found))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, help="the folder with what the stages wrote")
    parser.add_argument("--output", help="a JSON file, or a folder for it (default: benchmarks/results)")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    runs = {name: load(arguments.work / f"{name}.json") for name in ("time_jax", "time_raft", "time_torch")}
    cases = merged(list(runs.values()))
    for case in cases:
        add_ratios(case)
    query = run("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    device, driver, memory = query.splitlines()[0].split(", ") if query else ("cpu", "", "")
    about = {
        "device": device,
        "rehearsal": arguments.rehearse,
        "driver": driver,
        "memory": memory,
        "nvcc": (run("nvcc", "--version").splitlines() or [""])[-1],
        "commit": run("git", "describe", "--always", "--dirty"),
        "processes": {name: run["about"] for name, run in runs.items()},
    }
    report = {
        "about": about,
        "stages": stages(arguments.work / "stages.tsv"),
        "goals": goals(cases),
        "cases": cases,
        "left_out": left_out(cases, arguments.rehearse),
    }
    path = Path(arguments.output or RESULTS)
    if path.is_dir():
        path /= f"gpu-{re.sub('[^A-Za-z0-9.]+', '-', about['device'])}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")

    if arguments.rehearse:
        print("\nA REHEARSAL: times of a CPU, on small rows, which say nothing of a GPU")
    print_table(cases)
    print(*report["goals"], sep="\n")
    missing = report["left_out"]
    print(f"left out for want of time: {len(missing['cases'])} cases, and some side of {len(missing['sides'])}")
    for stage in report["stages"]:
        print(f"{stage['stage']:12} {stage['seconds']:4} s  {stage['result']}")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
