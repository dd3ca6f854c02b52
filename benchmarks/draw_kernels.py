"""Draws the pictures of docs/kernels.md: python benchmarks/draw_kernels.py."""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from plotting import GREY, OTHER, OURS, OURS_LIGHT, plt, save
from sections import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from cuda_policy import launch_of
from row_kinds import float32_keys, make_rows
from search_spec import Search, SearchPlan, groups_of

plt.rcParams["svg.fonttype"] = "none"  # the many numbers are text, not outlines

LANES = 32
LIGHT, GREEN = "#e6e6e6", "#1b9e77"


def grid(ax: Axes, width: int, height: int, title: str) -> None:
    """Room for boxes of size one, the first row of them on top."""
    ax.set_xlim(-0.1, width + 0.1)
    ax.set_ylim(height + 0.1, -0.1)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set_title(title, loc="left", fontsize=9)


def box(ax: Axes, x: float, y: float, text: object, colour: str, size: float = 6.0) -> None:
    ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))
    ax.text(x + 0.5, y + 0.53, str(text), ha="center", va="center", fontsize=size)


def draw_rows() -> None:
    """Which pack of 16 bytes is whose."""
    figure, axes = plt.subplots(
        4, 1, figsize=(9, 5.2), layout="constrained", gridspec_kw={"height_ratios": [4.5, 2.5, 4.5, 2.5]}
    )
    several, whole, block, streamed = axes
    launch = launch_of(64, 8, 4)
    grid(
        several,
        LANES,
        launch.packs,
        f"several rows a warp (n = 64, float32): {launch.lanes} lanes a row. Columns are the lanes of a warp, numbers "
        "the packs of a row;\na colour is a row",
    )
    for lane in range(LANES):
        for place in range(launch.packs):
            colour = OURS_LIGHT if lane // launch.lanes % 2 else LIGHT
            box(several, lane, place, place * launch.lanes + lane % launch.lanes, colour)
    launch = launch_of(256, 32, 4)
    grid(whole, LANES, launch.packs, "a warp a row (n = 256, float32): 2 loads of 512 consecutive bytes")
    for lane in range(LANES):
        for place in range(launch.packs):
            box(whole, lane, place, place * LANES + lane, LIGHT)
    launch = launch_of(4096, 64, 4)
    grid(
        block,
        LANES,
        launch.packs,
        f"a block a row (n = 4096, float32): {launch.threads // LANES} warps, of which each column stands for a "
        "quarter; numbers are the first packs",
    )
    columns = 4 * launch.threads // LANES
    for column in range(columns):
        for place in range(launch.packs):
            colour = OURS_LIGHT if column // 4 % 2 else LIGHT
            box(block, column, place, place * launch.threads + column * 8, colour, 4.5)
    grid(
        streamed,
        LANES,
        2,
        "a row that stays in memory (n > 16384, float32, many rows or max_iter): each sweep reads it again in rounds "
        "of 512 packs; numbers are the first packs",
    )
    for column in range(LANES):
        box(streamed, column, 0, f"{column * 512}", OURS_LIGHT if column == 3 else LIGHT, 4.5)
    streamed.annotate("", (7, 1.5), (0, 1.5), arrowprops={"arrowstyle": "->", "color": OURS})
    streamed.text(7.3, 1.5, "a thread has one pack at a time", va="center", fontsize=8, color=OURS)
    save(figure, "kernels_rows")
    plt.close(figure)


def draw_groups() -> None:
    """Which element counts for which group, and what group 9 consists of."""
    plan = SearchPlan.make(256, 32, 4)
    group, _ = groups_of(plan)
    figure, ax = plt.subplots(figsize=(9, 2.9), layout="constrained")
    packs = plan.n // plan.chunk // LANES
    grid(
        ax,
        LANES,
        packs * (plan.chunk + 0.5),
        "groups of a row of 256 float32: columns are lanes, a pack is four boxes on top of each other, numbers are "
        "groups.\nGroup 9 is blue; a pack's four elements (orange) count for four groups far apart",
    )
    for element in range(plan.n):
        pack, place = divmod(element, plan.chunk)
        round_, lane = divmod(pack, LANES)
        colour = OURS_LIGHT if group[element] == 9 else ("#f5c6a0" if pack == 20 else LIGHT)
        box(ax, lane, round_ * (plan.chunk + 0.5) + place, group[element], colour)
    save(figure, "kernels_groups")
    plt.close(figure)


