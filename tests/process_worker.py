"""One of the processes that tests/test_processes.py starts: runs sharded programs with the others, saves its parts.

python process_worker.py <port> <processes> <number> <folder> [dies]

With `dies` the last process is killed after the first run of each program; the others go on, and report the error.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import sharded_topk, topk

K = 10
SHAPE = (8, 64)
GOT_AN_ERROR = 3


def operand():
    return np.random.default_rng(0).integers(-20, 20, SHAPE).astype(np.float32)  # with ties


def loss(select, x):
    return (select(x).values ** 2).sum()


def main(port, processes, number, folder, dies=""):
    processes, number = int(processes), int(number)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, number, initialization_timeout=60)
    mesh = jax.make_mesh((processes,), ("d",), axis_types=(AxisType.Auto,))
    by_rows, by_columns = (put(mesh, spec) for spec in (P("d"), P(None, "d")))
    over_columns = jax.shard_map(
        partial(sharded_topk, k=K, axis_name="d"), mesh=mesh, in_specs=P(None, "d"), out_specs=P()
    )
    run_sharded = jax.jit(over_columns)
    results = {
        "batch": jax.jit(partial(topk, k=K))(by_rows),
        "batch gradient": jax.jit(jax.grad(partial(loss, partial(topk, k=K))))(by_rows),
        "sharded": run_sharded(by_columns),
        "sharded gradient": jax.jit(jax.grad(partial(loss, over_columns)))(by_columns),
    }
    if dies:
        jax.block_until_ready(results)
        after_a_death(partial(run_sharded, by_columns), number == processes - 1)
    parts = {
        f"{name} {i}": leaf.addressable_shards[0].data
        for name, result in results.items()
        for i, leaf in enumerate(jax.tree.leaves(result))
    }
    np.savez(Path(folder) / f"{number}.npz", **parts)


def put(mesh, spec):
    x = operand()
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda index: x[index])


def after_a_death(run, dying):
    if dying:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:  # what was under way when it died may yet succeed
            jax.block_until_ready(run())
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # on some ways JAX makes a ValueError of it
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(GOT_AN_ERROR)  # an orderly end would wait for the dead


if __name__ == "__main__":
    main(*sys.argv[1:])
