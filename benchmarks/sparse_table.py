"""Times the sparse operations on the CPU against dense ones, and writes the README's table.

    python benchmarks/sparse_table.py                      # three minutes; writes benchmarks/results/sparse_table.json
    python benchmarks/sparse_table.py "matmul, forward"    # some of the cases; the others' results stay
    python benchmarks/sparse_table.py --seconds 2          # a rough look; writes only with --write

One process, sides taking turns, medians and quartiles. Float32. The dense sides are given the sparsified matrix: what
it takes to make it is not counted. The graph is random, of the size of the Flickr graph on which MaxK-GNN was measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import jax
import jax.numpy as jnp
from plotting import RESULTS
from sections import README, write_section
from timing import Side, machine, take_turns, write_cases

from jax_rtopk import CSRGraph, neighbor_sum, sampled_dense_matmul, sparse_dense_matmul, topk, topk_sparsify

SECONDS = 12.0
OUT = RESULTS / "sparse_table.json"
K = 32
ROWS, N, D = 65536, 4096, 256
NODES, EDGES, FEATURES = 89250, 899756, 256
OURS, DENSE = "jax_rtopk", "dense"


def side(function: Callable[..., object], *operands: jax.Array) -> Side:
    jitted = jax.jit(function)
    return lambda: jax.block_until_ready(jitted(*operands))


def sum_and_grads(function: Callable[..., jax.Array], cotangent: jax.Array) -> Callable[..., object]:
    """The results of the forward and of the backward pass, by both operands or by the only one."""

    def both(*operands: jax.Array) -> object:
        out, pullback = jax.vjp(function, *operands)
        return out, pullback(cotangent)

    return both


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def matmul(backward: bool) -> dict[str, Side]:
    kept = topk(normal(0, ROWS, N), K, sorted=False)
    matrix = topk_sparsify(normal(0, ROWS, N), K)
    weight, cotangent = normal(1, N, D), normal(2, ROWS, D)

    def ours(values: jax.Array, weight: jax.Array) -> jax.Array:
        return sparse_dense_matmul(values, kept.indices, weight)

    assert jnp.allclose(ours(kept.values, weight)[:64], matrix[:64] @ weight, rtol=1e-4, atol=1e-4)
    made = (lambda f: sum_and_grads(f, cotangent)) if backward else (lambda f: f)
    return {
        OURS: side(made(ours), kept.values, weight),
        DENSE: side(made(lambda matrix, weight: matrix @ weight), matrix, weight),
    }


def sampled(backward: bool) -> dict[str, Side]:
    indices = topk(normal(0, ROWS, N), K, sorted=False).indices
    x, weight, cotangent = normal(7, ROWS, D), normal(1, N, D), normal(8, ROWS, K)

    def ours(x: jax.Array, weight: jax.Array) -> jax.Array:
        return sampled_dense_matmul(x, weight, indices)

    def dense(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x @ weight.T, indices, axis=-1)

    assert jnp.allclose(ours(x, weight), dense(x, weight), rtol=1e-4, atol=1e-4)
    made = (lambda f: sum_and_grads(f, cotangent)) if backward else (lambda f: f)
    return {OURS: side(made(ours), x, weight), DENSE: side(made(dense), x, weight)}


def neighbors(backward: bool) -> dict[str, Side]:
    sources, targets = (jax.random.randint(jax.random.key(seed), (EDGES,), 0, NODES) for seed in (3, 4))
    graph = CSRGraph.from_edges(sources, targets, NODES)
    ordered = jnp.repeat(jnp.arange(NODES), jnp.diff(graph.indptr), total_repeat_length=EDGES)
    kept = topk(normal(5, NODES, FEATURES), K, sorted=False)
    features, cotangent = topk_sparsify(normal(5, NODES, FEATURES), K), normal(6, NODES, FEATURES)

    def ours(values: jax.Array) -> jax.Array:
        return neighbor_sum(graph, values, kept.indices, FEATURES)

    def dense(features: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(features[graph.neighbors], ordered, NODES, indices_are_sorted=True)

    assert jnp.allclose(ours(kept.values), dense(features), rtol=1e-4, atol=1e-4)
    made = (lambda f: sum_and_grads(f, cotangent)) if backward else (lambda f: f)
    return {OURS: side(made(ours), kept.values), DENSE: side(made(dense), features)}


CASES = {
    "matmul, forward": lambda: matmul(backward=False),
    "matmul, forward and backward": lambda: matmul(backward=True),
    "sampled, forward": lambda: sampled(backward=False),
    "sampled, forward and backward": lambda: sampled(backward=True),
    "neighbors, forward": lambda: neighbors(backward=False),
    "neighbors, forward and backward": lambda: neighbors(backward=True),
}
LABELS = {
    "matmul": f"`sparse_dense_matmul`, {ROWS} rows, n={N}, d={D}",
    "sampled": f"`sampled_dense_matmul`, {ROWS} rows, n={N}, d={D}",
    "neighbors": f"`neighbor_sum`, {NODES} nodes, {EDGES} edges, n={FEATURES}",
}


def table(cases: list[dict]) -> str:
    lines = [f"| k={K}, ms | jax_rtopk | dense | times |", "|---|---|---|---|"]
    for case in cases:
        ours, dense = (case["sides"][name]["median_ms"] for name in (OURS, DENSE))
        which, passes = case["name"].split(", ", 1)
        lines.append(f"| {LABELS[which]}; {passes} | {ours:.0f} | {dense:.0f} | {dense / ours:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), help="which of them, by name (default: all)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each case, about; at least 7 rounds")
    parser.add_argument("--write", action="store_true", help="write even with other --seconds than the default")
    arguments = parser.parse_args()
    before = json.loads(OUT.read_text())["cases"] if OUT.exists() else []
    found = {case["name"]: case for case in before}
    for name in arguments.cases:
        found[name] = {"name": name, "sides": take_turns(CASES[name](), arguments.seconds)}
    cases = [found[name] for name in CASES if name in found]
    print(table(cases))
    if arguments.write or arguments.seconds == SECONDS:
        write_cases(OUT, machine(), cases)
        write_section(README, "sparse", table(cases))


if __name__ == "__main__":
    main()
