"""The layers of both libraries: against their definitions in numpy, in training and at inference, and transformed."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest
from flax import nnx

import jax_rtopk.flax
import jax_rtopk.linen
from jax_rtopk import approx_topk, topk_sparsify

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.not_emulated]


class NnxLayer:
    """A layer of jax_rtopk.flax, with its state."""

    def __init__(self, name, *args, **kwargs):
        self.layer = getattr(jax_rtopk.flax, name)(*args, **kwargs)

    def train(self, x):
        self.layer.train()
        return self.layer(x)

    def infer(self, x):
        self.layer.eval()
        return self.layer(x)

    def function(self, *, training):
        """A call as a function of x, which leaves the state as it is."""
        graph, state = nnx.split(self.layer)
        arguments = {} if isinstance(self.layer, jax_rtopk.flax.TopK) else {"use_running_average": not training}
        return lambda x: nnx.merge(graph, state, copy=True)(x, **arguments)

    def statistics(self):
        state = nnx.to_pure_dict(nnx.state(self.layer, nnx.BatchStat))
        return {name: np.asarray(value) for name, value in state.items()}


class LinenLayer:
    """A layer of jax_rtopk.linen, with its variables."""

    def __init__(self, name, *args, **kwargs):
        self.layer = getattr(jax_rtopk.linen, name)(*args, **kwargs)
        self.variables = None

    def _apply(self, x, *, training):
        arguments = {} if isinstance(self.layer, jax_rtopk.linen.TopK) else {"use_running_average": not training}
        if self.variables is None:
            self.variables = self.layer.init({}, x, **arguments)
        return self.layer.apply(self.variables, x, **arguments, mutable=["batch_stats"] if training else [])

    def train(self, x):
        kept, updated = self._apply(x, training=True)
        self.variables |= updated
        return kept

    def infer(self, x):
        return self.function(training=False)(x)

    def function(self, *, training):
        return lambda x: self._apply(x, training=training)[0]

    def statistics(self):
        return {name: np.asarray(value) for name, value in self.variables["batch_stats"].items()}


@pytest.fixture(params=[NnxLayer, LinenLayer], ids=["nnx", "linen"])
def make(request):
    return request.param


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_ties(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def assert_state(layer, **want):
    got = layer.statistics()
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


# TopK


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("by_magnitude", [False, True])
def test_topk(make, axis, by_magnitude):
    x = with_ties(5, 7, 12)
    kept = make("TopK", 3, axis=axis, by_magnitude=by_magnitude).train(x)
    oracle.assert_same(kept, np.where(oracle.mask(x, 3, axis=axis, by_magnitude=by_magnitude), x, np.float32(0)))


def test_topk_keeps_k_of_tied_elements(make):
    kept = make("TopK", 3).infer(jnp.ones((4, 40)))
    np.testing.assert_array_equal(kept, np.arange(40) < 3 * np.ones((4, 1)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_topk_keeps_the_dtype(make, dtype):
    assert make("TopK", 3).train(jnp.ones((2, 8), dtype)).dtype == dtype


@pytest.mark.parametrize("activation", [nnx.relu, nnx.gelu, jnp.abs])
def test_topk_of_an_activation(make, activation):
    """Selects among what the activation returns; with ReLU it does not matter which comes first."""
    x = jnp.asarray(normal(6, 30))
    kept = make("TopK", 20, activation=activation).train(x)
    np.testing.assert_array_equal(kept, topk_sparsify(activation(x), 20))
    if activation is nnx.relu:
        np.testing.assert_array_equal(kept, nnx.relu(topk_sparsify(x, 20)))


def test_topk_stops_early(make):
    x = normal(64, 500)
    kept = make("TopK", 60, max_iter=1).train(x)
    np.testing.assert_array_equal(kept, topk_sparsify(x, 60, max_iter=1))


def test_topk_gradient(make):
    x, cotangent = jnp.asarray(with_ties(4, 16)), jnp.asarray(normal(4, 16, seed=1))
    layer, through = make("TopK", 5), make("TopK", 5, straight_through=True)
    kept = oracle.mask(np.asarray(x), 5)
    np.testing.assert_array_equal(
        jax.vjp(layer.function(training=False), x)[1](cotangent)[0], np.where(kept, cotangent, 0)
    )
    np.testing.assert_array_equal(jax.vjp(through.function(training=True), x)[1](cotangent)[0], cotangent)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("by_magnitude", [False, True])
def test_topk_with_a_recall(make, axis, by_magnitude):
    x = normal(*((3, 16384) if axis == -1 else (16384, 3)))
    kept = make("TopK", 128, axis=axis, by_magnitude=by_magnitude, recall_target=0.9).train(x)
    indices = approx_topk(np.abs(x) if by_magnitude else x, 128, axis=axis, recall_target=0.9).indices
    want = np.zeros_like(x)
    np.put_along_axis(want, np.asarray(indices), np.take_along_axis(x, np.asarray(indices), axis), axis)
    oracle.assert_same(kept, want)
    exact = oracle.mask(x, 128, axis=axis, by_magnitude=by_magnitude)
    assert 0.8 < np.mean(want[exact] != 0) < 1  # so it was not exact


@pytest.mark.parametrize("straight_through", [False, True])
def test_topk_gradient_with_a_recall(make, straight_through):
    x, cotangent = jnp.asarray(normal(2, 16384)), jnp.asarray(normal(2, 16384, seed=1))
    layer = make("TopK", 128, recall_target=0.9, straight_through=straight_through)
    kept, pull_back = jax.vjp(layer.function(training=False), x)
    want = cotangent if straight_through else jnp.where(kept != 0, cotangent, 0)
    np.testing.assert_array_equal(pull_back(cotangent)[0], want)


def test_topk_with_a_recall_keeps_the_bits(make):
    x = np.array([[0x7D, 0x3C, 0x80, 0x00]], np.uint8).view(ml_dtypes.float8_e5m2)  # 0x7D: a signalling NaN
    kept = make("TopK", 2, recall_target=0.9).train(jnp.asarray(x))
    assert np.asarray(kept).view(np.uint8).tolist() == [[0x7D, 0x3C, 0, 0]]


@pytest.mark.parametrize("flag", ["by_magnitude", "straight_through"])
def test_topk_checks_its_flags(make, flag):
    for arguments in ({}, {"recall_target": 0.9}):
        with pytest.raises(TypeError, match=f"{flag} must be"):
            make("TopK", 2, **{flag: 1}, **arguments).train(jnp.ones((2, 8)))


def test_topk_takes_passes_or_a_recall(make):
    with pytest.raises(ValueError, match=r"got max_iter=2 and recall_target=0\.9\. Give one"):
        make("TopK", 4, max_iter=2, recall_target=0.9).train(jnp.ones((2, 8)))
    with pytest.raises(ValueError, match=r"recall_target must be a number above 0 and at most 1, got 1\.5"):
        make("TopK", 4, recall_target=1.5).train(jnp.ones((2, 8)))


# BatchTopK


def batch_kept(x, k):
    return oracle.mask(x.reshape(-1), k * (x.size // x.shape[-1])).reshape(x.shape)


@pytest.mark.parametrize("shape", [(6, 10), (2, 3, 10), (10,), (300, 40)])
def test_batch_topk(make, shape):
    x = with_ties(*shape)
    kept = make("BatchTopK", 3).train(x)
    oracle.assert_same(kept, np.where(batch_kept(x, 3), x, np.float32(0)))


def test_batch_topk_gives_to_rows_what_they_are_worth(make):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(np.count_nonzero(make("BatchTopK", 2).train(x), axis=-1), [0, 2, 4])


def test_batch_topk_gradient(make):
    x, cotangent = jnp.asarray(with_ties(6, 10)), jnp.asarray(normal(6, 10, seed=1))
    layer = make("BatchTopK", 3)
    layer.train(x)
    threshold = layer.statistics()["threshold"]
    (at_inference,) = jax.vjp(layer.function(training=False), x)[1](cotangent)
    np.testing.assert_array_equal(at_inference, np.where(x >= threshold, cotangent, 0))
    (in_training,) = jax.vjp(layer.function(training=True), x)[1](cotangent)
    np.testing.assert_array_equal(in_training, np.where(batch_kept(np.asarray(x), 3), cotangent, 0))


def test_batch_topk_threshold(make):
    """The mean of the first 1 / (1 - momentum) batches' smallest, which then fades."""
    layer = make("BatchTopK", 2, momentum=0.75)
    threshold, seen = 0.0, 0
    for step in range(7):
        x = np.maximum(normal(5, 9, seed=step) + step / 9, 0)
        layer.train(x)
        seen = min(seen + 1, 4)
        threshold += (x[batch_kept(x, 2)].min() - threshold) / seen
        assert_state(layer, threshold=threshold, seen=seen)
    x = normal(8, 9, seed=99)
    np.testing.assert_array_equal(layer.infer(x), np.where(x >= layer.statistics()["threshold"], x, 0))
    assert_state(layer, threshold=threshold, seen=seen)


