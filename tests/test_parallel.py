"""cpu/parallel.h, compiled and run by itself, under the thread sanitizer where the compiler has one."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("sanitizer", ["thread", "address"])
def test_every_task_runs_once_on_any_pool(tmp_path: Path, sanitizer: str) -> None:
    program = tmp_path / "parallel_test"
    flags = ["-std=c++20", "-O1", "-g", "-pthread", f"-fsanitize={sanitizer}", f"-I{ROOT}"]
    subprocess.run(["g++", *flags, str(ROOT / "tests/parallel_test.cc"), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
