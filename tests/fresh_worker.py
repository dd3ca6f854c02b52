"""One of the processes that tests/test_fresh_process.py starts: runs every program, compiled or from JAX's cache.

python fresh_worker.py <folder>

The first process leaves the cache and the exported programs in the folder, where the next finds them. Prints, as JSON,
how many programs were not in the cache, how many were, how many it then held, and which gave another answer than
their exported form.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.export
import jax.monitoring
import numpy as np

from jax_rtopk import (
    CSRGraph,
    approx_topk,
    export_disabled_checks,
    neighbor_sum,
    sampled_dense_matmul,
    sparse_dense_matmul,
    topk,
    topk_mask,
    topk_sparsify,
)

K = 3
N = 8


def buckets(x):
    return approx_topk(x, K, num_buckets=4, bucket_k=1)


def selections(x):
    return topk(x, K), topk(x, K, sorted=False, max_iter=2), topk_mask(x, K), topk_sparsify(x, K, by_magnitude=True)


def selection_gradient(x):
    def loss(x):
        return (topk(x, K).values ** 2).sum() + (topk_sparsify(x, K) ** 2).sum() + (buckets(x).values ** 2).sum()

    return jax.grad(loss)(x)


def product(values, weight, indices):
    return sparse_dense_matmul(values, indices, weight)


def aggregate(weights, values, indices, graph):
    return neighbor_sum(graph._replace(weights=weights), values, indices, N)


def gradient(function):
    """The gradients by the first two arguments."""

    def gradients(*operands):
        return jax.grad(lambda *operands: (function(*operands) ** 2).sum(), argnums=(0, 1))(*operands)

    return gradients


def programs():
    """Name -> function and operands: every operation, and the gradients, so every custom call."""
    rng = np.random.default_rng(0)
    x, rows, weight, values = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((5, N), (5, 4), (N, 4), (5, K))
    )
    indices = rng.integers(0, N, (5, K), dtype=np.int32)
    edges = rng.integers(0, 5, (2, 6), dtype=np.int32)
    graph = CSRGraph.from_edges(*edges, 5, weights=rng.standard_normal(6).astype(np.float32))
    of_product, of_graph = (values, weight, indices), (graph.weights, values, indices, graph)
    return {
        "selections": (selections, (x,)),
        "buckets": (buckets, (x,)),
        "gradient of selections": (selection_gradient, (x,)),
        "sparse_dense_matmul": (product, of_product),
        "gradients of sparse_dense_matmul": (gradient(product), of_product),
        "sampled_dense_matmul": (sampled_dense_matmul, (rows, weight, indices)),
        "neighbor_sum": (aggregate, of_graph),
        "gradients of neighbor_sum": (gradient(aggregate), of_graph),
    }


def export(function, operands):
    return jax.export.export(jax.jit(function), disabled_checks=export_disabled_checks())(*operands).serialize()


def same(got, want):
    """Whether all arrays hold the same bytes, in the same kind of container."""
    return jax.tree.structure(got) == jax.tree.structure(want) and all(
        np.asarray(g).tobytes() == np.asarray(w).tobytes()
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    )


def main(folder):
    cache = folder / "cache"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    events = Counter()
    jax.monitoring.register_event_listener(lambda event, **_: events.update([event]))
    results = {name: jax.jit(function)(*operands) for name, (function, operands) in programs().items()}
    misses, hits = (events[f"/jax/compilation_cache/cache_{kind}"] for kind in ("misses", "hits"))
    entries = len(list(cache.glob("*-cache")))
    differ = []
    for name, (function, operands) in programs().items():
        file = folder / name
        if not file.exists():
            file.write_bytes(export(function, operands))
        elif not same(jax.export.deserialize(file.read_bytes()).call(*operands), results[name]):
            differ.append(name)
    print(json.dumps({"misses": misses, "hits": hits, "entries": entries, "differ": differ}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
