"""Learns handwritten digits with a hidden layer of which only the largest activations count.

Of 1024 hidden units, each image keeps its 64 most active: a "k-winners" layer, as in sparse autoencoders and MaxK graph
networks. The same network is trained three times side by side, on the same batches from the same start; only who finds
the winners differs: jax_rtopk, jax.lax.top_k, and jax_rtopk stopped after two passes over each row.

    pip install '.[examples]' && python examples/digits.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jax_rtopk

HIDDEN, WINNERS = 1024, 64
EPOCHS, BATCH = 30, 128
Layer = Callable[[jax.Array], jax.Array]
Images = tuple[np.ndarray, np.ndarray]  # pixels [images, 64], digits [images]


# Three ways to keep the winners and set the rest to zero.


def exact(h: jax.Array) -> jax.Array:
    return jax_rtopk.topk_sparsify(h, WINNERS)


def lax_top_k(h: jax.Array) -> jax.Array:
    values, indices = jax.lax.top_k(h, WINNERS)
    return jnp.put_along_axis(jnp.zeros_like(h), indices, values, axis=-1, inplace=False)


def early_stopped(h: jax.Array) -> jax.Array:
    return jax_rtopk.topk_sparsify(h, WINNERS, max_iter=2)


LAYERS: dict[str, Layer] = {
    "jax_rtopk": exact,
    "lax.top_k + scatter": lax_top_k,
    "jax_rtopk, max_iter=2": early_stopped,
}


class Classifier(nnx.Module):
    """Pixels to hidden units, of which the winners vote for a digit."""

    def __init__(self, keep_winners: Layer, rngs: nnx.Rngs):
        self.keep_winners = keep_winners
        self.encode = nnx.Linear(64, HIDDEN, rngs=rngs)
        self.vote = nnx.Linear(HIDDEN, 10, rngs=rngs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """One score for each digit."""
        return self.vote(self.keep_winners(self.encode(pixels)))


def loss_of(model: Classifier, pixels: jax.Array, digits: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(model(pixels), digits).mean()


@nnx.jit
def train_step(model: Classifier, optimizer: nnx.Optimizer, pixels: jax.Array, digits: jax.Array) -> jax.Array:
    loss, gradients = nnx.value_and_grad(loss_of)(model, pixels, digits)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def accuracy(model: Classifier, pixels: jax.Array, digits: jax.Array) -> jax.Array:
    return jnp.mean(model(pixels).argmax(axis=-1) == digits)


def check_gradients(pixels: jax.Array, digits: jax.Array) -> None:
    """Our gradients must be those that JAX works out through lax.top_k and the scatter."""
    gradients = {
        name: nnx.grad(loss_of)(Classifier(layer, nnx.Rngs(0)), pixels, digits)
        for name, layer in LAYERS.items()
        if layer is not early_stopped  # may keep other winners
    }
    ours, reference = (jax.tree.leaves(gradient) for gradient in gradients.values())
    for a, b in zip(ours, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    # Stopped early or not: the cotangent passes to exactly the winners.
    h = Classifier(exact, nnx.Rngs(0)).encode(pixels)
    winners, pull = jax.vjp(early_stopped, h)
    np.testing.assert_array_equal(pull(jnp.ones_like(h))[0], winners != 0)
    kept = jnp.mean((winners != 0) & (exact(h) != 0)) * HIDDEN / WINNERS
    print(f"gradients agree; two passes find {kept:.1%} of the winners")


def train(train_set: Images, test_set: Images) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Trains one network for each layer. Returns their test accuracies by epoch and median milliseconds a step."""
    pixels, digits = train_set
    steps = len(pixels) // BATCH
    adam = optax.adam(optax.cosine_decay_schedule(2e-3, EPOCHS * steps))
    models = {name: Classifier(layer, nnx.Rngs(0)) for name, layer in LAYERS.items()}
    optimizers = {name: nnx.Optimizer(model, adam, wrt=nnx.Param) for name, model in models.items()}
    accuracies: dict[str, list[float]] = {name: [] for name in LAYERS}
    times: dict[str, list[float]] = {name: [] for name in LAYERS}
    rng = np.random.default_rng(0)
    with tqdm(total=EPOCHS * steps, desc="training", unit="step") as bar:
        for _ in range(EPOCHS):
            for batch in rng.permutation(len(pixels))[: steps * BATCH].reshape(steps, BATCH):
                for name, model in models.items():  # taking turns, so that a busy moment of the machine hits all
                    start = time.perf_counter()
                    train_step(model, optimizers[name], pixels[batch], digits[batch]).block_until_ready()
                    times[name].append(1e3 * (time.perf_counter() - start))
                bar.update()
            for name, model in models.items():
                accuracies[name].append(float(accuracy(model, *test_set)))
            bar.set_postfix({"test accuracy": f"{accuracies['jax_rtopk'][-1]:.1%}"})
    return accuracies, {name: float(np.median(values)) for name, values in times.items()}


def draw(accuracies: dict[str, list[float]], step_ms: dict[str, float], path: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "jax_rtopk"  # the same figures give the same file
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    colours = dict(zip(LAYERS, ("#0b6fb8", "#d95f02", "#7fb8e0"), strict=True))
    for name, values in accuracies.items():
        style = "--" if name.startswith("lax") else "-"  # lies on the first: the same winners
        left.plot(range(1, EPOCHS + 1), [100 * value for value in values], style, color=colours[name], label=name)
    left.set(xlabel="epoch", ylabel="test accuracy, %", ylim=(90, 100))
    left.legend(frameon=False)
    names = list(step_ms)[::-1]
    bars = right.barh(names, [step_ms[name] for name in names], color=[colours[name] for name in names])
    right.bar_label(bars, fmt="%.2f", padding=3)
    right.set(xlabel=f"training step, ms (batch {BATCH}, {WINNERS} of {HIDDEN} units)")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    images = load_digits()
    pixels = (images.data / 16 - 0.5).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(pixels, images.target, test_size=0.2, random_state=0)
    print(f"{len(train_x)} images to learn from, {len(test_x)} to be tested on; {jax.devices()[0].platform}")
    check_gradients(train_x[:BATCH], train_y[:BATCH])
    accuracies, step_ms = train((train_x, train_y), (test_x, test_y))
    print(f"\n{'':24}{'test accuracy':>14}{'ms a step':>12}")
    for name in LAYERS:
        print(f"{name:24}{accuracies[name][-1]:>14.1%}{step_ms[name]:>12.2f}")
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "digits.svg")
    draw(accuracies, step_ms, path)
    print(f"\nplot saved as {path}")


if __name__ == "__main__":
    main()
