"""Handlers that are called as XLA would not call them, and that are short of memory."""

import shutil
import sys

import allocation_worker
import ffi_host
import jax
import kernel_ways
import pytest
from child import run_python
from hostile import Hostile

from jax_rtopk import _native

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
    outcomes = [hostile.call(0, number) for number in range(CALLS[backend.name])]
    answered = sum(outcome.name == "answered" for outcome in outcomes)
    refused = sum("jax_rtopk: " in (outcome.error or "") for outcome in outcomes)  # by us, not by XLA's bindings
    assert min(answered, refused) > len(outcomes) / 5


@pytest.mark.parametrize("worker", [kernel_ways, allocation_worker], ids=["calls at once share a pool", "no memory"])
def test_in_a_process_of_its_own(library, worker):
    """Which may wait for ever, or has its own operator new."""
    done = run_python(worker.__file__, library)
    assert done.returncode == 0, done.stderr