def test_batch_topk_selects_the_same_at_inference(make):
    """Where the threshold is of that batch, which has no ties."""
    layer, x = make("BatchTopK", 3), normal(20, 16)
    np.testing.assert_array_equal(layer.train(x), layer.infer(x))


def test_batch_topk_threshold_is_positive(make):
    """Zeros, which are kept where ReLU left too few others, and batches without a positive element do not count."""
    layer = make("BatchTopK", 3)
    x = np.zeros((2, 4), np.float32)
    x[0, 1], x[1, 2] = 3, 2
    layer.train(x)
    assert_state(layer, threshold=2, seen=1)
    layer.train(np.zeros((2, 4), np.float32))
    layer.train(-np.ones((2, 4), np.float32))
    assert_state(layer, threshold=2, seen=1)


# KWinners


def boosted(x, duty_cycle, k, boost_strength):
    return (np.exp(boost_strength * (k / x.shape[-1] - duty_cycle)) * x).astype(np.float32)


@pytest.mark.parametrize("shape", [(10, 12), (2, 5, 12), (12,)])
def test_k_winners(make, shape):
    k, strength, period = 3, 1.5, 35
    layer = make("KWinners", 12, k, boost_strength=strength, duty_cycle_period=period)
    duty_cycle, seen = np.zeros(12), 0
    rows = int(np.prod(shape[:-1]))
    for step in range(6):
        x = normal(*shape, seed=step)
        kept = np.where(oracle.mask(boosted(x, duty_cycle, k, strength), k), x, np.float32(0))
        oracle.assert_same(layer.train(x), kept)
        seen = min(seen + rows, period)
        active = np.sum(kept.reshape(-1, 12) > 0, axis=0)
        duty_cycle = (duty_cycle * (seen - rows) + active) / seen  # as in nupic.torch
        assert_state(layer, duty_cycle=duty_cycle, seen=seen)
    x = normal(*shape, seed=99)
    winners = oracle.mask(boosted(x, duty_cycle, k, strength), round(k * 1.5))
    oracle.assert_same(layer.infer(x), np.where(winners, x, np.float32(0)))
    assert_state(layer, duty_cycle=duty_cycle, seen=seen)


