"""Times jax_rtopk on the CPU against what else there is, at every shape of the table.

    python benchmarks/cpu_table.py                 # about 10 minutes; writes benchmarks/results/cpu-jax<version>.json
    python benchmarks/cpu_table.py --seconds 2     # a rough look; writes only with --write

One process, sides taking turns, medians and quartiles. A second process, kept on one core, tells how we scale.
torch takes part where it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict

from cpu_cases import FLOOR, LAX, OURS, SCALING, SWEEP_K, SWEEP_N, TABLE, sides
from plotting import RESULTS
from timing import machine, take_turns, write_cases
from tqdm import tqdm

SECONDS = 8.0
GROUPS = {"table": TABLE, "by n": SWEEP_N, "by k": SWEEP_K}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each case, about")
    parser.add_argument(
        "--write", action="store_true", help="write the JSON even with other --seconds than the default"
    )
    parser.add_argument("--table-only", action="store_true", help="leave out the sweeps over n and k and the scaling")
    parser.add_argument("--scaling-times", action="store_true", help="only print our own times, as JSON (internal)")
    return parser.parse_args()


def print_scaling_times(seconds: float) -> None:
    times = {case.name: take_turns({OURS: sides(case)[OURS]}, seconds)[OURS] for case in SCALING}
    json.dump(times, sys.stdout)


def time_on_one_core(seconds: float) -> dict[str, dict[str, float]]:
    """Our own times in a process that has one core, so that XLA starts one thread."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # the child inherits it
    try:
        command = [sys.executable, __file__, "--scaling-times", "--seconds", str(seconds)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    finally:
        os.sched_setaffinity(0, cores)


def print_table(cases: list[dict]) -> None:
    print(f"\n{'':46}{'ms':>9} {'x lax':>7} {'x torch':>8} {'x numpy':>8} {'of floor':>9} {'scaling':>8}")
    for case in cases:
        if case["group"] != "table":
            continue
        times = {name: side["median_ms"] for name, side in case["sides"].items()}
        ours = times[OURS]
        torch = min((value for name, value in times.items() if name.startswith("torch")), default=None)
        cells = [f"{ours:9.4g}", f"{times[LAX] / ours:7.1f}"]
        cells += [f"{other / ours:8.1f}" if other else f"{'-':>8}" for other in (torch, times.get("np.argpartition"))]
        cells += [f"{ours / times[FLOOR]:9.2f}"]
        cells += [f"{case['one_core']['median_ms'] / ours:8.2f}" if "one_core" in case else f"{'-':>8}"]
        print(f"{case['name']:46}{' '.join(cells)}")


def main() -> None:
    arguments = parse_arguments()
    if arguments.scaling_times:
        print_scaling_times(arguments.seconds)
        return
    groups = {"table": TABLE} if arguments.table_only else GROUPS
    todo = [(group, case) for group, cases in groups.items() for case in cases]
    done = []
    for group, case in (bar := tqdm(todo, unit="case")):
        bar.set_description(case.name)
        done.append(
            {"group": group, "name": case.name, **asdict(case), "sides": take_turns(sides(case), arguments.seconds)}
        )
    if not arguments.table_only:
        alone = time_on_one_core(arguments.seconds / 2)
        for case in done:
            if case["group"] == "table" and case["name"] in alone:
                case["one_core"] = alone[case["name"]]
    print_table(done)
    if arguments.write or (arguments.seconds == SECONDS and not arguments.table_only):
        about = machine()
        write_cases(RESULTS / f"cpu-jax{about['versions']['jax']}.json", about, done)


if __name__ == "__main__":
    main()
