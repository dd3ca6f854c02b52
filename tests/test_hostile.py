"""Handlers that are called as XLA would not call them, and that are short of memory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ffi_host
import jax
import pytest
from hostile import Hostile, check_ways_at_once

from jax_rtopk import _cpu, _native

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="needs g++ and the memory protection of Linux"
)
CALLS = {"native": 3000, "emulated": 200}


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return ffi_host.build(tmp_path_factory.mktemp("ffi_host"), jax.ffi.include_dir())


@pytest.mark.native_only
def test_calls_are_refused_or_answered(backend, library):
    """`python tests/hostile.py` makes more of them."""
    if backend.name == "gpu":
        pytest.skip("its handlers take memory of the device")
    hostile = Hostile(ffi_host.Host(library), _native.BACKENDS["cpu"].module)
    errors = [hostile.call(0, number)[1] for number in range(CALLS[backend.name])]
    for outcome in (errors.count(None), sum(error is not None and "jax_rtopk: " in error for error in errors)):
        assert outcome > len(errors) / 5


def test_calls_that_share_a_pool(library):
    check_ways_at_once(ffi_host.Host(library), _cpu)


def test_memory_that_cannot_be_had_is_an_error(library):
    """In a process of its own, whose operator new is the test's."""
    worker = Path(__file__).with_name("allocation_worker.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-P", str(worker), str(library)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "allocations failed" in done.stdout
