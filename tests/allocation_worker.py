"""What tests/test_hostile.py runs in a process of its own: each allocation of each way of the kernels fails, in turn.

python allocation_worker.py <tests/ffi_host.cc, compiled>

The call must return an error that says so, or the right answer where it can do without.
"""

import ctypes
import sys
from pathlib import Path

import oracle
from ffi_host import Host, handlers
from kernel_ways import ways

THREADS = 3


def each_allocation(host, addresses, way):
    """How many there were to fail."""
    error, want = way.run(host, addresses, THREADS, filling=0)
    assert error is None, error
    for left in range(10000):
        host.fail_allocation(left)
        error, results = way.run(host, addresses, THREADS, filling=1)
        failed = host.fail_allocation(-1)
        if error is not None:
            assert failed, error
            assert error.startswith("8: jax_rtopk: out of memory"), error  # 8: RESOURCE_EXHAUSTED
            continue
        for got, expected in zip(results, want, strict=True):
            oracle.assert_same(got, expected)
        if not failed:
            return left
    raise AssertionError("no end of allocations")


def main():
    host = Host(Path(sys.argv[1]), ctypes.RTLD_GLOBAL)
    from jax_rtopk import _cpu  # not before: it takes the operator new that it finds

    counts = [each_allocation(host, handlers(_cpu), way) for way in ways()]
    assert min(counts) > 0, counts


if __name__ == "__main__":
    main()
