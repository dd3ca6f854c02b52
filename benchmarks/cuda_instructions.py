"""What can be known of the CUDA kernels' cost without a GPU; counts, not times.

    python benchmarks/cuda_instructions.py --interpreter FOLDER

Reads the installed module with a disassembler (the extra `disassembler`): registers, spills, the length of the loop
over rows, how wide its loads are, how many warps are resident. FOLDER holds the package `ptxrun`, an interpreter of PTX
that is no part of this project (ptx_counts.py): with it and nvcc, the warp instructions that a row takes are counted on
every kind of rows. Without it, those of the record are kept.

Writes benchmarks/results/cuda_instructions.json and the tables of docs/kernels.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from ptx_counts import Case, Interpreter
from sections import ROOT, write_section
from tqdm import tqdm

sys.path.insert(0, str(ROOT / "tests"))
import cuda_binary
from cuda_policy import Launch, launch_of
from row_kinds import KINDS

RECORD = ROOT / "benchmarks/results/cuda_instructions.json"
DOCUMENT = ROOT / "docs/kernels.md"
ARCH = "90"
DTYPES = {4: "f32", 2: "bf16"}
SHAPES = ((64, 8), (256, 32), (1024, 64), (4096, 64), (16384, 64), (65536, 64))
CASES = (
    Case(4, 64, 8),
    Case(4, 256, 1),
    Case(4, 256, 32),
    Case(4, 256, 32, is_sorted=True),
    Case(4, 256, 32, max_iter=2),
    Case(4, 768, 64),
    Case(4, 1024, 64),
    Case(2, 256, 32),
)
# The published RTop-K kernel, by max_iter, n = 256, k = 32, unsorted: counted in the same way on the same rows.
PUBLISHED = {2: {"normal": 751, "Cauchy": 673}, None: {"normal": 1284, "Cauchy": 1697}}

# An H200. The rate was measured with a device copy; at boost clock (1.98 GHz) the budgets are an eighth higher.
DRAM_BYTES_A_SECOND = 4.3e12
MULTIPROCESSORS, ISSUES_A_CLOCK, CLOCKS_A_SECOND = 132, 4, 1.755e9
THREADS, BLOCKS, SHARED_BYTES, SHARED_BYTES_OF_A_BLOCK = 2048, 32, 228 * 1024, 1024  # of a multiprocessor


@dataclass(frozen=True)
class Compiled:
    """A kernel as it is in the module."""

    rows: str
    registers: int
    stack_bytes: int
    spills: int  # instructions that move registers to or from the stack
    instructions: int  # of the loop over rows, all its paths together
    loads: dict[int, int]  # in that loop, by width in bytes
    loads_at_once: int  # of 16 bytes, that are under way together
    convergence_checks: int  # in that loop
    resident_warps: int


def budget(case: Case) -> int:
    """Warp instructions that can be issued while DRAM moves a row and its results."""
    moved = case.n * case.item_bytes + case.k * (case.item_bytes + 4)
    return round(moved / DRAM_BYTES_A_SECOND * MULTIPROCESSORS * ISSUES_A_CLOCK * CLOCKS_A_SECOND)


def resident_warps(launch: Launch, registers: int) -> int:
    warps = launch.threads // 32
    by_registers = cuda_binary.warps_by_registers(registers) // warps
    by_shared = SHARED_BYTES // (launch.shared_bytes + SHARED_BYTES_OF_A_BLOCK)
    return warps * min(by_registers, by_shared, THREADS // launch.threads, BLOCKS)


def compiled(module: Path, item_bytes: int, n: int, k: int) -> Compiled:
    launch = launch_of(n, k, item_bytes)
    ((kernel, resources),) = [
        (name, found) for name, found in cuda_binary.resources(module, ARCH).items() if launch.name in name
    ]
    code = cuda_binary.machine_code(module, ARCH, kernel)
    loop = cuda_binary.row_loop(code)
    return Compiled(
        rows=f"{DTYPES[item_bytes]} {n}, {k}",
        registers=resources.registers,
        stack_bytes=resources.stack + resources.local,
        spills=cuda_binary.spills(code),
        instructions=len(loop),
        loads=cuda_binary.load_widths(loop),
        loads_at_once=cuda_binary.loads_at_once(loop, 16),
        convergence_checks=cuda_binary.convergence_checks(loop),
        resident_warps=resident_warps(launch, resources.registers),
    )


def executed(interpreter: Interpreter, rows: int) -> list[dict]:
    """Warp instructions a row, of each case on each kind of rows."""
    counts: dict[Case, dict[str, float]] = {case: {} for case in CASES}
    for case, kind in (bar := tqdm([(case, kind) for case in CASES for kind in KINDS], unit="count")):
        bar.set_description(f"{case.name}, {kind}")
        counts[case][kind] = round(interpreter.instructions(case, kind, rows), 1)
    return [
        {"case": case.name, "budget": budget(case), "published": published(case), "instructions": counts[case]}
        for case in CASES
    ]


def published(case: Case) -> dict[str, int]:
    same = (case.item_bytes, case.n, case.k, case.is_sorted) == (4, 256, 32, False)
    return PUBLISHED.get(case.max_iter, {}) if same else {}


def compiled_table(kernels: list[dict]) -> str:
    lines = [
        "| rows, k | registers | resident warps | stack, spills | loop over rows | 16-byte loads in it, at once "
        "| convergence checks in it |",
        "|---|---|---|---|---|---|---|",
    ]
    for of in kernels:
        wide = of["loads"].get("16", 0)
        lines.append(
            f"| {of['rows']} | {of['registers']} | {of['resident_warps']} | {of['stack_bytes']}, {of['spills']} "
            f"| {of['instructions']} | {wide}, {of['loads_at_once']} | {of['convergence_checks']} |"
        )
    return "\n".join(lines)


def executed_table(cases: list[dict]) -> str:
    lines = [
        "| rows, k | normal | Cauchy | all kinds | DRAM budget | published kernel: normal, Cauchy |",
        "|---|---|---|---|---|---|",
    ]
    for of in cases:
        counts = of["instructions"]
        theirs = ", ".join(str(count) for count in of["published"].values())
        lines.append(
            f"| {of['case']} | {counts['normal']:.0f} | {counts['Cauchy']:.0f} "
            f"| {min(counts.values()):.0f}-{max(counts.values()):.0f} | {of['budget']} | {theirs} |"
        )
    return "\n".join(lines)


def installed_module() -> Path:
    spec = importlib.util.find_spec("jax_rtopk._cuda")
    if spec is None or spec.origin is None:
        raise SystemExit("the installed jax_rtopk has no CUDA kernels: name a module with --module")
    return Path(spec.origin)


def compiler() -> str:
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return version.splitlines()[-2].split(", ")[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", type=Path, help="a built _cuda or a cubin (default: the installed one)")
    parser.add_argument("--interpreter", type=Path, metavar="FOLDER", help="where the package ptxrun is")
    parser.add_argument("--rows", type=int, default=512, help="of each kind, to count on (default: %(default)s)")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    module = arguments.module or installed_module()
    shapes = [(item_bytes, n, k) for item_bytes in DTYPES for n, k in SHAPES]
    kernels = [asdict(compiled(module, *shape)) for shape in tqdm(shapes, desc="disassembling", unit="kernel")]
    record |= {"what": "counts, not times", "arch": ARCH, "kernels": kernels}
    if arguments.interpreter:
        record["nvcc"] = compiler()
        record["executed"] = executed(Interpreter(arguments.interpreter), arguments.rows)
        record["executed_rows"] = arguments.rows
    text = json.dumps(record, indent=1)
    RECORD.write_text(text + "\n")
    record = json.loads(text)
    for section, table in (
        ("compiled kernels", compiled_table(record["kernels"])),
        ("executed instructions", executed_table(record.get("executed", []))),
    ):
        print(f"\n{table}\n")
        write_section(DOCUMENT, section, table)


if __name__ == "__main__":
    main()
