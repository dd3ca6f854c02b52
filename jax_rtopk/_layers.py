"""The mathematics of the layers, free of flax: flax.py and linen.py keep the state that is handed over here.

Running averages are pairs `(average, seen)` of float32: `seen` is how many samples went into the average, and stays at
the period of the average once it is reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jax_rtopk._approx import approx_topk
from jax_rtopk._checks import (
    check_axis,
    check_flag,
    check_k,
    check_last_axis,
    check_number,
    check_operand,
    check_period,
    check_row,
)
from jax_rtopk._primitive import keep
from jax_rtopk._rows import move
from jax_rtopk._topk import topk, topk_mask, topk_sparsify
from jax_rtopk._xla import keep as keep_bits
from jax_rtopk._xla import keys_of, put_rows, take_rows

Activation = Callable[[jax.Array], jax.Array]
Average = tuple[jax.Array, jax.Array]


class Routing(NamedTuple):
    """Where `TopKRouter` sends each token; a named tuple: unpacks as `weights, ids`."""

    weights: jax.Array
    ids: jax.Array


def _with_samples(state: Average, total: Any, size: Any, period: float) -> Average:
    """The running average after `size` more samples that add up to `total`.

    Until `period` samples are seen it is their plain mean, in which the initial value has no part; then older samples
    fade out.
    """
    average, seen = state
    seen = jnp.minimum(seen + size, period)
    # A batch of more than `period` samples replaces the average, and one of none leaves it as it is.
    change = (total - size * average) / jnp.maximum(jnp.maximum(seen, size), 1)
    return lax.stop_gradient(average + change), lax.stop_gradient(seen)


def _rows(x: jax.Array) -> Any:
    return math.prod(x.shape[:-1])


def topk_layer(
    x: jax.Array, activation: Activation | None, *, max_iter: Any, recall_target: Any, **arguments: Any
) -> jax.Array:
    """What `TopK` returns."""
    if activation is not None:
        x = activation(x)
    if recall_target is None:
        return topk_sparsify(x, max_iter=max_iter, **arguments)
    if max_iter is not None:
        raise ValueError(
            "TopK: max_iter and recall_target both say how much less than the exact answer will do, "
            f"got max_iter={max_iter!r} and recall_target={recall_target!r}. Give one of them."
        )
    return _approx_sparsify(x, recall_target=recall_target, **arguments)


def _approx_sparsify(
    x: jax.Array, *, k: Any, axis: Any, by_magnitude: Any, straight_through: Any, recall_target: Any
) -> jax.Array:
    x = check_operand("TopK", x)
    axis = check_axis("TopK", axis, x)
    by_magnitude = check_flag("TopK", "by_magnitude", by_magnitude)
    straight_through = check_flag("TopK", "straight_through", straight_through)
    rows = move(x, axis, x.ndim - 1)
    ordered = keys_of(rows, largest=True, by_magnitude=True) if by_magnitude else lax.stop_gradient(rows)
    indices = approx_topk(ordered, k, sorted=False, recall_target=recall_target).indices
    kept = put_rows(jnp.zeros_like(rows, bool), indices, jnp.ones_like(indices, bool))
    return move(_keep_straight_through(kept, rows) if straight_through else keep(kept, rows), x.ndim - 1, axis)


_keep_straight_through = jax.custom_jvp(keep_bits)


@_keep_straight_through.defjvp
def _(primals: Any, tangents: Any) -> tuple[jax.Array, Any]:
    return keep_bits(*primals), tangents[1]


def check_momentum(momentum: Any) -> None:
    """Checks what `BatchTopK` is made with."""
    check_number("BatchTopK", "momentum", momentum, below=1)


def batch_topk(x: jax.Array, k: int) -> jax.Array:
    """What `BatchTopK` returns in training: `k` elements kept for each row there is, wherever they are."""
    x = check_operand("BatchTopK", x)
    k = check_k("BatchTopK", k, x, check_axis("BatchTopK", -1, x))
    return topk_sparsify(x.reshape(-1), k * _rows(x)).reshape(x.shape)


def updated_threshold(state: Average, kept: jax.Array, momentum: float) -> Average:
    """The running average of the smallest positive element that a batch kept."""
    # Zeros are kept where there are too few positive elements, and say nothing of where to cut.
    smallest = jnp.min(kept, where=kept > 0, initial=jnp.inf).astype(jnp.float32)
    any_positive = jnp.isfinite(smallest)
    return _with_samples(state, jnp.where(any_positive, smallest, 0), any_positive, 1 / (1 - momentum))


def above_threshold(x: jax.Array, threshold: jax.Array) -> jax.Array:
    """What `BatchTopK` returns at inference."""
    x = check_operand("BatchTopK", x)
    return jnp.where(x >= threshold, x, jnp.zeros_like(x))


def check_k_winners(
    features: Any, k: Any, boost_strength: Any, duty_cycle_period: Any, k_inference_factor: Any
) -> None:
    """Checks what `KWinners` is made with."""
    check_row("KWinners", features, k, n_name="features")
    check_number("KWinners", "boost_strength", boost_strength)
    check_period("KWinners", "duty_cycle_period", duty_cycle_period)
    check_number("KWinners", "k_inference_factor", k_inference_factor)


def k_winners(
    x: jax.Array, duty_cycle: jax.Array, *, features: int, k: int, boost_strength: float, inference_factor: float | None
) -> jax.Array:
    """What `KWinners` returns; `inference_factor` is None in training."""
    x = check_last_axis("KWinners", x, "features", features)
    # In float32 at least, as the duty cycle is: rounded products would be tied, and the lowest index win too often.
    boosted = jnp.exp(boost_strength * (k / features - duty_cycle)) * x
    winners = k if inference_factor is None else min(round(k * inference_factor), features)
    return jnp.where(topk_mask(boosted, winners), x, jnp.zeros_like(x))


def updated_duty_cycle(state: Average, kept: jax.Array, period: int) -> Average:
    """The share of recent samples in which each unit was active."""
    active = jnp.sum(kept > 0, axis=tuple(range(kept.ndim - 1)), dtype=jnp.float32)
    return _with_samples(state, active, _rows(kept), period)


def check_router(num_experts: Any, k: Any, bias_update_rate: Any) -> None:
    """Checks what `TopKRouter` is made with."""
    check_row("TopKRouter", num_experts, k, n_name="num_experts")
    if bias_update_rate is not None:
        check_number("TopKRouter", "bias_update_rate", bias_update_rate)


def route(
    logits: jax.Array, bias: jax.Array | None, *, num_experts: int, k: int, score: Activation, renormalise: bool
) -> Routing:
    """What `TopKRouter` returns."""
    scores = score(check_last_axis("TopKRouter", logits, "num_experts", num_experts))
    if bias is None:
        weights, ids = topk(scores, k)
    else:
        ids = topk(lax.stop_gradient(scores) + bias, k).indices
        weights = take_rows(scores, ids)
    if renormalise:
        total = jnp.sum(weights, axis=-1, keepdims=True)
        weights /= jnp.where(total == 0, jnp.ones_like(total), total)  # all scores may have underflowed
    return Routing(weights, ids)


def updated_bias(bias: jax.Array, ids: jax.Array, rate: float) -> jax.Array:
    """The bias with experts that got less than their share of the tokens moved up by `rate`, the others down."""
    # Compared rather than scattered: so each device counts its own tokens, and only the sums are added up.
    load = jnp.sum(ids[..., None] == jnp.arange(bias.size), axis=tuple(range(ids.ndim)), dtype=jnp.float32)
    return bias + rate * jnp.sign(jnp.mean(load) - load)
