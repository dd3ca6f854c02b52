"""Sparse layers for Flax NNX: `pip install 'jax_rtopk[flax]'`. For Linen they are in `jax_rtopk.linen`.

`TopK` is stateless. The others keep `nnx.BatchStat`s, which are updated in training only: `model.train()` and
`model.eval()` switch between the two, as does the argument `use_running_average`, as they do for `nnx.BatchNorm`. None
has parameters, so none takes `rngs`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_rtopk import _layers
from jax_rtopk._layers import Activation, Routing

try:
    from flax import nnx
except ModuleNotFoundError as error:
    if error.name != "flax":
        raise
    raise ImportError("jax_rtopk.flax needs flax, which is not installed: pip install 'jax_rtopk[flax]'") from error

__all__ = ["BatchTopK", "KWinners", "Routing", "TopK", "TopKRouter"]


class TopK(nnx.Module):
    """Keeps the k largest elements along an axis, exactly k under ties too, and sets the rest to zero.

    The nonlinearity of MaxK-GNN (arXiv 2312.08656) and of TopK sparse autoencoders (arXiv 2406.04093): the layer form
    of `jax_rtopk.topk_sparsify`. Gradients pass through the elements kept.

    >>> import jax.numpy as jnp
    >>> from flax import nnx
    >>> from jax_rtopk.flax import TopK
    >>> model = nnx.Sequential(nnx.Linear(8, 16, rngs=nnx.Rngs(0)), TopK(4, activation=nnx.relu))
    >>> print(jnp.sum(model(jnp.ones((3, 8))) > 0, axis=-1))
    [4 4 4]

    Arguments:
        k: how many elements to keep, a static int between 0 and the size of the axis.
        axis: the selection axis.
        activation: applied before the selection, which is among its results. (To apply a monotone one that maps zero to
            zero, such as ReLU, to what was selected would give the same.)
        by_magnitude: keep the elements of the largest absolute values.
        max_iter: how many passes over each row may be spent on counting; None is exact. See `jax_rtopk.topk`.
        recall_target: the share of the k largest that is to be kept in expectation, k elements in any case; None is
            all of them. See `jax_rtopk.approx_topk`.
        straight_through: pass the whole gradient through the selection, not only that of the elements kept.

    Raises:
        TypeError, ValueError: when called, as `jax_rtopk.topk_sparsify` or `jax_rtopk.approx_topk`; or if both max_iter
            and recall_target are given.
    """

    def __init__(
        self,
        k: int,
        *,
        axis: int = -1,
        activation: Activation | None = None,
        by_magnitude: bool = False,
        max_iter: int | None = None,
        recall_target: float | None = None,
        straight_through: bool = False,
    ):
        self.k = k
        self.axis = axis
        self.activation = activation
        self.by_magnitude = by_magnitude
        self.max_iter = max_iter
        self.recall_target = recall_target
        self.straight_through = straight_through

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


class _WithStatistics(nnx.Module):
    """A layer that does in training what it must not do at inference."""

    use_running_average: bool

    def set_view(self, use_running_average: bool | None = None) -> None:
        """What `nnx.view` calls.

        Args:
          use_running_average: whether the layer is used for inference, so that its statistics stay as they are.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average

    def _at_inference(self, use_running_average: bool | None) -> bool:
        return self.use_running_average if use_running_average is None else use_running_average


