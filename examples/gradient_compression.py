"""Trains with 1 % of each gradient: the largest entries now, and what was left out later.

Workers that train together spend much of their time on sending gradients to each other. Top-k compression sends the
largest entries alone; error feedback keeps the others in a memory and adds them to the next gradient, so that nothing
is lost, only late (Stich et al., arXiv 1809.07599; Deep Gradient Compression, Lin et al., arXiv 1712.01887). Here it
is a `GradientTransformation` of optax, and one worker that shows what it does to the training.

    pip install '.[examples]' && python examples/gradient_compression.py
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from jax_rtopk import topk_sparsify

SHARE = 0.01
HIDDEN = 256
EPOCHS, BATCH = 30, 64


def keep_largest(share: float, feedback: bool = True) -> optax.GradientTransformation:
    """Keeps that share of each array of the updates, the largest by magnitude, and remembers the others."""

    def compress(update: jax.Array) -> jax.Array:
        flat = update.ravel()
        k = max(1, round(share * flat.size))
        return topk_sparsify(flat, k, by_magnitude=True).reshape(update.shape)

    def update(updates: Any, memory: Any, parameters: Any = None) -> tuple[Any, Any]:
        wanted = optax.tree.add(updates, memory)
        sent = jax.tree.map(compress, wanted)
        return sent, optax.tree.sub(wanted, sent) if feedback else memory

    return optax.GradientTransformation(optax.tree.zeros_like, update)


# The compression comes last: what is sent are steps, and the momentum in them is each worker's own, as in Deep
# Gradient Compression.
SGD = optax.sgd(0.05, momentum=0.9)
WAYS: dict[str, optax.GradientTransformation] = {
    "dense": SGD,
    "1 %, error feedback": optax.chain(SGD, keep_largest(SHARE)),
    "1 %, the others dropped": optax.chain(SGD, keep_largest(SHARE, feedback=False)),
}


def make_model() -> nnx.Sequential:
    rngs = nnx.Rngs(0)
    return nnx.Sequential(
        nnx.Linear(64, HIDDEN, rngs=rngs),
        nnx.relu,
        nnx.Linear(HIDDEN, HIDDEN, rngs=rngs),
        nnx.relu,
        nnx.Linear(HIDDEN, 10, rngs=rngs),
    )


@nnx.jit
def train_step(model: nnx.Sequential, optimizer: nnx.Optimizer, pixels: jax.Array, digits: jax.Array) -> None:
    def loss_of(model: nnx.Sequential) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(pixels), digits).mean()

    optimizer.update(model, nnx.grad(loss_of)(model))


@nnx.jit
def accuracy(model: nnx.Sequential, pixels: jax.Array, digits: jax.Array) -> jax.Array:
    return jnp.mean(model(pixels).argmax(axis=-1) == digits)


def main() -> None:
    images = load_digits()
    pixels = (images.data / 16 - 0.5).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(pixels, images.target, test_size=0.2, random_state=0)
    models = {name: make_model() for name in WAYS}
    optimizers = {name: nnx.Optimizer(models[name], way, wrt=nnx.Param) for name, way in WAYS.items()}
    rng = np.random.default_rng(0)
    steps = len(train_x) // BATCH
    for _ in tqdm(range(EPOCHS), desc="training", unit="epoch"):
        for batch in rng.permutation(len(train_x))[: steps * BATCH].reshape(steps, BATCH):
            for name, model in models.items():
                train_step(model, optimizers[name], train_x[batch], train_y[batch])
    print(f"\n{'':26}{'training accuracy':>18}{'test accuracy':>16}")
    for name, model in models.items():
        print(f"{name:26}{accuracy(model, train_x, train_y):>18.1%}{accuracy(model, test_x, test_y):>16.1%}")


if __name__ == "__main__":
    main()
