"""Which implementation runs, and what the package does where native modules are missing or broken."""

import re
import shutil
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from child import run_python

import jax_rtopk
from jax_rtopk import _compat, _native, topk, topk_mask, topk_sparsify

FUNCTIONS = [topk, topk_mask, topk_sparsify]


def calls_native(function, **arguments):
    lowered = jax.jit(lambda x: function(x, 3, **arguments)).lower(jnp.ones((4, 8)))
    return "jax_rtopk_" in lowered.as_text()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_implementation(backend, function):
    assert calls_native(function) == backend.native
    assert not calls_native(function, implementation="xla")
    if backend.native:
        assert calls_native(function, implementation="native")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_native_that_is_not_there(function, monkeypatch):
    monkeypatch.setattr(_native, "BACKENDS", {})
    jax.clear_caches()
    x = jnp.ones((4, 8))
    message = r'implementation="native" needs native code for the platform.* has it for: none.*JAX_RTOPK_CUDA=ON'
    with pytest.raises(NotImplementedError, match=message):
        function(x, 3, implementation="native")
    with pytest.raises(NotImplementedError, match=message):
        jax.jit(lambda x: function(x, 3, implementation="native"))(x)
    assert jax.tree.leaves(function(x, 0, implementation="native"))  # an empty selection needs no native code


def run_with(folder, code):
    """Runs a program with the package in this folder."""
    # -S: or an editable install's import hook would put the source folder first.
    return run_python("-S", "-W", "error", "-c", code, folders=[folder])


@pytest.fixture
def pure_python(tmp_path):
    """A checkout: the package's Python files alone."""
    package = tmp_path / "jax_rtopk"
    package.mkdir()
    for source in Path(jax_rtopk.__file__).parent.glob("*.py"):
        shutil.copy(source, package)
    return tmp_path


def test_without_native_modules(pure_python):
    code = """
import jax_rtopk, jax_rtopk._native, jax.numpy as jnp
assert jax_rtopk._native.BACKENDS == {}, jax_rtopk._native.BACKENDS
print(jax_rtopk.topk(jnp.array([1.0, 3.0, 2.0]), 2).indices.tolist())
"""
    done = run_with(pure_python, code)
    assert (done.stdout, done.returncode) == ("[1, 2]\n", 0), done.stderr


def test_the_source_folder_is_told_from_an_installed_package(pure_python):
    (pure_python / "pyproject.toml").touch()
    done = run_with(pure_python, "from jax_rtopk import __main__; __main__.main()")
    assert f"this is the source folder {pure_python / 'jax_rtopk'}, not the installed package" in done.stdout


def test_broken_native_module_is_reported(pure_python):
    (pure_python / "jax_rtopk" / "_cpu.py").write_text("import no_such_library")
    done = run_with(pure_python, "import jax_rtopk")
    assert done.returncode == 1
    assert "No module named 'no_such_library'" in done.stderr


@pytest.mark.parametrize("name", ["AVX2", "sse"])
def test_an_instruction_set_that_there_is_not_is_refused(name):
    done = run_python("-c", "import jax_rtopk", JAX_RTOPK_SIMD=name)
    assert done.returncode == 1
    assert "JAX_RTOPK_SIMD must name an instruction set of this architecture (" in done.stderr
    assert f'), got "{name}". Unset it' in done.stderr


def test_import_leaves_jax_to_be_configured():
    """Registering targets must not start JAX's back ends."""
    code = """
import jax, jax_rtopk
jax.config.update("jax_num_cpu_devices", 3)
print(jax.device_count())
"""
    done = run_with(Path(jax_rtopk.__file__).parents[1], code)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr
    assert "custom call" not in done.stderr  # XLA complains of targets that are declared twice


LACKS_A_NAME = "import jax.interpreters.mlir; del jax.interpreters.mlir.register_lowering"
REFUSES_HANDLERS = """
def refuse(*_, **__):
    raise RuntimeError("unsupported FFI API version")
jax.ffi.register_ffi_target = refuse
"""


@pytest.mark.parametrize(
    ("version", "breakage", "error"),
    [
        ("0.99.0", LACKS_A_NAME, "has no attribute 'register_lowering'"),
        ("0.6.2", REFUSES_HANDLERS, "unsupported FFI API version"),
    ],
)
def test_another_jax_that_will_not_do(pure_python, version, breakage, error):
    (pure_python / "jax_rtopk" / "_cpu.py").write_text("def targets(): return {'jax_rtopk_topk': None}")
    done = run_with(pure_python, import_beside(version, breakage))
    assert done.returncode == 1
    supported = f"ImportError: jax_rtopk: this release supports jax 0.7.1 to {newest()}, got {version}, "
    assert supported in done.stderr
    assert re.search(rf"pip install 'jax>=0\.7\.1,<0\.\d+'\. What failed: .*{error}", done.stderr)


def test_errors_beside_a_supported_jax_stay_as_they_are(pure_python):
    done = run_with(pure_python, import_beside(newest(), LACKS_A_NAME))
    assert done.stderr.splitlines()[-1].startswith("AttributeError: ")


def import_beside(version, breakage):
    """A program that imports the package as if beside another version of JAX."""
    numbers = tuple(map(int, version.split(".")))
    return f"import jax; jax.__version__, jax.__version_info__ = {version!r}, {numbers}\n{breakage}\nimport jax_rtopk"


def newest():
    return ".".join(map(str, _compat.NEWEST))


def test_the_oldest_jax_is_the_one_that_the_package_demands():
    assert f"jax>={'.'.join(map(str, _compat.OLDEST))}" in metadata.requires("jax_rtopk")


def test_public_names():
    selections = {"approx_topk", "sharded_topk", "topk", "topk_mask", "topk_sparsify"}
    recall = {"BucketPlan", "expected_recall", "expected_recall_early_stop", "plan_buckets", "recall_variance"}
    sparse = {"CSRGraph", "neighbor_sum", "sampled_dense_matmul", "sparse_dense_matmul"}
    assert set(jax_rtopk.__all__) == selections | recall | sparse | {"TopK", "accelerate", "export_disabled_checks"}
    assert jax_rtopk.__version__[0].isdigit()