def test_k_winners_of_a_batch_beyond_the_period(make):
    """Only that batch counts; the formula of nupic.torch would give weights below zero."""
    layer = make("KWinners", 4, 1, duty_cycle_period=3)
    layer.train(np.eye(4, dtype=np.float32))
    layer.train(np.tile(np.float32([0, 0, 0, 9]), (8, 1)))
    assert_state(layer, duty_cycle=[0, 0, 0, 1], seen=3)


def test_k_winners_takes_turns(make):
    """Equal units that compete at length win equally often; without boosting the first always does."""
    for strength, most in [(10.0, 0.3), (0.0, 1.0)]:
        layer = make("KWinners", 5, 1, boost_strength=strength, duty_cycle_period=50)
        for _ in range(60):
            layer.train(jnp.ones((1, 5)))
        assert layer.statistics()["duty_cycle"].max() == pytest.approx(most, abs=0.1)


def test_k_winners_keeps_k_of_tied_units(make):
    assert np.count_nonzero(make("KWinners", 9, 4).train(jnp.ones((3, 9))), axis=-1).tolist() == [4, 4, 4]


def test_k_winners_that_are_not_positive_are_not_active(make):
    layer = make("KWinners", 3, 2)
    np.testing.assert_array_equal(layer.train(jnp.array([[4.0, -1.0, -2.0]])), [[4, -1, 0]])
    assert_state(layer, duty_cycle=[1, 0, 0], seen=1)


@pytest.mark.parametrize(("factor", "winners"), [(1.5, 4), (1.0, 3), (0.5, 2), (100.0, 8)])
def test_k_winners_at_inference(make, factor, winners):
    layer = make("KWinners", 8, 3, k_inference_factor=factor)  # round(4.5) is 4, and round(1.5) 2
    assert np.count_nonzero(layer.infer(normal(5, 8)), axis=-1).tolist() == [winners] * 5
    assert_state(layer, duty_cycle=np.zeros(8), seen=0)


