"""`python -m jax_rtopk`."""

import jax
import pytest

import jax_rtopk
from jax_rtopk import TopK, __main__, _native, topk


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(__main__, "_TIMED_SHAPES", ((8, 64, 8), (1, 1000, 64)))
    monkeypatch.setattr(__main__, "_CHECKED_SHAPES", ((16, 256, 32),))
    monkeypatch.setattr(__main__, "_CHECKED_DTYPES", ("int32",))


def report(capsys):
    status = __main__.main()
    return status, capsys.readouterr().out.splitlines()


def test_report(capsys):
    status, lines = report(capsys)
    assert status == 0
    assert lines[0].startswith(f"jax_rtopk {jax_rtopk.__version__}, jax {jax.__version__}, jaxlib ")
    assert lines[1] == f"native code for cpu:  {_native.BACKENDS['cpu'].module.simd_level()}"
    assert lines[2].startswith("native code for cuda: ")
    assert lines[3].endswith("where topk is native")
    assert lines[5].startswith("self-check: every answer equals")
    columns = "rows x n, k jnp.max lax.top_k topk unsorted 2 passes sparsify"
    assert lines[8].split() == columns.split()
    table = [line.split() for line in lines[9:]]
    assert [row[:4] for row in table] == [["8", "x", "64,", "8"], ["1", "x", "1000,", "64"]]
    assert all(float(cell) > 0 for row in table for cell in row[4:])
    assert all(len(row) == 4 + 6 for row in table)


def test_report_without_native_code(capsys, monkeypatch):
    monkeypatch.setattr(_native, "BACKENDS", {})
    status, lines = report(capsys)
    assert status == 1
    assert lines[1:3] == ["native code for cpu:  not built", "native code for cuda: not built"]
    assert lines[3].endswith("where topk is pure JAX")
    assert lines[5].startswith("no native code, so nothing to check or time: ")
    assert len(lines) == 6


def test_wrong_answers_are_reported(capsys, monkeypatch):
    def wrong(x, k, *, implementation=None, **arguments):
        values, indices = topk(x, k, implementation=implementation, **arguments)
        return TopK(values, indices if implementation == "xla" else indices + 1)

    monkeypatch.setattr(__main__, "topk", wrong)
    status, lines = report(capsys)
    assert status == 1
    assert [line for line in lines if "WRONG" in line] == [
        "self-check: WRONG indices of int32[16,256], k=32",
        "self-check: WRONG smallest, unsorted of int32[16,256], k=32",
    ]


def test_help_and_unknown_arguments(capsys):
    with pytest.raises(SystemExit) as done:
        __main__.main(["--help"])
    assert done.value.code == 0
    assert "python -m jax_rtopk" in capsys.readouterr().out
    with pytest.raises(SystemExit) as done:
        __main__.main(["--fast"])
    assert done.value.code == 2
