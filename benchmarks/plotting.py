"""One look for all plots, and SVG files that do not change when nothing has."""

from __future__ import annotations

import matplotlib as mpl
from sections import ROOT

mpl.use("svg")
import matplotlib.pyplot as plt

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
