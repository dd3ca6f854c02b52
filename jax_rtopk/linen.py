"""Sparse layers for Flax Linen: `pip install 'jax_rtopk[flax]'`. For NNX they are in `jax_rtopk.flax`.

They compute what the layers of the same names in `jax_rtopk.flax` do. `TopK` is stateless. The others keep variables in
the collection `batch_stats`, and are told whether to use or to update these by `use_running_average`, an argument of
the layer or of the call, as for `nn.BatchNorm`: in training make the collection mutable. None has parameters.
"""

from __future__ import annotations

from dataclasses import KW_ONLY

import jax
import jax.numpy as jnp

from jax_rtopk import _layers
from jax_rtopk._layers import Activation, Routing

try:
    from flax import linen as nn
except ModuleNotFoundError as error:
    if error.name != "flax":
        raise
    raise ImportError("jax_rtopk.linen needs flax, which is not installed: pip install 'jax_rtopk[flax]'") from error

__all__ = ["BatchTopK", "KWinners", "Routing", "TopK", "TopKRouter"]


class TopK(nn.Module):
    """Keeps the k largest elements along an axis, exactly k under ties too; see `jax_rtopk.flax.TopK`.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from flax import linen as nn
    >>> from jax_rtopk.linen import TopK
    >>> model = nn.Sequential([nn.Dense(16), TopK(4, activation=nn.relu)])
    >>> h, _ = model.init_with_output(jax.random.key(0), jnp.ones((3, 8)))
    >>> print(jnp.sum(h > 0, axis=-1))
    [4 4 4]

    Arguments:
        k: how many elements to keep, a static int between 0 and the size of the axis.
        axis: the selection axis.
        activation: applied before the selection, which is among its results.
        by_magnitude: keep the elements of the largest absolute values.
        max_iter: how many passes over each row may be spent on counting; None is exact.
        recall_target: the share of the k largest that is to be kept in expectation; None is all of them.
        straight_through: pass the whole gradient through the selection, not only that of the elements kept.

    Raises:
        TypeError, ValueError: when called, as that layer.
    """

    k: int
    _: KW_ONLY
    axis: int = -1
    activation: Activation | None = None
    by_magnitude: bool = False
    max_iter: int | None = None
    recall_target: float | None = None
    straight_through: bool = False

    def __call__(self, x: jax.Array) -> jax.Array:
        """An array of x's shape and dtype with k elements kept of each row."""
        return _layers.topk_layer(
            x,
            self.activation,
            k=self.k,
            axis=self.axis,
            by_magnitude=self.by_magnitude,
            max_iter=self.max_iter,
            recall_target=self.recall_target,
            straight_through=self.straight_through,
        )


class BatchTopK(nn.Module):
    """Keeps the k largest elements a row on average, by a threshold at inference; see `jax_rtopk.flax.BatchTopK`.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk.linen import BatchTopK
    >>> layer, x = BatchTopK(1), jnp.array([[1.0, 5.0, 4.0], [2.0, 3.0, 0.0]])
    >>> variables = layer.init({}, x, use_running_average=False)
    >>> kept, variables = layer.apply(variables, x, use_running_average=False, mutable=["batch_stats"])
    >>> print(kept)
    [[0. 5. 4.]
     [0. 0. 0.]]
    >>> print(layer.apply(variables, jnp.array([[1.0, 5.0, 3.0], [6.0, 7.0, 4.0]]), use_running_average=True))
    [[0. 5. 0.]
     [6. 7. 4.]]

    Arguments:
        k: how many elements to keep of each row on average, a static int between 0 and the size of the last axis.
        momentum: how much of the threshold stays when a batch is added to it, at least 0 and below 1.
        use_running_average: True for inference; to be given either here or when called.

    The variables in `batch_stats` are `threshold` and `seen`, float32 scalars.

    Raises:
        TypeError: when used, if `momentum` is no number, `k` no static int, or x no array to select from.
        ValueError: when used, if `momentum` or `k` is out of range, or x is a scalar; if `use_running_average` is
            given twice or not at all.
    """

    k: int
    _: KW_ONLY
    momentum: float = 0.99
    use_running_average: bool | None = None

    def setup(self) -> None:
        """Makes the variables."""
        _layers.check_momentum(self.momentum)
        self.threshold = self.variable("batch_stats", "threshold", jnp.zeros, ())
        self.seen = self.variable("batch_stats", "seen", jnp.zeros, ())

    def __call__(self, x: jax.Array, use_running_average: bool | None = None) -> jax.Array:
        """An array of x's shape and dtype."""
        if nn.merge_param("use_running_average", self.use_running_average, use_running_average):
            return _layers.above_threshold(x, self.threshold.value)
        kept = _layers.batch_topk(x, self.k)
        if not self.is_initializing():
            state = self.threshold.value, self.seen.value
            self.threshold.value, self.seen.value = _layers.updated_threshold(state, kept, self.momentum)
        return kept


