"""Draws tokens from the 50 likeliest of a vocabulary whose logits are split over 8 devices.

Large language models often have the last layer split over the vocabulary: each device makes the logits of its own
tokens. `sharded_topk` then moves 50 candidates per device and row, where gathering the logits would move all of them.
The devices are 8 of the CPU's, so that it runs anywhere; what is moved is the same on others.

    pip install . && python examples/sharded_sampling.py
"""

from __future__ import annotations

import os

# Before JAX starts.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import TopK, sharded_topk, topk

ROWS, VOCABULARY, K = 8, 151936, 50
TEMPERATURE = 0.8


def sample(key: jax.Array, top: TopK) -> jax.Array:
    """One token of each row, from the softmax of its K largest logits."""
    place = jax.random.categorical(key, top.values / TEMPERATURE)
    return jnp.take_along_axis(top.indices, place[:, None], axis=-1)[:, 0]


def main() -> None:
    mesh = jax.make_mesh((8,), ("vocabulary",), axis_types=(AxisType.Auto,), devices=jax.devices("cpu"))
    logits = 4 * jax.random.normal(jax.random.key(0), (ROWS, VOCABULARY))
    split = jax.device_put(logits, NamedSharding(mesh, P(None, "vocabulary")))
    key = jax.random.key(1)

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=(P(), P(None, "vocabulary")), out_specs=P())
    def sample_split(key: jax.Array, part: jax.Array) -> tuple[TopK, jax.Array]:
        top = sharded_topk(part, K, "vocabulary")
        return top, sample(key, top)  # the same on every device, as the key and the candidates are

    top, tokens = sample_split(key, split)
    others = mesh.size - 1
    candidates = others * ROWS * K * (logits.itemsize + top.indices.itemsize)
    rows = others * ROWS * VOCABULARY // mesh.size * logits.itemsize
    print(f"logits [{ROWS}, {VOCABULARY}] of {logits.dtype} over {mesh.size} devices, the {K} largest of each row")
    print(f"received by each device: {candidates} bytes of candidates; the logits would be {rows}")
    print(f"tokens: {tokens}")

    whole = topk(logits, K)
    for ours, unsplit in zip((*top, tokens), (*whole, sample(key, whole)), strict=True):
        np.testing.assert_array_equal(ours, unsplit)
    print("equal to the answer from the whole rows")


if __name__ == "__main__":
    main()