class BatchTopK(_WithStatistics):
    """Keeps the k largest elements a row on average: of a batch of rows, the k * rows largest, wherever they are.

    From BatchTopK sparse autoencoders (Bussmann, Leask, Nanda 2024, arXiv 2412.06410), which apply it to what a ReLU
    returns. Exactly k * rows elements are kept in training, ties to the lowest index, and gradients pass through them.
    At inference, where rows must not depend on each other, the elements at or above a threshold are kept: the running
    average of each training batch's smallest positive element kept. Before any training it is zero.

    A batch is all that one call sees: all axes but the last are rows. So a batch that is sharded over devices is
    gathered for it in training, which costs communication (under explicit sharding, reshard it first); inference
    costs none. Within `jax.vmap` and `jax.shard_map` each call selects for itself.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk.flax import BatchTopK
    >>> layer = BatchTopK(1)
    >>> print(layer(jnp.array([[1.0, 5.0, 4.0], [2.0, 3.0, 0.0]])))
    [[0. 5. 4.]
     [0. 0. 0.]]
    >>> layer.eval()
    >>> print(layer(jnp.array([[1.0, 5.0, 3.0], [6.0, 7.0, 4.0]])))
    [[0. 5. 0.]
     [6. 7. 4.]]

    Arguments:
        k: how many elements to keep of each row on average, a static int between 0 and the size of the last axis.
        momentum: how much of the threshold stays when a batch is added to it, at least 0 and below 1. The first
            1 / (1 - momentum) batches are averaged evenly, so the threshold is not biased towards its start at zero.
        use_running_average: True for inference; set by `train()` and `eval()`.

    Attributes:
        threshold: the `nnx.BatchStat` applied at inference, a float32 scalar.
        seen: a `nnx.BatchStat`, how many batches are averaged in it.

    Raises:
        TypeError: if `momentum` is no number; when called, if `k` is no static int, or x no array to select from.
        ValueError: if `momentum` is out of range; when called, if `k` is, or x is a scalar.
    """

    def __init__(self, k: int, *, momentum: float = 0.99, use_running_average: bool = False):
        _layers.check_momentum(momentum)
        self.k = k
        self.momentum = momentum
        self.use_running_average = use_running_average
        self.threshold = nnx.BatchStat(jnp.zeros(()))
        self.seen = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x: jax.Array, use_running_average: bool | None = None) -> jax.Array:
        """An array of x's shape and dtype; `use_running_average` goes before the layer's own."""
        if self._at_inference(use_running_average):
            return _layers.above_threshold(x, self.threshold[...])
        kept = _layers.batch_topk(x, self.k)
        state = self.threshold[...], self.seen[...]
        self.threshold[...], self.seen[...] = _layers.updated_threshold(state, kept, self.momentum)
        return kept


class KWinners(_WithStatistics):
    """Keeps the k winners of each row, chosen so that over time all units get to win.

    From "How Can We Be So Dense? The Benefits of Using Highly Sparse Representations" (Ahmad and Scheinkman 2019, arXiv
    1903.11257). A unit's *duty cycle* is the share of recent samples in which it was active: won, and with a positive
    value. Winners are those with the largest exp(boost_strength * (k / features - duty cycle)) * x, which favours units
    that seldom win; what is kept are their own values, and gradients pass through these. Exactly k win, ties to the
    lowest index. At inference k * k_inference_factor win, rounded, and duty cycles stay as they are.

    A sharded batch stays where it is; that the mean over it goes into the duty cycle costs a sum over the devices of
    one number a unit, in training.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk.flax import KWinners
    >>> layer = KWinners(4, 1, boost_strength=2.0)
    >>> x = jnp.array([[1.0, 2.0, 3.0, 2.5]])
    >>> print(layer(x))
    [[0. 0. 3. 0.]]
    >>> print(layer.duty_cycle[...])
    [0. 0. 1. 0.]
    >>> print(layer(x))
    [[0.  0.  0.  2.5]]
    >>> layer.eval()
    >>> print(layer(x))  # round(1 * 1.5) win
    [[0. 2. 3. 0.]]

    Arguments:
        features: the size of the last axis, along which units compete.
        k: how many win in training, a static int between 1 and `features`.
        boost_strength: how much units that seldom win are favoured, at least 0; 0 is plain top-k. May be set anew, as
            `layer.boost_strength`, between epochs: usual is to let it fade.
        duty_cycle_period: over how many samples duty cycles are averaged, at least 1.
        k_inference_factor: by how much more units win at inference, at most all.
        use_running_average: True for inference; set by `train()` and `eval()`.

    Attributes:
        duty_cycle: a `nnx.BatchStat` of shape `(features,)`, float32.
        seen: a `nnx.BatchStat`, how many samples are averaged in it.

    Raises:
        TypeError: if an argument is no static number of its kind; when called, if x is no array to select from.
        ValueError: if an argument is out of range; when called, if the last axis of x is not `features` long.
    """

    def __init__(
        self,
        features: int,
        k: int,
        *,
        boost_strength: float = 1.0,
        duty_cycle_period: int = 1000,
        k_inference_factor: float = 1.5,
        use_running_average: bool = False,
    ):
        _layers.check_k_winners(features, k, boost_strength, duty_cycle_period, k_inference_factor)
        self.features = features
        self.k = k
        self.boost_strength = boost_strength
        self.duty_cycle_period = duty_cycle_period
        self.k_inference_factor = k_inference_factor
        self.use_running_average = use_running_average
        self.duty_cycle = nnx.BatchStat(jnp.zeros(features))
        self.seen = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x: jax.Array, use_running_average: bool | None = None) -> jax.Array:
        """An array of x's shape and dtype; `use_running_average` goes before the layer's own."""
        at_inference = self._at_inference(use_running_average)
        kept = _layers.k_winners(
            x,
            self.duty_cycle[...],
            features=self.features,
            k=self.k,
            boost_strength=self.boost_strength,
            inference_factor=self.k_inference_factor if at_inference else None,
        )
        if not at_inference:
            state = self.duty_cycle[...], self.seen[...]
            self.duty_cycle[...], self.seen[...] = _layers.updated_duty_cycle(state, kept, self.duty_cycle_period)
        return kept