class KWinners(nn.Module):
    """Keeps the k winners of each row, chosen so that over time all units win; see `jax_rtopk.flax.KWinners`.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk.linen import KWinners
    >>> layer, x = KWinners(4, 1, boost_strength=2.0), jnp.array([[1.0, 2.0, 3.0, 2.5]])
    >>> variables = layer.init({}, x, use_running_average=False)
    >>> kept, variables = layer.apply(variables, x, use_running_average=False, mutable=["batch_stats"])
    >>> print(kept, variables["batch_stats"]["duty_cycle"])
    [[0. 0. 3. 0.]] [0. 0. 1. 0.]
    >>> kept, variables = layer.apply(variables, x, use_running_average=False, mutable=["batch_stats"])
    >>> print(kept)
    [[0.  0.  0.  2.5]]
    >>> print(layer.apply(variables, x, use_running_average=True))  # round(1 * 1.5) win
    [[0. 2. 3. 0.]]

    Arguments:
        features: the size of the last axis, along which units compete.
        k: how many win in training, a static int between 1 and `features`.
        boost_strength: how much units that seldom win are favoured, at least 0; 0 is plain top-k.
        duty_cycle_period: over how many samples duty cycles are averaged, at least 1.
        k_inference_factor: by how much more units win at inference, at most all.
        use_running_average: True for inference; to be given either here or when called.

    The variables in `batch_stats` are `duty_cycle` of shape `(features,)` and `seen`, a scalar, both float32.

    Raises:
        TypeError: when used, if an argument is no static number of its kind, or x no array to select from.
        ValueError: when used, if an argument is out of range, or the last axis of x not `features` long; if
            `use_running_average` is given twice or not at all.
    """

    features: int
    k: int
    _: KW_ONLY
    boost_strength: float = 1.0
    duty_cycle_period: int = 1000
    k_inference_factor: float = 1.5
    use_running_average: bool | None = None

    def setup(self) -> None:
        """Makes the variables."""
        _layers.check_k_winners(
            self.features, self.k, self.boost_strength, self.duty_cycle_period, self.k_inference_factor
        )
        self.duty_cycle = self.variable("batch_stats", "duty_cycle", jnp.zeros, (self.features,))
        self.seen = self.variable("batch_stats", "seen", jnp.zeros, ())

    def __call__(self, x: jax.Array, use_running_average: bool | None = None) -> jax.Array:
        """An array of x's shape and dtype."""
        at_inference = nn.merge_param("use_running_average", self.use_running_average, use_running_average)
        kept = _layers.k_winners(
            x,
            self.duty_cycle.value,
            features=self.features,
            k=self.k,
            boost_strength=self.boost_strength,
            inference_factor=self.k_inference_factor if at_inference else None,
        )
        if not (at_inference or self.is_initializing()):
            state = self.duty_cycle.value, self.seen.value
            self.duty_cycle.value, self.seen.value = _layers.updated_duty_cycle(state, kept, self.duty_cycle_period)
        return kept


class TopKRouter(nn.Module):
    """Chooses k experts for each token, and their weights, from one logit for each; see `jax_rtopk.flax.TopKRouter`.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from jax_rtopk.linen import TopKRouter
    >>> router = TopKRouter(4, 2, score=jax.nn.sigmoid, bias_update_rate=0.5)
    >>> logits = jnp.log(jnp.array([[1.0, 3.0, 4.0, 0.25]]))  # sigmoids .5, .75, .8, .2
    >>> variables = router.init({}, logits, use_running_average=False)
    >>> (weights, ids), variables = router.apply(variables, logits, use_running_average=False, mutable=["batch_stats"])
    >>> print(ids, weights.round(2), variables["batch_stats"]["bias"])
    [[2 1]] [[0.52 0.48]] [ 0.5 -0.5 -0.5  0.5]
    >>> print(router.apply(variables, logits, use_running_average=True).ids)
    [[0 3]]

    Arguments:
        num_experts: the size of the last axis.
        k: how many experts to choose for each token, a static int between 1 and `num_experts`.
        score: makes scores of the logits.
        renormalise: divide the weights of each token by their sum, unless that is zero.
        bias_update_rate: None: no bias. Else by how much each call moves it, at least 0; 0 leaves it as it is.
        use_running_average: True for inference, where the bias stays as it is; with a bias, to be given either here or
            when called.

    With a bias `batch_stats` holds `bias` of shape `(num_experts,)`, float32.

    Returns:
        When called, `Routing(weights, ids)` of the logits' shape with k in place of `num_experts`. Experts come in
        descending order of what they were chosen by: `ids`, int32, are the indices of `jax.lax.top_k`.

    Raises:
        TypeError: when used, if an argument is no static number of its kind, or the logits no array to select from.
        ValueError: when used, if an argument is out of range, or the last axis not `num_experts` long; with a bias, if
            `use_running_average` is given twice or not at all.
    """

    num_experts: int
    k: int
    _: KW_ONLY
    score: Activation = jax.nn.softmax
    renormalise: bool = True
    bias_update_rate: float | None = None
    use_running_average: bool | None = None

    def setup(self) -> None:
        """Makes the bias."""
        _layers.check_router(self.num_experts, self.k, self.bias_update_rate)
        if self.bias_update_rate is not None:
            self.bias = self.variable("batch_stats", "bias", jnp.zeros, (self.num_experts,))

    def __call__(self, logits: jax.Array, use_running_average: bool | None = None) -> Routing:
        """The experts and weights of each token."""
        rate = self.bias_update_rate
        routing = _layers.route(
            logits,
            None if rate is None else self.bias.value,
            num_experts=self.num_experts,
            k=self.k,
            score=self.score,
            renormalise=self.renormalise,
        )
        if rate is not None:
            at_inference = nn.merge_param("use_running_average", self.use_running_average, use_running_average)
            if not (at_inference or self.is_initializing()):
                self.bias.value = _layers.updated_bias(self.bias.value, routing.ids, rate)
        return routing
