"""Calls the handlers of a native module as XLA would not: each call must be refused or answered, never worse.

    python tests/hostile.py --calls 100000 --seed 0                # the CPU's
    python tests/hostile.py --calls 10000 --backend emulated       # CUDA's, on the emulator
    python tests/hostile.py --seed 0 --only 812                    # one call again

Buffers end at a page that nobody may touch, and begin behind bytes that must not change; nor may operands, nor any
result of a call that is refused. Results are poisoned before, so that each byte of them is known to be written. Nothing
of JAX runs: what a sanitizer finds is ours.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import oracle
import sparse_oracle
from cuda_emulator import build as emulator
from ffi_host import Buffer, GuardedMemory, Host, build, handlers
from hostile_answers import answer
from hostile_calls import mutate, right_call
from hostile_rules import OPERATIONS, SELECTIONS, CustomCall, Operand, is_right
from kernel_ways import check_ways_at_once

POISON = 0xA5
MOST_OPERANDS = 12  # with results: nine of sums over neighbors, and three that mutations add


class Outcome(NamedTuple):
    """What came of a call."""

    call: CustomCall
    name: str  # "answered", "refused" or "not made"
    error: str | None = None


class Hostile:
    """A native module's handlers, and memory to call them with."""

    def __init__(self, host: Host, module: Any) -> None:
        self._host, self._module, self._handlers = host, module, handlers(module)
        self._memory = [GuardedMemory() for _ in range(MOST_OPERANDS)]

    def call(self, seed: int, number: int) -> Outcome:
        """Makes the call of that number, and checks what comes of it."""
        rng = np.random.default_rng([seed, number])
        operations = [operation for operation in OPERATIONS if operation in self._handlers]
        operation = operations[rng.integers(len(operations))]
        call = right_call(rng, operation, self._module)
        for _ in range(rng.choice([0, 1, 2, 3], p=[0.3, 0.4, 0.2, 0.1])):
            mutate(rng, call)
        right = is_right(call, self._module)
        operands = call.args + call.rets
        if not _exists(operands) or (right and not _fits(operands)):
            return Outcome(call, "not made")
        for memory in self._memory:
            memory.place(0, POISON)  # of what is not placed here this time only the canary is left
        memories = iter(self._memory)
        args = [self._place(rng, arg, next(memories), is_result=False) for arg in call.args]
        rets = [self._place(rng, ret, next(memories), is_result=True) for ret in call.rets]
        rets = [
            Buffer(ret.dtype, ret.shape, args[rng.integers(len(args))].address) if ret.alias and args else buffer
            for ret, buffer in zip(call.rets, rets, strict=True)
        ]
        threads = int(rng.choice([1, 3]))
        error = self._host.call(self._handlers[operation], args, rets, call.attributes, threads=threads)
        assert (error is None) == right, f"{call}: {error or 'answered'}"
        for memory in self._memory[: len(args) if right else None]:
            memory.check_untouched()
        if right:
            self._check(call)
        return Outcome(call, "answered" if right else "refused", error)

    def _place(self, rng: np.random.Generator, operand: Operand, memory: GuardedMemory, *, is_result: bool) -> Buffer:
        """Its buffer: in that memory or, if too large, behind it, where nobody may touch it; perhaps null, if empty."""
        if not _fits([operand]):
            return Buffer(operand.dtype, operand.shape, memory.end)
        # A workspace is not of one dtype, and needs the alignment of XLA's buffers, which others can do without.
        nbytes = -(-operand.nbytes // 16) * 16 if operand.name == "workspace" else operand.nbytes
        address = memory.place(nbytes, POISON) if is_result else memory.write(operand.array(rng))
        return Buffer(operand.dtype, operand.shape, address if operand.nbytes or rng.integers(2) else None)

    def _check(self, call: CustomCall) -> None:
        memories = self._memory[len(call.args) :]
        for memory in memories:
            memory.check_canary()
        if not any(ret.nbytes for ret in call.rets):
            return
        with np.errstate(all="ignore"):
            wanted = answer(call)
        for ret, want, memory in zip(call.rets, wanted, memories, strict=False):
            if ret.nbytes and ret.name != "workspace":
                got = memory.read(ret.dtype, ret.shape)
                if want is not None and call.operation in SELECTIONS:
                    oracle.assert_same(got, want)
                elif want is not None:
                    oracle.assert_same(sparse_oracle.with_one_nan(got), sparse_oracle.with_one_nan(want))


def _exists(operands: list[Operand]) -> bool:
    """Whether there could be such arrays: XLA, and numpy, must be able to tell how many bytes each has."""
    sizes = [operand.dtype.itemsize * math.prod(max(size, 1) for size in operand.shape) for operand in operands]
    return max(sizes, default=0) < 2**63


def _fits(operands: list[Operand]) -> bool:
    return all(operand.nbytes <= GuardedMemory.BYTES - GuardedMemory.CANARY for operand in operands)


def load(backend: str) -> Any:
    """The native module of the CPU or of the emulator."""
    if backend == "native":
        from jax_rtopk import _cpu

        return _cpu
    return emulator.load()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=("native", "emulated"), default="native")
    parser.add_argument("--sanitize", help="what the module is built with, as thread")
    parser.add_argument("--only", type=int, help="make the call of this number alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"-fsanitize={options.sanitize}"] if options.sanitize else []
        library = build(Path(folder), jax.ffi.include_dir(), *flags)
        host, module = Host(library), load(options.backend)
    hostile = Hostile(host, module)
    if options.backend == "native":
        check_ways_at_once(host, module)
    counts = Counter(answered=0, refused=0)
    for number in range(options.calls) if options.only is None else [options.only]:
        if sys.stderr.isatty():
            print(f"\rcall {number}", end=" ", file=sys.stderr, flush=True)  # the last one, if it ends the process
        try:
            outcome = hostile.call(options.seed, number)
        except Exception:
            print(f"python tests/hostile.py --backend {options.backend} --seed {options.seed} --only {number}")
            raise
        if options.only is not None:
            print(*outcome, sep="\n")
        counts[outcome.name] += 1
    print(f"{options.backend}, seed {options.seed}:", ", ".join(f"{count:,} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
