"""What the assembler made of the CUDA kernels: the installed package's module, read by a disassembler.

What is asked for here is what the kernels' speed hangs on and what can be seen without a GPU.
"""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import cuda_binary
import pytest
from cuda_policy import launch_of
from test_packaging import module_file

ARCH = "90"  # registers and warps below are for it
FAULTS = Path(__file__).parent / "cuda_binary_faults.cu"
WARPS = {256: 40}  # a multiprocessor is to hold at least, by n; fewer could not keep its memory busy

pytestmark = pytest.mark.skipif(cuda_binary.disassembler() is None, reason="needs cuobjdump")


def complaints(binary, kernel, *, packs, warps=0):
    """What is wrong with a kernel whose threads load `packs` times 16 bytes of a row at a time."""
    code = cuda_binary.machine_code(binary, ARCH, kernel)
    loop = cuda_binary.row_loop(code)
    resources = cuda_binary.resources(binary, ARCH)[kernel]
    room = cuda_binary.warps_by_registers(resources.registers)
    if not loop:
        yield "no loop that loads"
    if cuda_binary.spills(code):
        yield f"spills: {cuda_binary.spills(code)} instructions"
    if resources.stack or resources.local:
        yield f"stack: {resources.stack + resources.local} bytes"
    if cuda_binary.load_widths(loop).get(16, 0) < packs:
        yield f"narrow loads: {cuda_binary.load_widths(loop)} by width, {packs} of 16 bytes wanted"
    elif cuda_binary.loads_at_once(loop, 16) < packs:
        yield f"loads that wait for each other: {cuda_binary.loads_at_once(loop, 16)} at a time, not {packs}"
    if cuda_binary.convergence_checks(loop):
        yield f"convergence checks: {cuda_binary.convergence_checks(loop)}"
    if room < warps:
        yield f"registers: {resources.registers} leave room for {room} warps, {warps} wanted"


@cache
def installed():
    """The module and its kernels' resources on ARCH."""
    module = module_file("_cuda")
    resources = cuda_binary.resources(module, ARCH)
    if not resources:
        pytest.skip(f"this build has no kernels for {ARCH}")
    return module, resources


def test_no_kernel_has_a_stack():
    _, resources = installed()
    assert [name for name, of_kernel in resources.items() if of_kernel.stack or of_kernel.local] == []


@pytest.mark.parametrize("item_bytes", [4, 2])
@pytest.mark.parametrize(
    ("n", "k"), [(64, 8), (256, 32), (1024, 64), (4096, 64), (16384, 64), (65536, 64), (65536, 4096)]
)
@pytest.mark.parametrize("few_rows", [False, True])
def test_main_kernels(n, k, item_bytes, few_rows):
    module, resources = installed()
    launch = launch_of(n, k, item_bytes, few_rows=few_rows)
    (kernel,) = [name for name in resources if launch.name in name]
    assert list(complaints(module, kernel, packs=launch.packs or 1, warps=WARPS.get(n, 0))) == []


@pytest.mark.parametrize("item_bytes", [4, 2])
@pytest.mark.parametrize("n", [64, 256, 1024, 4096, 16384, 65536])
def test_kernels_for_a_k_of_1(n, item_bytes):
    module, resources = installed()
    launch = launch_of(n, 1, item_bytes, in_parts=False)
    (kernel,) = [name for name in resources if launch.name in name]
    assert list(complaints(module, kernel, packs=launch.packs or 1, warps=WARPS.get(n, 0))) == []


@pytest.mark.parametrize("width", "tj")
@pytest.mark.parametrize("name", ["count_digits", "count_in_parts", "emit_parts"])
def test_kernels_by_digits(name, width):
    """A thread reads a pack at a time, so it takes many of them to keep memory busy: to count, all there can be."""
    module, resources = installed()
    kernels = [kernel for kernel in resources if f"{name}I{width}" in kernel]
    assert len(kernels) == (3 if name == "emit_parts" else 1)
    for kernel in kernels:
        assert list(complaints(module, kernel, packs=1, warps=32 if name == "emit_parts" else 64)) == []


@pytest.mark.parametrize(("bucket_k", "most"), [(1, 3), (2, 6)])
def test_first_stage_of_buckets(bucket_k, most):
    """Instructions an element of float32 rows, where columns are long and enough elements have no sign."""
    module, resources = installed()
    (kernel,) = [name for name in resources if f"select_through_bucketsIjLi128ELi{bucket_k}E" in name]
    code = cuda_binary.machine_code(module, ARCH, kernel)
    loops = [loop for loop in cuda_binary.inner_loops(code) if 16 in cuda_binary.load_widths(loop)]
    assert [cuda_binary.loads_at_once(loop, 16) for loop in loops] == [4] * len(loops)
    assert min(map(len, loops)) <= 4 * 4 * most
    assert cuda_binary.spills(code) == 0
    assert cuda_binary.warps_by_registers(resources[kernel].registers) >= 24


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc")
    binary = tmp_path_factory.mktemp("faults") / "faults.cubin"
    subprocess.run([nvcc, f"-arch=sm_{ARCH}", "-cubin", "-o", binary, FAULTS], check=True)
    return binary


def test_a_correct_kernel_passes(faults):
    assert list(complaints(faults, "correct", packs=2, warps=64)) == []


@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        ("one_row", "no loop that loads"),
        ("narrow_loads", "narrow loads: {4: 4} by width"),
        ("waiting_loads", "loads that wait for each other: 1 at a time"),
        ("spilling", "spills: "),
        ("on_stack", "stack: 128 bytes"),
        ("diverging", "convergence checks: 1"),
        ("many_registers", "registers: "),
    ],
)
def test_faults_are_reported(faults, kernel, complaint):
    found = list(complaints(faults, kernel, packs=2, warps=40))
    assert [text for text in found if text.startswith(complaint)], found
