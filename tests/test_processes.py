"""Several processes, one device each, on this machine: the same answers as of one, and an error where one dies."""

import socket
import subprocess
import sys
from functools import partial

import jax
import numpy as np
import oracle
import process_worker
import pytest
from child import environment

from jax_rtopk import topk

TIME_OUT = 60  # seconds; they take some five


def run_processes(number, folder, *options):
    """Starts them, waits for all, and gives each one's exit status and output."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-P", process_worker.__file__, str(port), str(number)]
    started = [
        subprocess.Popen(
            [*command, str(i), str(folder), *options],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(number)
    ]
    try:
        outputs = [process.communicate(timeout=TIME_OUT)[0] for process in started]
        return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [2, 4])
def test_same_answers_as_of_one_process(tmp_path, number):
    for status, output in run_processes(number, tmp_path):
        assert status == 0, output
    parts = [np.load(tmp_path / f"{i}.npz") for i in range(number)]
    x = process_worker.operand()
    select = partial(topk, k=process_worker.K)
    want = {"values": np.asarray(select(x).values), "indices": np.asarray(select(x).indices)}
    gradient = np.asarray(jax.grad(partial(process_worker.loss, select))(x))
    for i, name in enumerate(want):
        oracle.assert_same(np.concatenate([part[f"batch {i}"] for part in parts]), want[name])
        for part in parts:
            oracle.assert_same(part[f"sharded {i}"], want[name])
    oracle.assert_same(np.concatenate([part["batch gradient 0"] for part in parts]), gradient)
    oracle.assert_same(np.concatenate([part["sharded gradient 0"] for part in parts], axis=1), gradient)


def test_a_process_that_dies_is_an_error_to_the_others(tmp_path):
    (survivor, output), (dead, _) = run_processes(2, tmp_path, "dies")
    assert dead == -9
    assert survivor == process_worker.GOT_AN_ERROR, output
    assert "Gloo" in output or "distributed service" in output