def test_k_winners_gradient(make):
    """Through the winners alone, and unboosted."""
    x, cotangent = jnp.asarray(normal(6, 10)), jnp.asarray(normal(6, 10, seed=1))
    layer = make("KWinners", 10, 3, boost_strength=5.0)
    kept = layer.train(x)
    assert not np.array_equal(kept, layer.function(training=True)(x)), "boosting changes nothing"
    kept, pullback = jax.vjp(layer.function(training=True), x)
    np.testing.assert_array_equal(pullback(cotangent)[0], np.where(kept != 0, cotangent, 0))


def test_k_winners_compares_products_of_bfloat16_in_float32(make):
    layer = make("KWinners", 2, 1, boost_strength=0.001)
    layer.train(jnp.array([[1.0, 0.0]]))
    kept = layer.train(jnp.ones((1, 2), jnp.bfloat16))
    assert kept.dtype == jnp.bfloat16
    assert kept.tolist() == [[0, 1]]


# TopKRouter


@pytest.mark.parametrize("score", [jax.nn.softmax, jax.nn.sigmoid, lambda logits: logits])
@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("logits", [normal(7, 5, 16), with_ties(7, 5, 16)], ids=["normal", "ties"])
def test_router(make, score, renormalise, logits):
    weights, ids = make("TopKRouter", 16, 4, score=score, renormalise=renormalise).infer(logits)
    want, want_ids = jax.lax.top_k(score(jnp.asarray(logits)), 4)
    oracle.assert_same(ids, np.asarray(want_ids))
    assert ids.dtype == np.int32
    if not renormalise:
        oracle.assert_same(weights, np.asarray(want))
    else:
        np.testing.assert_allclose(weights, want / np.sum(want, axis=-1, keepdims=True), rtol=1e-5)


def test_router_bias_moves_the_choice_alone(make):
    router = make("TopKRouter", 8, 3, score=jax.nn.sigmoid, renormalise=False, bias_update_rate=0.1)
    bias = np.zeros(8, np.float32)
    for step in range(5):
        logits = normal(20, 8, seed=step)
        weights, ids = router.train(logits)
        scores = jax.nn.sigmoid(jnp.asarray(logits))
        want = jax.lax.top_k(scores + bias, 3)[1]
        oracle.assert_same(ids, np.asarray(want))
        oracle.assert_same(weights, np.take_along_axis(np.asarray(scores), np.asarray(want), -1))
        load = np.bincount(np.ravel(want), minlength=8)
        bias = (bias + np.float32(0.1) * np.sign(20 * 3 / 8 - load)).astype(np.float32)
        assert_state(router, bias=bias)
    assert np.any(jax.lax.top_k(scores + bias, 3)[1] != jax.lax.top_k(scores, 3)[1])
    np.testing.assert_array_equal(router.infer(logits).ids, jax.lax.top_k(scores + router.statistics()["bias"], 3)[1])
    assert_state(router, bias=bias)


def test_router_bias_balances_the_experts(make):
    router = make("TopKRouter", 8, 2, score=jax.nn.sigmoid, bias_update_rate=0.02)
    logits = normal(256, 8) + np.linspace(-2, 2, 8, dtype=np.float32)
    loads = [np.bincount(np.ravel(router.train(logits).ids), minlength=8) for _ in range(100)]
    assert loads[0].max() > 150
    assert loads[-1].max() < 90  # 64 would be even


def test_router_without_bias_has_no_state(make):
    router = make("TopKRouter", 8, 2)
    router.train(normal(3, 8))
    assert not (isinstance(router, NnxLayer) and router.statistics())
    assert not (isinstance(router, LinenLayer) and router.variables)


@pytest.mark.parametrize("rate", [None, 0.1])
def test_router_gradient(make, rate):
    """That of the weights of the experts chosen."""
    logits, cotangent = jnp.asarray(normal(6, 8)), jnp.asarray(normal(6, 3, seed=1))
    router = make("TopKRouter", 8, 3, bias_update_rate=rate)
    router.train(logits)
    (_, ids), pullback = jax.vjp(lambda logits: tuple(router.function(training=True)(logits)), logits)

    def weights(logits):
        chosen = jnp.take_along_axis(jax.nn.softmax(logits), ids, -1)
        return chosen / chosen.sum(-1, keepdims=True)

    (got,) = pullback((cotangent, np.zeros(ids.shape, jax.dtypes.float0)))
    np.testing.assert_allclose(got, jax.vjp(weights, logits)[1](cotangent)[0], rtol=1e-4, atol=1e-6)


def test_router_when_all_scores_underflow(make):
    router = make("TopKRouter", 4, 2, score=jax.nn.sigmoid)
    assert router.infer(jnp.full((1, 4), -1000.0)).weights.tolist() == [[0, 0]]
