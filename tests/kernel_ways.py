"""Calls of the CPU's handlers, one for each way that the kernels go; most have several tasks for threads to share.

    python kernel_ways.py <tests/ffi_host.cc, compiled>

makes each several times at once, in a process that tests/test_hostile.py can end if they wait for one another.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracle
from ffi_host import Buffer, Host, handlers
from hostile_rules import GRAPH

SELECT = {"k": 40, "largest": True, "sorted": True, "max_iter": 0}
BUCKETED = {"k": 40, "num_buckets": 128, "bucket_k": 2, "largest": True, "sorted": True}
DENSE = {"k": 40, "by_magnitude": False, "max_iter": 0}
# The operation, rows, n, and attributes.
SELECTIONS: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
    ("topk", 5, 300, SELECT),
    ("topk", 5, 300, {**SELECT, "k": 250, "sorted": False}),
    ("topk", 5, 300, {**SELECT, "k": 299}),
    ("topk", 5, 300, {**SELECT, "max_iter": 2}),
    ("topk", 2000, 100, SELECT),
    ("topk", 1, 2**18, SELECT),  # one row that the threads share
    ("topk", 1, 2**18, {**SELECT, "k": 70000}),  # searched for
    ("bucketed", 300, 700, BUCKETED),
    ("bucketed", 2, 2**18, BUCKETED),  # the threads share the buckets
    ("mask", 300, 700, {"largest": True, **DENSE}),
    ("mask", 1, 2**18, {"largest": True, **DENSE}),
    ("sparsify", 300, 700, DENSE),
    ("sparsify", 1, 2**18, DENSE),
)


@dataclass
class Way:
    """A right call of a handler."""

    operation: str
    args: list[np.ndarray]
    results: list[np.ndarray]  # like what it returns
    attributes: dict[str, Any]

    def run(
        self, host: Host, addresses: dict[str, int], threads: int, *, filling: int
    ) -> tuple[str | None, list[np.ndarray]]:
        """The error, if any, and the results, which were full of that number before."""
        results = [np.full_like(result, filling) for result in self.results]
        buffers = [[Buffer(x.dtype, x.shape, x.ctypes.data) for x in arrays] for arrays in (self.args, results)]
        return host.call(addresses[self.operation], *buffers, self.attributes, threads=threads), results


def ways() -> Iterator[Way]:
    rng = np.random.default_rng(0)
    for operation, rows, n, attributes in SELECTIONS:
        x = rng.integers(0, 2**16, (rows, n)).astype(np.uint16)
        selected = np.empty((rows, attributes["k"]), np.int32)
        results = {"mask": [np.empty(x.shape, bool)], "sparsify": [x]}.get(
            operation, [selected.astype(x.dtype), selected]
        )
        scalars = {name: (np.bool_ if isinstance(a, bool) else np.int64)(a) for name, a in attributes.items()}
        yield Way(operation, [x], results, scalars)

    values, rows, weight = rng.random((3000, 4)), rng.random((3000, 200)), rng.random((50, 200))
    indices = rng.integers(0, 50, (3000, 4), np.int32)
    yield Way("gather_sum", [values, weight, indices], [rows], {})
    yield Way("sampled_dot", [rows, weight, indices], [values], {})
    yield Way("scatter_add", [values, rows, indices], [weight], {})

    graph = {name: rng.integers(0, 3000, 90000).astype(np.int32) for name in GRAPH}
    graph["indptr"] = graph["out_indptr"] = np.arange(0, 90001, 30, dtype=np.int32)
    weights, dense, arrays = rng.random(90000), rng.random((3000, 50)), list(graph.values())
    yield Way("neighbor_sum", [weights, values, indices, *arrays], [dense], {})
    yield Way("neighbor_dot", [weights, dense, indices, *arrays], [values], {})
    yield Way("edge_dot", [values, dense, indices, *arrays], [weights], {})


def check_ways_at_once(host: Host, module: Any, *, callers: int = 4) -> None:
    """Every way in several calls at once that share a pool: as one thread does it.

    What the results held before makes no difference, so every byte of them is written.
    """
    addresses = handlers(module)
    for way in ways():
        error, want = way.run(host, addresses, 1, filling=0)
        assert error is None, error
        with ThreadPoolExecutor(callers) as threads:
            at_once = [threads.submit(way.run, host, addresses, 3, filling=1) for _ in range(2 * callers)]
        for call in at_once:
            error, results = call.result()
            assert error is None, error
            for got, expected in zip(results, want, strict=True):
                oracle.assert_same(got, expected)


if __name__ == "__main__":
    from jax_rtopk import _cpu

    check_ways_at_once(Host(Path(sys.argv[1])), _cpu)