class TopKRouter(_WithStatistics):
    """Chooses k experts for each token, and their weights, from one logit for each expert.

    Weights are the scores, `score(logits)`, of the experts chosen. Without a bias these are chosen by the scores too.
    With one, they are chosen by score + bias, which balances the experts without an auxiliary loss (Wang et al. 2024,
    arXiv 2408.15664; DeepSeek-V3, arXiv 2412.19437): in training, each call moves the bias of experts that got less
    than their share of its tokens up by `bias_update_rate`, and that of the others down. Gradients pass through the
    weights; to the choice and the bias there are none.

    Linear layers in front of it make the logits, and want them in float32. `score=jax.nn.sigmoid` with a bias is the
    router of DeepSeek-V3 without its groups; `jax.nn.softmax`, renormalised, Mixtral's.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from jax_rtopk.flax import TopKRouter
    >>> router = TopKRouter(4, 2, score=jax.nn.sigmoid, bias_update_rate=0.5)
    >>> logits = jnp.log(jnp.array([[1.0, 3.0, 4.0, 0.25]]))  # sigmoids .5, .75, .8, .2
    >>> weights, ids = router(logits)
    >>> print(ids, weights.round(2))
    [[2 1]] [[0.52 0.48]]
    >>> print(router.bias[...])
    [ 0.5 -0.5 -0.5  0.5]
    >>> print(router(logits).ids)
    [[0 3]]

    Arguments:
        num_experts: the size of the last axis.
        k: how many experts to choose for each token, a static int between 1 and `num_experts`.
        score: makes scores of the logits.
        renormalise: divide the weights of each token by their sum, unless that is zero.
        bias_update_rate: None: no bias. Else by how much each call moves it, at least 0; 0 leaves it as it is.
        use_running_average: True for inference, where the bias stays as it is; set by `train()` and `eval()`.

    Attributes:
        bias: a `nnx.BatchStat` of shape `(num_experts,)`, float32; None without a bias.

    Returns:
        When called, `Routing(weights, ids)` of the logits' shape with k in place of `num_experts`. Experts come in
        descending order of what they were chosen by: `ids`, int32, are the indices of `jax.lax.top_k`.

    Raises:
        TypeError: if an argument is no static number of its kind; when called, if the logits are no array to select
            from.
        ValueError: if an argument is out of range; when called, if the last axis is not `num_experts` long.
    """

    def __init__(
        self,
        num_experts: int,
        k: int,
        *,
        score: Activation = jax.nn.softmax,
        renormalise: bool = True,
        bias_update_rate: float | None = None,
        use_running_average: bool = False,
    ):
        _layers.check_router(num_experts, k, bias_update_rate)
        self.num_experts = num_experts
        self.k = k
        self.score = score
        self.renormalise = renormalise
        self.bias_update_rate = bias_update_rate
        self.use_running_average = use_running_average
        self.bias = nnx.data(None if bias_update_rate is None else nnx.BatchStat(jnp.zeros(num_experts)))

    def __call__(self, logits: jax.Array, use_running_average: bool | None = None) -> Routing:
        """The experts and weights of each token; `use_running_average` goes before the router's own."""
        bias = self.bias
        routing = _layers.route(
            logits,
            None if bias is None else bias[...],
            num_experts=self.num_experts,
            k=self.k,
            score=self.score,
            renormalise=self.renormalise,
        )
        if bias is not None and self.bias_update_rate is not None and not self._at_inference(use_running_average):
            bias[...] = _layers.updated_bias(bias[...], routing.ids, self.bias_update_rate)
        return routing
