"""The transformer of examples/, small and with random weights: what the example's top-k hooks do in it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from minilm import Batch, embed, keep_largest, make_model

from jax_rtopk import approx_topk, topk

FEATURES, HIDDEN, TOKENS, LAYERS = 8, 32, 16, 2
PLACES = ("activations", "scores")  # of which keep_largest notes the recall
TEXTS = Batch(np.arange(3 * TOKENS).reshape(3, TOKENS), np.arange(TOKENS) < np.array([[TOKENS], [TOKENS], [10]]))


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    weights = {}

    def add(name, *shape):
        weights[name] = rng.standard_normal(shape).astype(np.float32)

    def dense(name, inputs, outputs):
        add(f"{name}.weight", outputs, inputs)
        add(f"{name}.bias", outputs)

    def norm(name):
        add(f"{name}.LayerNorm.weight", FEATURES)
        add(f"{name}.LayerNorm.bias", FEATURES)

    for name, rows in (("word", TEXTS.ids.size), ("position", TOKENS), ("token_type", 2)):
        add(f"embeddings.{name}_embeddings.weight", rows, FEATURES)
    norm("embeddings")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            dense(f"{layer}.attention.{name}", FEATURES, FEATURES)
        norm(f"{layer}.attention.output")
        dense(f"{layer}.intermediate.dense", FEATURES, HIDDEN)
        dense(f"{layer}.output.dense", HIDDEN, FEATURES)
        norm(f"{layer}.output")
    return make_model(weights)


def zero(x, kept):
    return 0.0


def no_weight(x, kept):
    return -jnp.inf


def run(model, texts, select=None, k=None):
    """What the texts become, with the k selected kept of the activations and of the scores."""

    @jax.jit
    def changed(texts):
        hooks = {
            "activations": keep_largest(select, k, zero, texts.real),
            "scores": keep_largest(select, k, no_weight, texts.real[:, None, :]),
        }
        return embed(model, texts, heads=2, **(hooks if select else {}))

    return changed(texts)


@pytest.fixture(scope="module")
def dense(model):
    return run(model, TEXTS)[0]


def test_tokens_that_are_no_part_of_a_text_do_not_matter(model, dense):
    short, _ = run(model, Batch(TEXTS.ids[2:, :10], TEXTS.real[2:, :10]))
    np.testing.assert_allclose(jnp.linalg.norm(dense, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(dense[2:], short, atol=1e-5)


def test_keeping_all_changes_nothing(model, dense):
    kept, notes = run(model, TEXTS, lambda x: topk(x, x.shape[-1]), TOKENS)
    np.testing.assert_allclose(kept, dense, atol=1e-6)
    assert all(notes[place].shape == (LAYERS,) for place in PLACES)


@pytest.mark.parametrize(("buckets", "found"), [(None, (1, 1)), (4, (0.25, 0.99))])
def test_recall_is_noted(model, dense, buckets, found):
    select = partial(approx_topk, k=4, num_buckets=buckets) if buckets else partial(topk, k=4)
    embeddings, notes = run(model, TEXTS, select, 4)
    assert not np.allclose(embeddings, dense, atol=1e-3)
    for place in PLACES:
        assert ((notes[place] >= found[0]) & (notes[place] <= found[1])).all()


def test_rest_stands_in_for_what_is_not_kept():
    x = jnp.array([[3.0, 1.0, 2.0, 5.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    hook = keep_largest(
        lambda x: topk(x, 2), 2, lambda x, kept: jnp.min(x, axis=-1, keepdims=True), np.array([True, False])
    )
    kept, recall = hook(x)
    np.testing.assert_array_equal(kept, [[1, 1, 1, 5, 4], [1, 1, 1, 4, 5]])
    assert recall == 1
    # Only rows that count do: places 0 and 1 hold none of the first row's two largest, and both of the second's.
    _, recall = keep_largest(lambda x: topk(-x, 2), 2, zero, np.array([True, False]))(x.at[1].multiply(-1))
    assert recall == 0


def test_outputs_are_what_the_embedding_is_the_mean_of(model):
    embeddings, notes = embed(model, TEXTS, heads=2, outputs=lambda x: (x, x))
    assert notes["outputs"].shape == (LAYERS, *TEXTS.ids.shape, FEATURES)
    mean = jnp.mean(notes["outputs"][-1], axis=1, where=TEXTS.real[:, :, None])
    np.testing.assert_allclose(embeddings, mean / jnp.linalg.norm(mean, axis=-1, keepdims=True), rtol=1e-5)
