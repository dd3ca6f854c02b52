"""What is timed on a GPU and in which order: what matters most first, since time runs out before the list does.

Knows nothing of JAX or torch: the processes that time the one and the other read the same list.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

ROWS = (65536, 1 << 20)
LENGTHS = (64, 256, 512, 768, 1024, 4096, 8192)
KS = (8, 16, 32, 64, 128)
DTYPES = {"float32": 4, "bfloat16": 2}  # with the bytes of an element
KINDS = ("normal", "uniform", "varying scale", "ReLU")
PASSES = (2, 3, 4, 6, 8)

# "unsorted" and "sorted" are exact; "max_iter=<passes>" is unsorted; "recall=<share>" is approx_topk, sorted.
USUAL_MODES = ("unsorted", "sorted", "max_iter=2")
ALL_MODES = ("unsorted", "sorted", *(f"max_iter={passes}" for passes in PASSES))
APPROX_MODE = "recall=0.95"

ROTATED_BYTES = 2 << 30  # operands that take turns have about so many bytes together: many times any L2 cache
MOST_BUFFERS = 32


@dataclass(frozen=True)
class Case:
    """Rows with their k, and the modes in which ours is timed on them."""

    rows: int
    n: int
    k: int
    dtype: str = "float32"
    kind: str = "normal"
    group: str = field(default="", compare=False)
    modes: tuple[str, ...] = field(default=USUAL_MODES, compare=False)

    @property
    def name(self) -> str:
        """For people: what differs from normal float32 rows is said."""
        extra = [text for text, usual in ((self.dtype, "float32"), (self.kind, "normal")) if text != usual]
        return ", ".join([f"{self.rows}x{self.n}, k={self.k}", *extra])

    @property
    def operand_bytes(self) -> int:
        """Of the rows."""
        return self.rows * self.n * DTYPES[self.dtype]

    @property
    def moved_bytes(self) -> int:
        """The fewest bytes that must move: the operand read, values and indices written."""
        return self.operand_bytes + self.rows * self.k * (DTYPES[self.dtype] + 4)

    @property
    def buffers(self) -> int:
        """How many operands take turns, so that none is in the L2 cache when its turn comes; a power of two."""
        buffers = 1
        while buffers < MOST_BUFFERS and buffers * self.operand_bytes < ROTATED_BYTES:
            buffers *= 2
        return buffers


def planned() -> list[Case]:
    """Every case, in the order in which they are timed."""
    few, many = (Case(rows, 256, 32) for rows in ROWS)
    cases = [replace(case, group="goals", modes=ALL_MODES) for case in (few, many)]
    cases += [replace(few, k=k, group="by k") for k in KS]
    cases += [replace(few, n=n, group="by n") for n in LENGTHS]
    cases += [replace(few, dtype="bfloat16", group="bfloat16")]
    long = [
        Case(4096, 16384, 128),
        Case(512, 65536, 256),
        Case(512, 65536, 256, dtype="bfloat16"),
        Case(64, 131072, 64),
    ]
    cases += [replace(case, group="approximate", modes=("sorted", APPROX_MODE)) for case in long]
    cases += [replace(few, kind=kind, group="by kind") for kind in KINDS]
    cases += [Case(1, 1 << 24, k, group="one long row") for k in (32, 1 << 18)]
    cases += [replace(many, n=n, group="by n, many rows") for n in LENGTHS]
    cases += [replace(few, n=n, dtype="bfloat16", group="bfloat16 by n") for n in LENGTHS]
    cases += [replace(many, k=k, group="by k, many rows") for k in KS]
    cases += [replace(many, kind=kind, group="by kind, many rows") for kind in KINDS]
    cases += [
        Case(rows, n, k, dtype, kind, group="everything else", modes=ALL_MODES)
        for rows, dtype, kind, n, k in product(ROWS, DTYPES, KINDS, LENGTHS, KS)
        if k < n
    ]
    return list(dict.fromkeys(cases))  # the first of equal ones


def rehearsed() -> list[Case]:
    """The first of each group, made small enough for a CPU."""
    first = {case.group: case for case in reversed(planned())}
    small = [replace(case, rows=min(case.rows, 64), n=min(case.n, 4096)) for case in reversed(first.values())]
    return list(dict.fromkeys(small))
