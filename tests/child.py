"""Pythons that tests start."""

import os
import subprocess
import sys


def environment(*folders, **variables):
    """This process's, without what conftest.py has set; modules are found as here, in other folders before."""
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    path = os.pathsep.join([*map(str, folders), *sys.path])
    return kept | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **variables}


def run_python(*arguments, folders=(), **variables):
    """Runs one to its end, which must come within two minutes."""
    return subprocess.run(
        [sys.executable, "-P", *map(str, arguments)],
        env=environment(*folders, **variables),
        capture_output=True,
        text=True,
        timeout=120,
    )
