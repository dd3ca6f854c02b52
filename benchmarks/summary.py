"""What is kept of timings, and of what they were taken with."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence

import numpy as np


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and number of samples, in milliseconds."""
    low, median, high = (float(f"{1e3 * q:.4g}") for q in np.quantile(seconds, (0.25, 0.5, 0.75)))
    return {"median_ms": median, "quartile_low_ms": low, "quartile_high_ms": high, "samples": len(seconds)}


def installed(*packages: str) -> dict[str, str]:
    """The versions of Python and of those of the packages that are there."""
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def described(machine: dict) -> str:
    """What a table says of the machine that it was measured on."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if name != "jaxlib")
    return f"{machine['cpu']}, {machine['simd']}, {machine['cores']} cores; {versions}."
