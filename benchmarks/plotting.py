"""One look for all plots, and SVG files that do not change when nothing has."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"

OURS, OURS_LIGHT, OTHER, GREY = "#0b6fb8", "#7fb8e0", "#d95f02", "#777777"

plt.rcParams.update(
    {
        "svg.hashsalt": "jax_rtopk",
        "figure.facecolor": "white",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
    }
)


def save(figure: plt.Figure, name: str) -> None:
    path = DOCS / f"{name}.svg"
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    print(f"wrote {path.relative_to(ROOT)}")


def write_readme(section: str, text: str) -> None:
    """Puts text between the README's comments that begin and end a section."""
    path = ROOT / "README.md"
    pattern = re.compile(f"(?<=<!-- begin: {section} -->\n).*(?=\n<!-- end: {section} -->)", re.DOTALL)
    before = path.read_text()
    if not pattern.search(before):
        raise ValueError(f"README.md has no section {section}")
    path.write_text(pattern.sub(lambda _: text, before))
    print(f"wrote README.md, {section}")
