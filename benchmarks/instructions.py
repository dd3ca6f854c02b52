"""Instructions that the CPU kernels execute per row, counted by callgrind: a guard that no timing noise can blur.

    python benchmarks/instructions.py            # compare with the record; exits 1 on a regression
    python benchmarks/instructions.py --write    # record

Needs g++ and valgrind on x86-64. Valgrind knows no AVX-512, so the AVX2 kernels are counted. Counts depend on the
compiler: one other than the recorded is given more tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks/results/instructions.json"
TOLERANCE, OTHER_COMPILER_TOLERANCE = 0.02, 0.15
ROWS = 200
INLINE_MORE = "--param=inline-unit-growth=300"  # as in cmake/Cpu.cmake
AVX2 = ["-mavx2", "-mbmi2", "-mpopcnt"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]
# name -> n, k, max_iter (0: exact), sorted, bytes of an item
SHAPES = {
    "f32 n=256 k=32 exact sorted": (256, 32, 0, 1, 4),
    "f32 n=256 k=32 max_iter=2 unsorted": (256, 32, 2, 0, 4),
    "f32 n=64 k=8 exact sorted": (64, 8, 0, 1, 4),
    "f32 n=1024 k=64 exact sorted": (1024, 64, 0, 1, 4),
    "f32 n=65536 k=64 exact sorted": (65536, 64, 0, 1, 4),
    "bf16 n=256 k=32 exact sorted": (256, 32, 0, 1, 2),
}


def build(folder: str, pool: ThreadPoolExecutor) -> str:
    flags = ["g++", "-std=c++20", "-O3", "-ffp-contract=off", f"-I{ROOT}"]
    commands = {}  # by the object that each makes
    for isa, isa_flags in (("baseline", []), ("avx2", AVX2), ("avx512", AVX512)):
        for source in ("kernels_isa", "sparse_isa"):
            for_isa = [*isa_flags, INLINE_MORE, f"-DRTOPK_ISA={isa}"]
            commands[f"{folder}/{isa}_{source}.o"] = [*flags, *for_isa, "-c", f"{ROOT}/cpu/{source}.cc"]
    list(pool.map(lambda made: subprocess.run([*commands[made], "-o", made], check=True), commands))
    program = f"{folder}/instructions"
    sources = [f"{ROOT}/benchmarks/instructions.cc", f"{ROOT}/cpu/kernels.cc"]
    subprocess.run([*flags, *sources, *commands, "-o", program], check=True)
    return program


def executed(program: str, shape: tuple[int, ...], repetitions: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, str(ROWS), *map(str, shape)]
    result = subprocess.run(
        [*command, str(repetitions)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_RTOPK_SIMD": "avx2"},
    )
    match = re.search(r"Collected : (\d+)", result.stderr)
    assert match, result.stderr
    return int(match[1])


def measure() -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        program = build(folder, pool)

        # The difference leaves out what making the rows costs.
        def of_row(shape: tuple[int, ...]) -> int:
            return round((executed(program, shape, 2) - executed(program, shape, 1)) / ROWS)

        counts = {}
        for name, count in zip(SHAPES, pool.map(of_row, SHAPES.values()), strict=True):
            counts[name] = count
            print(f"{name:38s} {count:8d} instructions a row", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the counts instead of comparing")
    arguments = parser.parse_args()
    compiler = subprocess.run(["g++", "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()
    counts = measure()
    if arguments.write:
        RECORD.write_text(json.dumps({"compiler": f"g++ {compiler}", "instructions": counts}, indent=1) + "\n")
        return 0
    record = json.loads(RECORD.read_text())
    same = record["compiler"] == f"g++ {compiler}"
    tolerance = TOLERANCE if same else OTHER_COMPILER_TOLERANCE
    worse = {name: n for name, n in counts.items() if n > record["instructions"][name] * (1 + tolerance)}
    for name, count in worse.items():
        print(
            f"{name}: {count} instructions a row, recorded {record['instructions'][name]} (tolerance {tolerance:.0%})"
        )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
