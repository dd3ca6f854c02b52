"""Graph networks of which each node passes on only its 32 largest of 256 messages: MaxK-GNN (arXiv 2312.08656).

A layer computes 256 messages for each node, keeps the k largest, and sums them over each node's neighbors: GCN does
just that; GraphSAGE takes the mean, and adds what a linear map makes of the node itself. Two questions:

- Does it learn as well if the search for the k largest is stopped early? The images of scikit-learn's digits, each
  connected to its ten nearest, of which 20 of each digit are known, the others to be told.
- What is gained in time? A random graph of the size of Flickr, on which MaxK-GNN was measured, with a power law of
  degrees. An epoch is one step on the whole graph.

    pip install '.[examples]' && python examples/maxk_gnn.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from tqdm import tqdm

from jax_rtopk import CSRGraph, neighbor_sum, topk, topk_sparsify

HIDDEN, K, LAYERS = 256, 32, 3
MODELS = ("GraphSAGE", "GCN")
SEEDS, EPOCHS, KNOWN = 5, 20, 20  # known images of each digit
NODES, PAIRS, FEATURES, CLASSES = 89_250, 449_878, 500, 7  # Flickr's; each pair is two of its 899,756 edges
EXPONENT = 2.5  # of the power law: the largest degree is then some 6000
PASSES = tuple(range(2, 9))
Params = dict[str, Any]


class Graph(NamedTuple):
    """The edges, and the node that each of them leads to, which a sum of dense rows asks for."""

    edges: CSRGraph
    targets: jax.Array


Aggregate = Callable[[Graph, jax.Array], jax.Array]


class Problem(NamedTuple):
    """A graph, what is known of its nodes, and which labels may be learned from."""

    graph: Graph
    features: jax.Array
    labels: jax.Array
    known: jax.Array


def connect(model: str, sources: np.ndarray, targets: np.ndarray, nodes: int) -> Graph:
    """The graph, its edges weighted as the model wants them."""
    if model == "GCN":  # a node is its own neighbor
        loops = np.arange(nodes)
        sources, targets = np.append(sources, loops), np.append(targets, loops)
    degree = np.maximum(np.bincount(targets, minlength=nodes), 1)
    weights = 1 / np.sqrt(degree[sources] * degree[targets]) if model == "GCN" else 1 / degree[targets]
    ends = (jnp.asarray(side, jnp.int32) for side in (sources, targets))
    edges = CSRGraph.from_edges(*ends, nodes, weights=jnp.asarray(weights, jnp.float32))
    return Graph(edges, jnp.repeat(jnp.arange(nodes), jnp.diff(edges.indptr), total_repeat_length=len(sources)))


# Ways to keep some messages of each node and sum them over the neighbors.


def sum_dense(graph: Graph, messages: jax.Array) -> jax.Array:
    edges = graph.edges
    moved = edges.weights[:, None] * messages[edges.neighbors]
    return jax.ops.segment_sum(moved, graph.targets, len(messages), indices_are_sorted=True)


def sum_winners(find: Callable[..., Any], graph: Graph, messages: jax.Array) -> jax.Array:
    values, indices = find(messages, K)
    return sum_dense(graph, jnp.put_along_axis(jnp.zeros_like(messages), indices, values, axis=-1, inplace=False))


def sum_relu(graph: Graph, messages: jax.Array) -> jax.Array:
    return sum_dense(graph, jax.nn.relu(messages))


def sum_sparsified(graph: Graph, messages: jax.Array) -> jax.Array:
    return sum_dense(graph, topk_sparsify(messages, K))


def sum_compressed(graph: Graph, messages: jax.Array, max_iter: int | None = None) -> jax.Array:
    values, indices = topk(messages, K, sorted=False, max_iter=max_iter)
    return neighbor_sum(graph.edges, values, indices, HIDDEN)


RELU, LAX, SWAPPED, EXACT = "ReLU, no top-k", "lax.top_k", "topk", "topk + neighbor_sum"
WAYS: dict[str, Aggregate] = {
    RELU: sum_relu,
    LAX: partial(sum_winners, jax.lax.top_k),
    SWAPPED: partial(sum_winners, topk),
    "topk_sparsify": sum_sparsified,
    EXACT: sum_compressed,
}
STOPPED: dict[str, Aggregate] = {f"max_iter={p}": partial(sum_compressed, max_iter=p) for p in PASSES}


def start(model: str, features: int, classes: int, seed: int) -> Params:
    keys = iter(jax.random.split(jax.random.key(seed), 2 * LAYERS + 1))
    glorot = jax.nn.initializers.glorot_normal()
    layers = []
    for width in [features] + (LAYERS - 1) * [HIDDEN]:
        layer = {"message": glorot(next(keys), (width, HIDDEN)), "bias": jnp.zeros(HIDDEN)}
        if model == "GraphSAGE":
            layer["own"] = glorot(next(keys), (width, HIDDEN))
        layers.append(layer)
    return {"layers": layers, "vote": glorot(next(keys), (HIDDEN, classes))}


def votes(params: Params, problem: Problem, aggregate: Aggregate) -> jax.Array:
    """One score of each node for each class."""
    h = problem.features
    for layer in params["layers"]:
        received = aggregate(problem.graph, h @ layer["message"] + layer["bias"])
        h = received + h @ layer["own"] if "own" in layer else received
    return h @ params["vote"]


def loss_of(params: Params, problem: Problem, aggregate: Aggregate) -> jax.Array:
    losses = optax.softmax_cross_entropy_with_integer_labels(votes(params, problem, aggregate), problem.labels)
    return jnp.mean(losses, where=problem.known)


ADAM = optax.adam(5e-3)


def step(state: tuple[Params, Any], problem: Problem, aggregate: Aggregate) -> tuple[Params, Any]:
    params, moments = state
    updates, moments = ADAM.update(jax.grad(loss_of)(params, problem, aggregate), moments)
    return optax.apply_updates(params, updates), moments


@partial(jax.jit, static_argnames=("aggregate", "epochs"))
def learn(params: Params, problem: Problem, aggregate: Aggregate, epochs: int) -> jax.Array:
    """The share of the unknown nodes that are told right after so many epochs."""
    state = (params, ADAM.init(params))
    (params, _), _ = jax.lax.scan(lambda s, _: (step(s, problem, aggregate), None), state, length=epochs)
    return jnp.mean(votes(params, problem, aggregate).argmax(axis=-1) == problem.labels, where=~problem.known)


def digits(model: str, seed: int) -> Problem:
    images = load_digits()
    near = kneighbors_graph(images.data, 10)
    sources, targets = near.maximum(near.T).nonzero()
    shuffled = np.random.default_rng(seed).permutation(len(images.target))
    known = np.zeros(len(shuffled), bool)
    for digit in range(10):
        known[shuffled[images.target[shuffled] == digit][:KNOWN]] = True
    graph = connect(model, sources, targets, len(known))
    pixels = (images.data / 16 - 0.5).astype(np.float32)
    return Problem(graph, jnp.asarray(pixels), jnp.asarray(images.target), jnp.asarray(known))


def flickr_sized(model: str) -> Problem:
    """Random pairs of nodes, each drawn with a weight such that the degrees follow the power law; a pair may repeat."""
    rng = np.random.default_rng(0)
    weights = np.arange(1, NODES + 1) ** (-1 / (EXPONENT - 1))
    one, other = rng.permutation(NODES)[rng.choice(NODES, (2, PAIRS), p=weights / weights.sum())]
    graph = connect(model, np.append(one, other), np.append(other, one), NODES)
    features = rng.standard_normal((NODES, FEATURES), np.float32)
    labels = rng.integers(CLASSES, size=NODES)
    return Problem(graph, jnp.asarray(features), jnp.asarray(labels), jnp.ones(NODES, bool))


def check_gradients() -> None:
    """Whoever finds the winners, and however they are summed: a layer and its gradient must be those through lax.top_k.

    A layer, not a network: what ties but for the rounding of a sum wins in one network and loses in another.
    """

    @partial(jax.jit, static_argnames="aggregate")
    def sums_and_gradient(aggregate: Aggregate, graph: Graph, messages: jax.Array, cotangent: jax.Array) -> Any:
        sums, pull = jax.vjp(partial(aggregate, graph), messages)
        return sums, pull(cotangent)

    rng = np.random.default_rng(0)
    for model in MODELS:
        problem = digits(model, 0)
        layer = start(model, 64, 10, 0)["layers"][0]
        messages = problem.features @ layer["message"] + layer["bias"]
        arguments = problem.graph, messages, jnp.asarray(rng.standard_normal(messages.shape), messages.dtype)
        expected = sums_and_gradient(WAYS[LAX], *arguments)
        for name in (SWAPPED, "topk_sparsify", EXACT):
            found = sums_and_gradient(WAYS[name], *arguments)
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, expected)
    print("gradients agree")


def accuracies(epochs: int) -> dict[str, dict[str, np.ndarray]]:
    """For each model and way the share told right, by seed: of the start, and of which images are known."""
    ways = {name: WAYS[name] for name in (RELU, LAX, EXACT)} | STOPPED
    found = {model: {name: np.zeros(SEEDS) for name in ways} for model in MODELS}
    with tqdm(total=len(MODELS) * SEEDS * len(ways), desc="digits", unit="training") as bar:
        for model in MODELS:
            for seed in range(SEEDS):
                problem, params = digits(model, seed), start(model, 64, 10, seed)
                for name, aggregate in ways.items():
                    found[model][name][seed] = learn(params, problem, aggregate, epochs)
                    bar.update()
    return found


def milliseconds(function: Callable[..., Any], *arguments: Any) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return 1e3 * (time.perf_counter() - begin)


def epoch_times(model: str, rounds: int) -> dict[str, tuple[float, float]]:
    """For each way the median milliseconds of an epoch, and of finding the winners in it."""
    problem, params = flickr_sized(model), start(model, FEATURES, CLASSES, 0)
    state = (params, ADAM.init(params))
    messages = problem.features @ params["layers"][0]["message"]
    finders = {
        RELU: None,
        LAX: partial(jax.lax.top_k, k=K),
        SWAPPED: partial(topk, k=K),
        "topk_sparsify": partial(topk_sparsify, k=K),
        EXACT: partial(topk, k=K, sorted=False),
    }
    sides: dict[tuple[str, str], tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    for name, find in finders.items():
        sides[name, "epoch"] = jax.jit(partial(step, aggregate=WAYS[name])), (state, problem)
        if find:
            sides[name, "finding"] = jax.jit(find), (messages,)
    times: dict[tuple[str, str], list[float]] = {which: [] for which in sides}
    for turn in tqdm(range(rounds + 1), desc=f"{model}, {NODES} nodes", unit="round"):
        for which, (function, arguments) in sides.items():  # taking turns: a busy moment of the machine hits all
            took = milliseconds(function, *arguments)
            if turn:  # the first turn compiles
                times[which].append(took)
    median = {which: float(np.median(taken)) for which, taken in times.items()}
    return {name: (median[name, "epoch"], LAYERS * median.get((name, "finding"), 0.0)) for name in finders}


def print_accuracies(found: dict[str, dict[str, np.ndarray]]) -> None:
    print(f"\n{'accuracy, %':24}" + "".join(f"{model:>18}" for model in MODELS))
    for name in found[MODELS[0]]:
        cells = (
            f"{100 * found[model][name].mean():.2f} ± {100 * found[model][name].std(ddof=1):.2f}" for model in MODELS
        )
        print(f"{name:24}" + "".join(f"{cell:>18}" for cell in cells))


def print_times(model: str, times: dict[str, tuple[float, float]]) -> None:
    print(f"\n{model:24}{'ms an epoch':>12}{'faster by':>11}{'top-k':>8}")
    for name, (epoch, finding) in times.items():
        print(f"{name:24}{epoch:>12.0f}{times[LAX][0] / epoch:>10.2f}x{finding / epoch:>8.1%}")


def draw(found: dict[str, dict[str, np.ndarray]], times: dict[str, tuple[float, float]], path: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "jax_rtopk"  # the same figures give the same file
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for model, colour, aside in zip(MODELS, ("#0b6fb8", "#d95f02"), (-0.08, 0.08), strict=True):
        mean, deviation = (
            {name: 100 * f(of) for name, of in found[model].items()} for f in (np.mean, partial(np.std, ddof=1))
        )
        places = [*PASSES, PASSES[-1] + 1]
        names = [*STOPPED, EXACT]
        values, errors = ([figures[name] for name in names] for figures in (mean, deviation))
        left.errorbar(np.add(places, aside), values, errors, fmt="o-", color=colour, ms=4, lw=1, capsize=2, label=model)
        left.axhline(mean[RELU], color=colour, ls=":", lw=1, label=f"{model}, ReLU")
    left.set_xticks(places, [*map(str, PASSES), "exact"])
    left.set(xlabel="passes over each row, at most", ylabel="test accuracy, %")
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 2, "frameon": False, "fontsize": 8}
    left.legend(**above)
    names = list(times)[::-1]
    epochs, finding = ([times[name][which] / 1e3 for name in names] for which in (0, 1))
    bars = right.barh(names, epochs, color="#9ecae9", label="all else")
    right.barh(names, finding, color="#0b6fb8", label="finding the winners")
    right.bar_label(bars, fmt="%.2f", padding=3)
    right.set(xlabel=f"epoch, s (GraphSAGE, {NODES:,} nodes)")
    right.legend(**above)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path, default=Path("maxk_gnn.svg"), help="where to save the plot")
    parser.add_argument("--full", action="store_true", help="five times the epochs, and GCN's times, too")
    arguments = parser.parse_args()
    factor = 5 if arguments.full else 1
    check_gradients()
    found = accuracies(factor * EPOCHS)
    print_accuracies(found)
    times = {model: epoch_times(model, 3 * factor) for model in MODELS[: 1 + arguments.full]}
    for model, taken in times.items():
        print_times(model, taken)
    draw(found, times[MODELS[0]], arguments.path)
    print(f"\nplot saved as {arguments.path}")


if __name__ == "__main__":
    main()
