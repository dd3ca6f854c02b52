"""Which CUDA kernel takes which rows: cuda/policy.h and the choice in cuda/kernels.cuh, for tools that read or run the
compiled kernels.

A kernel that is named here and not in the binary, or is launched in another way than it expects, fails there: this file
must follow those two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from search_spec import GROUPS, RESOLVED, SearchPlan

WARP = 32
WARP_BLOCK = 4 * WARP  # threads of a block whose warps have rows of their own
MANGLED = {1: "h", 2: "t", 4: "j", 8: "m"}  # unsigned integers, by size


@dataclass(frozen=True)
class Launch:
    """A kernel that returns values and indices, and how it is launched."""

    name: str  # a part of its mangled name that no other kernel has
    threads: int  # a block
    lanes: int  # a row; as many as threads where a block has one row at a time
    packs: int  # of 16 bytes that a thread holds; 0: the row stays in memory
    chunks: int  # a pack (SearchPlan)
    team_bytes: int  # shared memory for each row that a block has at a time
    slots: int = 0  # survivors of the quick way that a lane takes; 0: rows do not go it

    @property
    def shared_bytes(self) -> int:
        return self.threads // self.lanes * self.team_bytes


@dataclass(frozen=True)
class QuickPlan:
    """QuickPlan of cuda/quick_plan.h."""

    place: int
    turn: int
    spare: int
    stride: int
    early: bool
    reach: int

    @staticmethod
    def make(plan: SearchPlan, room: int, *, early: bool) -> QuickPlan:
        index = int(np.clip(plan.rank + plan.spread, 0, plan.groups - 1))
        ascending = index >= GROUPS // 2
        most = min(room, RESOLVED) if early else room
        return QuickPlan(
            place=GROUPS - index if ascending else index + 1,
            turn=2**31 - 1 if ascending else -(2**31),
            spare=most - plan.k if plan.groups == GROUPS and plan.k < most else 0,
            stride=int(np.float32(0.8) * 256 * plan.slope) * ascending,
            early=early,
            reach=index + 1,
        )


def staged_room(n: int, k: int, item_bytes: int, *, is_sorted: bool) -> int:
    """Places in shared memory for the results of a row, where it has some."""
    by_rank = is_sorted and item_bytes == 4 and 128 < n <= 1024 and k <= WARP
    return -(-k // 16) * 16 if by_rank else k


def launch_of(
    n: int, k: int, item_bytes: int, *, is_sorted: bool = False, few_rows: bool = False, in_parts: bool = True
) -> Launch:
    """The launch of topk for rows of n elements of up to four bytes; of rows in parts, if they may be, the first of
    three. Few long rows that may not are selected from by digits: this is what takes many of them.
    """
    letter, pack = MANGLED[item_bytes], 16 // item_bytes
    sink = f"NS0_8PairSinkI{letter}EE"
    staged = 8 * staged_room(n, k, item_bytes, is_sorted=is_sorted)  # a key and an index each
    if n <= 1024:
        size = max(32, 1 << (n - 1).bit_length())
        chunk = SearchPlan.make(n, k, item_bytes).chunk
        wanted = 32 if size > 128 else size // 16
        lanes = min(max(min(wanted, 32 * chunk * item_bytes // 16), 2), 32)
        packs = size // pack // lanes
        if k == 1:
            return Launch(f"first_in_warpI{letter}Li{lanes}ELi{packs}E", WARP_BLOCK, lanes, packs, 1, 0)
        name = f"select_in_warpI{letter}Li{lanes}ELi{packs}ELi{pack // chunk}E{sink}"
        slots = (2 if packs * pack <= 8 else 4) if lanes == 32 and item_bytes in (2, 4) else 0
        team_bytes = max(8 * WARP * slots, (4 * RESOLVED + staged + 15) // 16 * 16)
        return Launch(name, WARP_BLOCK, lanes, packs, pack // chunk, team_bytes, slots)
    small_parts, large_parts = -(-n // 4096), -(-n // 16384)
    few = few_rows and small_parts * k <= 16384 and 8 * small_parts * k <= n
    in_parts = in_parts and n > 16384 and (few or 8 * large_parts * k <= n)
    threads, keys = (256, 16) if n <= 4096 or (in_parts and few) else (512, 32)
    team = f"NS0_9BlockTeamILi{threads}EEE"
    if n <= threads * keys or in_parts:
        row, packs = f"RegisterRowI{letter}{team}Li{keys // pack}ELi1EEE", keys // pack
    else:
        row, packs = f"StreamedRowI{letter}{team}EE", 0
    if k == 1 and not in_parts:
        return Launch(
            f"first_in_blockI{letter}Li{threads}ENS0_11{row}", threads, threads, packs, 1, 2 * threads // WARP * 4
        )
    name = f"select_{'part_' if in_parts else ''}in_blockI{letter}Li{threads}ENS0_11{row}{sink}"
    stage = staged if is_sorted and staged <= 47 * 1024 and not in_parts else 0
    return Launch(name, threads, threads, packs, 1, 2 * threads // WARP * 4 + max(4 * threads, stage))
