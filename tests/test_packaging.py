"""What an installed package must hold."""

import importlib.util
import json
import shutil
import subprocess
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import pytest

import jax_rtopk

SOURCES = Path(__file__).parents[1] / "jax_rtopk"
MODULES = ["_cpu", "_cuda"]
SELECTIONS = ("topk", "mask", "sparsify", "bucketed")
OF_LONG_ROWS = ("topk_in_parts", "topk_by_digits", "mask_by_digits", "sparsify_by_digits")
SPARSE = ("gather_sum", "sampled_dot", "scatter_add", "neighbor_sum", "neighbor_dot", "edge_dot")


def module_file(name: str) -> Path:
    """Of a native module of the installed package; skips where there is none."""
    spec = importlib.util.find_spec(f"jax_rtopk.{name}")
    if spec is None:
        pytest.skip(f"this build has no {name}")
    return Path(spec.origin)


def test_what_the_wheel_holds():
    """The package, and of that no tests or native source; the licence."""
    installed = metadata.distribution("jax_rtopk")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        pytest.skip("an editable install is no wheel")
    paths = [path for path in installed.files if path.suffix != ".pyc"]
    info = f"jax_rtopk-{installed.version}.dist-info"
    assert {path.parts[0] for path in paths} == {"jax_rtopk", info}
    package = {path.name for path in paths if path.parts[0] == "jax_rtopk"}
    assert {path.name for path in SOURCES.glob("*.py")} == {name for name in package if name.endswith(".py")}
    assert {Path(name).suffix for name in package} == {".py", ".pyi", ".so", ".typed"}
    assert f"{info}/licenses/LICENSE" in map(str, paths)


def test_the_package_says_that_it_is_typed():
    assert files(jax_rtopk).joinpath("py.typed").is_file()


def test_the_cpu_module_is_always_built():
    assert importlib.util.find_spec("jax_rtopk._cpu")


@pytest.mark.parametrize("name", MODULES)
def test_native_modules_have_stubs(name):
    stub = module_file(name).parent / f"{name}.pyi"
    assert "def targets() -> dict[str, object]" in stub.read_text()


@pytest.mark.parametrize("name", MODULES)
def test_native_modules_offer_the_documented_targets(name):
    module_file(name)
    targets = importlib.import_module(f"jax_rtopk.{name}").targets()
    of_long_rows = OF_LONG_ROWS if name == "_cuda" else ()
    assert set(targets) == {f"jax_rtopk_{operation}" for operation in (*SELECTIONS, *of_long_rows, *SPARSE)}


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
@pytest.mark.parametrize("name", MODULES)
def test_native_modules_need_no_library_of_cuda(name):
    """So that they load beside any CUDA release of JAX, and where there is no GPU."""
    dynamic = subprocess.run(["readelf", "-d", module_file(name)], capture_output=True, text=True, check=True).stdout
    needed = [line for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed
    assert not [line for line in needed if "cuda" in line.lower() or "nv" in line.lower()]