def draw_search() -> None:
    """A row on its way from the group maxima to the answer."""
    k = 32
    row = make_rows("normal", 1, 256, seed=3)
    keys = float32_keys(row)
    search = Search(keys, k, 4)
    group, _ = groups_of(search.plan)
    low, high = (int(pivot[0]) for pivot in search.pivots())
    of_keys = keys[0].astype(np.int64)
    values = row[0]
    maximum = np.array([of_keys[group == group[i]].max() == of_keys[i] for i in range(256)])
    above, inside = of_keys >= high, (of_keys >= low) & (of_keys < high)
    order = np.argsort(-of_keys)
    selected = np.isin(np.arange(256), order[:k])
    bottom, top, kth = values[of_keys >= low].min(), values[above].min(), values[order[k - 1]]

    figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
    index = np.arange(256)
    ax.axhspan(bottom, top, color="#fbe3d2", zorder=0)
    ax.plot(index, values, ".", color=GREY, markersize=3)
    ax.plot(index[maximum], values[maximum], "o", mfc="none", color=OURS, markersize=7, label="the 32 group maxima")
    ax.plot(index[above], values[above], ".", color=GREEN, label="above the bracket: certain members")
    sure = inside & selected
    ax.plot(index[sure], values[sure], ".", color=OTHER, label="in the bracket, selected after it is ordered")
    for value, name, count, side in (
        (top, "high", above.sum(), "bottom"),
        (bottom, "low", (above | inside).sum(), "top"),
    ):
        ax.axhline(value, color=OTHER, linewidth=0.8)
        ax.text(257, value, f"{name} pivot: {count} keys", va=side, fontsize=8, color=OTHER)
    ax.axhline(kth, color=GREEN, linewidth=0.8, linestyle="--")
    ax.text(257, kth, "k-th largest", va="top", fontsize=8, color=GREEN)
    ax.set_xlim(-2, 300)
    ax.set_xticks(range(0, 257, 32))
    ax.set_ylim(-3.2, None)
    ax.set(xlabel="element", ylabel="value")
    ax.set_title(
        f"n = 256, k = {k}: one pass counts both pivots, the {inside.sum()} keys between them are sorted", loc="left"
    )
    ax.legend(loc="lower left", ncols=3, fontsize=8)
    save(figure, "kernels_search")
    plt.close(figure)


def draw_network() -> None:
    """The bitonic network for 8 words: what is compared when, and where the larger goes."""
    words = 8
    figure, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
    x = 0.0
    size = 2
    while size <= words:
        distance = size // 2
        begin = x
        while distance:
            for word in range(words):
                if word & distance == 0:
                    x += 0.18
                    descending = word & size == 0
                    tail, head = (word + distance, word) if descending else (word, word + distance)
                    ax.annotate(
                        "",
                        (x, head),
                        (x, tail),
                        arrowprops={"arrowstyle": "->", "color": OURS, "shrinkA": 0, "shrinkB": 0},
                    )
            x += 0.45
            distance //= 2
        ax.text((begin + x) / 2, -0.9, f"runs of {size}", ha="center", fontsize=8)
        x += 0.4
        size *= 2
    for word in range(words):
        ax.plot([0, x], [word, word], color=GREY, linewidth=0.6, zorder=0)
        ax.text(-0.1, word, f"word {word}", ha="right", va="center", fontsize=8)
    ax.set_xlim(-1, x + 0.1)
    ax.set_ylim(words - 0.5, -1.3)
    ax.axis("off")
    ax.set_title(
        "a bitonic network for 8 words, largest first: the larger of two goes where the arrow points", loc="left"
    )
    save(figure, "kernels_network")
    plt.close(figure)


def draw_digits() -> None:
    """A long row: its two first digits, and where the results of its parts belong."""
    n, k, parts = 1 << 20, 30000, 4
    keys = float32_keys(make_rows("normal", 1, n, seed=3))[0]
    figure, (first, second, places) = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
    inside, left, known = np.ones(n, bool), k, ""
    for ax, shift, name in ((first, 21, "first"), (second, 10, "second")):
        digits = (keys[inside] >> shift) & 2047
        counts = np.bincount(digits, minlength=2048)
        above = np.cumsum(counts[::-1])[::-1] - counts
        (found,) = np.flatnonzero((above < left) & (left <= above + counts))
        for bin_ in range(found - 24, found + 12):
            colour = OTHER if bin_ == found else (GREEN if bin_ > found else GREY)
            ax.bar(bin_, counts[bin_], color=colour, width=0.9)
        ax.set_title(
            f"{name} digit of {inside.sum():,} keys{known}:\n{above[found]:,} above {found}", loc="left", fontsize=8
        )
        ax.set(xlabel="digit")
        left -= above[found]
        known = f" that begin with {found}"
        inside &= (keys >> shift & 2047) == found
    kth = np.sort(keys)[n - k]
    begin = 0
    for part, of_part in enumerate(np.split(keys, parts)):
        chosen = int((of_part >= kth).sum())
        places.barh(part, chosen, left=begin, color=OURS_LIGHT if part % 2 else LIGHT, edgecolor="white")
        places.text(begin + chosen / 2, part, f"{chosen:,}", ha="center", va="center", fontsize=7)
        begin += chosen
    assert begin == k
    places.set_yticks(range(parts), [f"part {part}" for part in range(parts)])
    places.invert_yaxis()
    places.set(xlabel="place among the results")
    places.set_title(
        "each part knows from the counts of those\nbefore it where its results belong", loc="left", fontsize=8
    )
    save(figure, "kernels_digits")
    plt.close(figure)


if __name__ == "__main__":
    draw_rows()
    draw_digits()
    draw_groups()
    draw_search()
    draw_network()
