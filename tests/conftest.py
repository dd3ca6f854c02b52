"""The back ends that the suite runs on: each test that uses the fixture `backend` runs once on each."""

import os

# Before JAX starts: 8 devices, so that sharded programs are tested on any machine.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

from contextlib import contextmanager
from dataclasses import dataclass

import jax
import numpy as np
import pytest
from cuda_emulator import build as emulator

from jax_rtopk import _native


@dataclass(frozen=True)
class BackendUnderTest:
    name: str
    devices: list[jax.Device]

    @property
    def native(self):
        return self.name != "xla"

    @property
    def takes_large(self):
        """Whether operands of gigabytes are a matter of seconds."""
        return self.name in ("native", "gpu")

    @property
    def max_n(self):
        """How long rows may get in tests that only want them long."""
        return 3000 if self.name == "emulated" else 70000


def _has_gpu():
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


def _emulated():
    """The CUDA kernels, run on the CPU by the emulator, in the place of the CPU's."""
    return _native.register(emulator.load(), "cpu", prefix="jax_rtopk_emulated_")


INSTALLED = _native.BACKENDS

# Name -> the table of native back ends to run with.
BACKENDS = {
    "native": lambda: INSTALLED,
    "xla": dict,
    "emulated": lambda: {"cpu": _emulated()},
    "gpu": lambda: INSTALLED,
}


def pytest_addoption(parser):
    # To be given with an equals sign: without one pytest would take "native" for the folder of that name, look for this
    # file in there and not know the option.
    parser.addoption(
        "--backends",
        default="native,xla,emulated" + (",gpu" if _has_gpu() else ""),
        help=f"comma-separated back ends to test, as --backends=native: {', '.join(BACKENDS)} (default: %(default)s)",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "native_only: a test of native code, so not for the pure-JAX definitions")
    config.addinivalue_line("markers", "cuda_only: a test of what only the CUDA kernels have")
    config.addinivalue_line("markers", "not_emulated: nothing in it is the CUDA kernels' own, and emulation is slow")


def pytest_report_header(config):
    return f"jax {jax.__version__}, back ends: {config.getoption('backends')}"


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        names = metafunc.config.getoption("backends").split(",")
        if metafunc.definition.get_closest_marker("native_only"):
            names = [name for name in names if name != "xla"]
        if metafunc.definition.get_closest_marker("cuda_only"):
            names = [name for name in names if name in ("emulated", "gpu")]
        if metafunc.definition.get_closest_marker("not_emulated"):
            names = [name for name in names if name != "emulated"]
        params = [pytest.param(name, marks=[pytest.mark.gpu] if name == "gpu" else []) for name in names]
        metafunc.parametrize("backend", params, indirect=True, scope="session")


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory):
    """Where XLA's compiled programs are kept, so that each is compiled once: back ends, and runs that are given one
    folder, have many in common. Each worker has a folder in there: JAX writes entries in place, and one that is half
    written must not be read."""
    folder = jax.config.jax_compilation_cache_dir or str(tmp_path_factory.mktemp("compiled_programs"))
    jax.config.update("jax_compilation_cache_dir", f"{folder}/{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True)
def installed_back_ends(request, monkeypatch):
    """Without `backend`, a test runs on what is installed, not on what the last test with it was given."""
    if "backend" in request.fixturenames or _native.BACKENDS is INSTALLED:
        yield
        return
    monkeypatch.setattr(_native, "BACKENDS", INSTALLED)
    jax.clear_caches()
    yield
    jax.clear_caches()


@contextmanager
def on(name):
    """Puts the back end of that name in place, and gives its devices."""
    table = BACKENDS[name]()
    platform = "cuda" if name == "gpu" else "cpu"
    assert name == "xla" or platform in table, f"jax_rtopk was built without native code for {platform}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_native, "BACKENDS", table)
        jax.clear_caches()  # of programs that were lowered for another back end
        devices = jax.devices(platform)
        with jax.default_device(devices[0]):
            yield devices
    jax.clear_caches()


@pytest.fixture(scope="session")
def backend(request):
    with on(request.param) as devices:
        yield BackendUnderTest(request.param, devices)


@pytest.fixture
def mesh(backend):
    """4 x 2 devices, or all that a machine with GPUs has."""

    def make(kind):
        devices = np.array(backend.devices[:8])
        if backend.name != "gpu":
            assert devices.size == 8
        shape = (4, 2) if devices.size == 8 else (devices.size, 1)
        return jax.sharding.Mesh(devices.reshape(shape), ("a", "b"), axis_types=(kind, kind))

    return make
