"""Many threads of Python at once, one processor, no memory, a process that forks: answers or errors, as ever."""

import sys
import threading
from functools import partial

import jax
import numpy as np
import oracle
import pytest
from child import run_python

from jax_rtopk import topk

THREADS = 64


@pytest.mark.native_only
@pytest.mark.not_emulated
@pytest.mark.usefixtures("backend")
def test_many_threads_call_at_once():
    """Programs, some with several tasks, each called by several threads that may compile it at once."""
    rng = np.random.default_rng(0)
    shapes = [(1, 2**18 + 5), (3, 40), (700, 300), (2000, 64), (5, 1000), (64, 4096), (1, 7), (300, 129)]
    rows = [rng.integers(0, 1000, shape).astype(np.float32) for shape in shapes]
    programs = [jax.jit(partial(topk, k=min(5 + i, shape[1]))) for i, shape in enumerate(shapes)]
    start, results = threading.Barrier(THREADS), [None] * THREADS

    def call(thread):
        i = thread % len(shapes)
        start.wait()
        results[thread] = [programs[i](rows[i]) for _ in range(3)]

    threads = [threading.Thread(target=call, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    wanted = [oracle.topk(x, min(5 + i, x.shape[1])) for i, x in enumerate(rows)]
    for thread, calls in enumerate(results):
        assert calls is not None, f"thread {thread} came to no end"
        for got in calls:
            for leaf, want in zip(got, wanted[thread % len(shapes)], strict=True):
                oracle.assert_same(leaf, want)


SELECT = """
import numpy as np
import jax, jax_rtopk

def select():
    for shape in ((3, 40), (3000, 100), (1, 2**18 + 5)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        want = np.argsort(-x, axis=1, kind="stable")[:, :5]
        np.testing.assert_array_equal(jax_rtopk.topk(x, 5).indices, want)
        mask = np.asarray(jax_rtopk.topk_mask(x, 5))
        np.testing.assert_array_equal(np.nonzero(mask)[1], np.sort(want).ravel())
"""
# JAX warns of a fork once it has threads, and promises nothing for it. Before, it has none, nor does what is imported.
FORK = """
import os
child = os.fork()
if child == 0:
    select()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
ONE_PROCESSOR = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
NO_MEMORY = """
import resource
from functools import partial
import jax, numpy as np
from jax_rtopk import approx_topk

x = jax.device_put(np.arange(2**23, dtype=np.uint32).astype(np.uint8))
select = jax.jit(partial(approx_topk, k=5, num_buckets=2**22)).lower(x).compile()  # buffers of 2^24 bytes
with open("/proc/self/statm") as file:
    taken = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**23, resource.RLIM_INFINITY))
try:
    jax.block_until_ready(select(x))
except jax.errors.JaxRuntimeError as error:
    assert str(error).startswith("RESOURCE_EXHAUSTED: jax_rtopk: out of memory"), error
else:
    raise AssertionError("there was memory")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert select(x).indices.tolist() == [255, 511, 767, 1023, 1279]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has these limits of a process")
@pytest.mark.parametrize(
    ("program", "variables"),
    [
        pytest.param(
            ONE_PROCESSOR + SELECT + FORK + "select()", {}, id="one processor, and a fork before the first use"
        ),
        pytest.param(SELECT + "select()", {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}, id="one thread of XLA"),
        pytest.param(NO_MEMORY, {}, id="no memory for the kernel"),
    ],
)
def test_in_a_process_of_its_own(program, variables):
    done = run_python("-W", "error", "-c", program, **variables)
    assert done.returncode == 0, done.stderr
