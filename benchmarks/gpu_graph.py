"""Checks that our custom calls work from within a CUDA graph. Run by gpu_check.sh, which sets the XLA flags.

XLA records calls into a graph that it then replays, updating it where buffers have moved. So every program runs on
several operands in turn, twice, and must answer as the CPU does, bit for bit. The dump of XLA's thunks must show that
the calls are in a command buffer (XLA's name for a CUDA graph) and none outside of one.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import jax
import numpy as np

import jax_rtopk

MODULE = "in_a_graph"
SHAPES = ((64, 64, 8), (300, 256, 32), (20, 4096, 64), (5, 10000, 50), (2, 40000, 100))  # each kernel


def in_a_graph(x: jax.Array, k: int) -> list[jax.Array]:
    """Every kind of call; XLA names the program after this function."""
    exact, stopped = jax_rtopk.topk(x, k), jax_rtopk.topk(x, k, sorted=False, max_iter=2)
    dealt = jax_rtopk.approx_topk(x, k, num_buckets=x.shape[1] // 5)  # with a workspace where that is 8000
    return [*exact, *stopped, *dealt, jax_rtopk.topk_mask(x, k), jax_rtopk.topk_sparsify(x, k)]


def check_answers(device: jax.Device) -> None:
    cpu = jax.devices("cpu")[0]
    program = jax.jit(in_a_graph, static_argnums=1)
    for rows, n, k in SHAPES:
        operands = [np.random.default_rng(seed).standard_normal((rows, n), np.float32) for seed in range(3)]
        expected = [program(jax.device_put(x, cpu), k) for x in operands]
        for _ in range(2):
            got = [program(jax.device_put(x, device), k) for x in operands]  # all alive: in buffers of their own
            for one, other in zip(got, expected, strict=True):
                for a, b in zip(one, other, strict=True):
                    assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), f"{rows}x{n}, k={k}: another answer"
        print(f"{rows}x{n}, k={k}: answers as the CPU does")


def check_thunks(folder: Path) -> None:
    """Lines begin with the thunk's number and kind; what is inside a command buffer is indented."""
    dumps = sorted(folder.glob(f"*{MODULE}*thunk_sequence_after_thunk_passes*.txt"))
    print(f"{len(dumps)} programs whose thunks XLA changed")
    assert len(dumps) >= len(SHAPES), f"no command buffers: {sorted(path.name for path in folder.iterdir())}"
    for path in dumps:
        text = path.read_text()
        assert "kCommandBuffer" in text, f"no command buffer in\n{text}"
        assert re.search(r"^ +\d+: kCustomCall", text, re.MULTILINE), f"no call in a command buffer in\n{text}"
        assert not re.search(r"^\d+: kCustomCall", text, re.MULTILINE), f"a call outside of a command buffer in\n{text}"
    print(dumps[0].read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path, help="the folder that XLA dumps into")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, which has no graphs")
    arguments = parser.parse_args()
    check_answers(jax.devices("cpu" if arguments.rehearse else "cuda")[0])
    if not arguments.rehearse:
        check_thunks(arguments.dump)


if __name__ == "__main__":
    main()
