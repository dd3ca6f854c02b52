"""Compiled CUDA kernels, as a disassembler shows them: what the assembler gave each, and its machine code.

Reads cubins and the modules that hold some. Needs cuobjdump, of the CUDA toolkit or of PyPI (the extra `disassembler`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@cache
def disassembler() -> str | None:
    """The path of cuobjdump; None if there is none."""
    folders = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    folders += [str(found) for entry in sys.path for found in Path(entry).glob("nvidia/*/bin")]
    return shutil.which("cuobjdump", path=os.pathsep.join(folders))


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of a multiprocessor, a thread."""

    registers: int
    stack: int  # bytes, as `local`
    local: int


@dataclass(frozen=True)
class Instruction:
    address: int
    guarded: bool  # by a predicate: it may have no effect
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]

    @property
    def registers(self) -> list[int]:
        """The general registers it names, the result's first."""
        return [int(number) for number in re.findall(r"\bR(\d+)", self.operands)]

    @property
    def target(self) -> int:
        """Where a branch goes."""
        return int(re.findall(r"0x([0-9a-f]+)", self.operands)[-1], 16)


def resources(binary: Path, arch: str) -> dict[str, Resources]:
    """Of each kernel for the architecture, as "90", by the kernel's mangled name."""
    text = _dump(binary, "-res-usage", "-arch", f"sm_{arch}")
    found = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    return {name: Resources(*map(int, numbers)) for name, *numbers in found}


def machine_code(binary: Path, arch: str, kernel: str) -> list[Instruction]:
    """Of the kernel with this mangled name."""
    text = _dump(binary, "-sass", "-arch", f"sm_{arch}", "-fun", kernel)
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/ +(@!?U?P\w+ +)?([A-Z][\w.]*) *(.*?) *;", text)
    return [Instruction(int(address, 16), bool(guard), *rest) for address, guard, *rest in lines]


def row_loop(code: list[Instruction]) -> list[Instruction]:
    """The loop over a kernel's rows: the largest that loads from global memory; empty if none does.

    It holds every path that a row may take. What a warp only executes where its lanes are found apart (the target of
    BRA.DIV) is left out.
    """
    after = _successors(code)
    before: list[list[int]] = [[] for _ in code]
    for i, following in enumerate(after):
        for j in following:
            before[j].append(i)
    loop: set[int] = set()
    for i, instruction in enumerate(code):
        if instruction.name == "LDG" and i not in loop:
            around = _reached(i, after) & _reached(i, before)
            if len(around) > 1:
                loop = max(loop, around, key=len)
    return [code[i] for i in sorted(loop)]


def inner_loops(code: list[Instruction]) -> list[list[Instruction]]:
    """The loops with no other loop in them."""
    places = {instruction.address: i for i, instruction in enumerate(code)}
    branches = [(places[to.target], i) for i, to in enumerate(code) if to.name == "BRA" and to.target <= to.address]
    return [
        code[first : last + 1]
        for first, last in branches
        if not any(first <= a and b <= last for a, b in branches if (a, b) != (first, last))
    ]


def load_widths(code: list[Instruction]) -> dict[int, int]:
    """How many loads from global memory there are of each width in bytes."""
    widths: dict[int, int] = {}
    for instruction in code:
        if instruction.name == "LDG":
            width = _width(instruction.opcode)
            widths[width] = widths.get(width, 0) + 1
    return dict(sorted(widths.items()))


def spills(code: list[Instruction]) -> int:
    """How many instructions move registers to or from the stack."""
    return sum(instruction.name in ("LDL", "STL") for instruction in code)


def loads_at_once(code: list[Instruction], width: int) -> int:
    """The most loads of a width that are issued before one of them is waited for, or a branch taken."""
    most, loads, under_way = 0, 0, set[int]()
    for instruction in code:
        if instruction.name in ("BRA", "BSYNC", "EXIT") or under_way.intersection(instruction.registers):
            loads, under_way = 0, set()
        if instruction.name == "LDG" and _width(instruction.opcode) == width:
            loads += 1
            result = instruction.registers[0]
            under_way.update(range(result, result + width // 4))
        most = max(most, loads)
    return most


def convergence_checks(code: list[Instruction]) -> int:
    """How often a warp makes sure that its lanes are together, where the compiler could not know that they are."""
    return sum(instruction.opcode.startswith(("BRA.DIV", "WARPSYNC")) for instruction in code)


def warps_by_registers(registers: int) -> int:
    """How many warps a multiprocessor's registers are enough for, on architectures with 64 warps of 65536 registers.

    A quarter of the multiprocessor has a quarter of them, and gives them out to its warps in units of 256.
    """
    of_warp = -(-registers * 32 // 256) * 256
    return min(64, 65536 // 4 // of_warp * 4)


def _dump(binary: Path, *options: str) -> str:
    program = disassembler()
    if program is None:
        raise FileNotFoundError("cuobjdump is neither on PATH nor in this Python's site-packages")
    # It calls nvdisasm, which lies beside it.
    path = os.pathsep.join([str(Path(program).parent), os.environ.get("PATH", "")])
    return subprocess.run(
        [program, *options, binary], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    ).stdout


def _successors(code: list[Instruction]) -> list[list[int]]:
    places = {instruction.address: i for i, instruction in enumerate(code)}
    after = []
    for i, instruction in enumerate(code):
        following = [i + 1] if i + 1 < len(code) else []
        if instruction.name == "BRA" and not instruction.opcode.startswith("BRA.DIV"):
            conditional = instruction.guarded or "," in instruction.operands
            following = (following if conditional else []) + [places[instruction.target]]
        elif instruction.name in ("EXIT", "RET") and not instruction.guarded:
            following = []
        after.append(following)
    return after


def _reached(start: int, edges: list[list[int]]) -> set[int]:
    reached, ahead = {start}, [start]
    while ahead:
        for i in edges[ahead.pop()]:
            if i not in reached:
                reached.add(i)
                ahead.append(i)
    return reached


def _width(opcode: str) -> int:
    for part in opcode.split("."):
        if part in ("64", "128"):
            return int(part) // 8
        if part in ("U8", "S8", "U16", "S16"):
            return int(part[1:]) // 8
    return 4
