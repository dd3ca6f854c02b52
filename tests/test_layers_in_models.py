"""The layers where models put them: in a Sequential, under the transformations of both libraries, in sharded programs.

Not on pure JAX: `lax.top_k` gathers, and that the operations are transformed alike everywhere is tested elsewhere.
"""

import subprocess
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import errors, nnx
from flax import linen as nn
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from test_sharding import COLLECTIVE

from jax_rtopk import flax, linen

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.native_only, pytest.mark.not_emulated]

LAYERS = {
    "TopK": lambda library: library.TopK(4, activation=nnx.relu),
    "BatchTopK": lambda library: library.BatchTopK(4, use_running_average=False),
    "KWinners": lambda library: library.KWinners(16, 4, use_running_average=False),
    "TopKRouter": lambda library: library.TopKRouter(
        16, 4, score=jax.nn.sigmoid, bias_update_rate=0.1, use_running_average=False
    ),
}
layers = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)

X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 6)), jnp.float32)
XS = jnp.asarray(np.random.default_rng(1).standard_normal((3, 8, 6)), jnp.float32)


def values(output):
    """What a layer returns that has a gradient."""
    return jax.tree.leaves(output)[0]


def assert_close(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6), got, want)


# NNX


def nnx_model(layer, seed=0):
    return nnx.Sequential(nnx.Linear(6, 16, rngs=nnx.Rngs(seed)), layer(flax))


def call(model, x):
    return model(x)


def loss(model, x):
    return jnp.sum(values(model(x)) ** 2)


def trained(model, xs=XS):
    """What the model returns for each batch in turn; its statistics are updated."""
    return [model(x) for x in xs]


def state_of(model):
    return nnx.to_pure_dict(nnx.state(model))


@layers
def test_nnx_jit(layer):
    model, compiled = nnx_model(layer), nnx_model(layer)
    step = nnx.jit(call)
    assert_close([step(compiled, x) for x in XS], trained(model))
    assert_close(state_of(compiled), state_of(model))


@layers
def test_nnx_grad(layer):
    model, compiled, called = nnx_model(layer), nnx_model(layer), nnx_model(layer)
    got = nnx.jit(nnx.value_and_grad(loss))(compiled, X)
    want = nnx.value_and_grad(loss)(model, X)
    assert_close(got[0], want[0])
    assert_close(nnx.to_pure_dict(got[1]), nnx.to_pure_dict(want[1]))
    assert np.any(np.asarray(jax.tree.leaves(want[1])[0]) != 0)
    called(X)
    assert_close(state_of(model), state_of(called))
    assert_close(state_of(compiled), state_of(called))


@layers
def test_nnx_remat(layer):
    model, rematerialised = nnx_model(layer), nnx_model(layer)
    remat = nnx.remat(call)
    got = nnx.grad(lambda model, x: jnp.sum(values(remat(model, x)) ** 2))(rematerialised, X)
    assert_close(nnx.to_pure_dict(got), nnx.to_pure_dict(nnx.grad(loss)(model, X)))
    assert_close(state_of(rematerialised), state_of(model))


@layers
def test_nnx_scan(layer):
    """Over batches, with the statistics carried along."""
    model, scanned = nnx_model(layer), nnx_model(layer)

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def step(model, x):
        return model, model(x)

    scanned, got = step(scanned, XS)
    assert_close(got, jax.tree.map(lambda *outputs: jnp.stack(outputs), *trained(model)))
    assert_close(state_of(scanned), state_of(model))


@layers
def test_nnx_vmap_of_models(layer):
    """An ensemble, each member with statistics of its own."""
    keys = jax.random.split(jax.random.key(0), 3)
    models = nnx.vmap(lambda key: nnx_model(layer, key))(keys)
    got = nnx.vmap(call)(models, XS)
    members = [nnx_model(layer, key) for key in keys]
    want = [member(x) for member, x in zip(members, XS, strict=True)]
    assert_close(got, jax.tree.map(lambda *outputs: jnp.stack(outputs), *want))
    assert_close(state_of(models), jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(state_of, members)))


@layers
def test_nnx_vmap_of_rows(layer):
    """At inference rows are apart."""
    model = nnx_model(layer)
    trained(model)
    model.eval()
    assert_close(jax.vmap(model)(X), model(X))
    assert_close(nnx.vmap(call, in_axes=(None, 0))(model, X), model(X))


@layers
def test_nnx_split_and_merge(layer):
    model = nnx_model(layer)
    trained(model)
    graph, parameters, rest = nnx.split(model, nnx.Param, ...)

    @jax.jit
    def step(parameters, rest, x):
        model = nnx.merge(graph, parameters, rest)
        output = model(x)
        return output, nnx.state(model, nnx.BatchStat)

    output, statistics = step(parameters, rest, X)
    assert_close(output, model(X))
    assert_close(nnx.to_pure_dict(statistics), nnx.to_pure_dict(nnx.state(model, nnx.BatchStat)))


@layers
def test_nnx_train_and_eval(layer):
    model = nnx_model(layer)
    model.eval()
    before = state_of(model)
    model(X)
    assert_close(state_of(model), before)
    model.train()
    model(X)
    changed = [np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (state_of(model), before)), strict=True)]
    assert any(changed) == bool(jax.tree.leaves(nnx.state(model, nnx.BatchStat)))
    if any(changed) and hasattr(nnx, "view"):
        assert nnx.view(model, use_running_average=True).layers[1].use_running_average
        assert not model.layers[1].use_running_average


@layers
def test_no_layer_has_parameters(layer):
    assert not jax.tree.leaves(nnx.state(layer(flax), nnx.Param))
    assert "params" not in layer(linen).init({}, jnp.ones((2, 16)))


# Linen


def linen_model(layer):
    return nn.Sequential([nn.Dense(16), layer(linen)])


def variables_of(model, x=X, seed=0):
    return {"batch_stats": {}} | model.init(jax.random.key(seed), x)


def apply(model, variables, x):
    """What the model returns in training, and its variables afterwards."""
    output, updated = model.apply(variables, x, mutable=["batch_stats"])
    return output, variables | updated


@layers
def test_linen_init_updates_nothing(layer):
    statistics = variables_of(linen_model(layer))["batch_stats"]
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(statistics))


@layers
def test_linen_jit(layer):
    model = linen_model(layer)
    got = want = variables_of(model)
    step = jax.jit(lambda variables, x: apply(model, variables, x))
    for x in XS:
        output, got = step(got, x)
        reference, want = apply(model, want, x)
        assert_close(output, reference)
    assert_close(got, want)


class Model(nn.Module):
    layer: Callable

    @nn.compact
    def __call__(self, x):
        return self.layer(linen)(nn.Dense(16)(x))


class ScannedModel(nn.Module):
    layer: Callable

    @nn.compact
    def __call__(self, carry, x):
        return carry, Model(self.layer, name="model")(x)


@layers
def test_linen_grad_and_remat(layer):
    variables = variables_of(Model(layer))

    def gradient_and_statistics(model):
        def loss(params):
            output, updated = apply(model, variables | {"params": params}, X)
            return jnp.sum(values(output) ** 2), updated["batch_stats"]

        return jax.grad(loss, has_aux=True)(variables["params"])

    gradient, statistics = gradient_and_statistics(Model(layer))
    assert np.any(np.asarray(gradient["Dense_0"]["kernel"]) != 0)
    assert_close(gradient_and_statistics(nn.remat(Model)(layer)), (gradient, statistics))


@layers
def test_linen_scan(layer):
    """Over batches, with the statistics carried along."""
    scan = nn.scan(
        ScannedModel, variable_broadcast="params", variable_carry="batch_stats", split_rngs={"params": False}
    )
    variables = variables_of(Model(layer))
    inner = {name: {"model": value} for name, value in variables.items()}
    (_, got), updated = scan(layer).apply(inner, None, XS, mutable=["batch_stats"])
    want = []
    for x in XS:
        output, variables = apply(Model(layer), variables, x)
        want.append(output)
    assert_close(got, jax.tree.map(lambda *outputs: jnp.stack(outputs), *want))
    assert_close(jax.tree.leaves(updated), jax.tree.leaves(variables["batch_stats"]))


@layers
def test_linen_vmap_of_models(layer):
    """An ensemble, each member with statistics of its own."""
    model = linen_model(layer)
    members = [variables_of(model, seed=seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    got = jax.vmap(lambda variables, x: apply(model, variables, x))(stacked, XS)
    want = [apply(model, variables, x) for variables, x in zip(members, XS, strict=True)]
    assert_close(got, jax.tree.map(lambda *leaves: jnp.stack(leaves), *want))


@pytest.mark.parametrize("name", ["BatchTopK", "KWinners", "TopKRouter"])
def test_linen_use_running_average_must_be_given_once(name):
    layer = LAYERS[name](linen)
    with pytest.raises(ValueError, match="use_running_average"):
        layer.clone(use_running_average=None).init({}, jnp.ones((2, 16)))
    with pytest.raises(ValueError, match="use_running_average"):
        layer.init({}, jnp.ones((2, 16)), use_running_average=True)


@pytest.mark.parametrize("name", ["BatchTopK", "KWinners", "TopKRouter"])
def test_linen_statistics_must_be_mutable_in_training(name):
    layer = LAYERS[name](linen)
    variables = layer.init({}, jnp.ones((2, 16)))
    with pytest.raises(errors.ModifyScopeVariableError):
        layer.apply(variables, jnp.ones((2, 16)))


# Sharding

BATCH = np.random.default_rng(0).standard_normal((8, 4, 16)).astype(np.float32)


@pytest.fixture
def sharded(backend):
    """Puts rows of x on different devices."""

    def put(x, kind):
        mesh = Mesh(np.array(backend.devices[:8]), ("a",), axis_types=(kind,))
        return jax.device_put(x, NamedSharding(mesh, P("a")))

    return put


def step_of(model):
    """A call as a function of x: what is returned, and the state afterwards."""
    graph, state = nnx.split(model)

    def step(x):
        model = nnx.merge(graph, state, copy=True)
        return model(x), state_of(model)

    return step


def collectives_of(function, x):
    return COLLECTIVE.findall(jax.jit(function).lower(x).compile().as_text())


@layers
@pytest.mark.parametrize(
    "derive", [lambda f: f, lambda f: jax.grad(lambda x: jnp.sum(values(f(x)) ** 2))], ids=["value", "gradient"]
)
def test_inference_needs_no_collective(sharded, layer, derive):
    model = layer(flax)
    model(BATCH)
    model.eval()
    function, x = derive(model), sharded(BATCH, AxisType.Auto)
    assert not collectives_of(function, x)
    assert_close(jax.jit(function)(x), function(jnp.asarray(BATCH)))


@layers
def test_training_gathers_no_batch_but_for_batch_topk(sharded, layer):
    """KWinners and the router's bias need sums over the batch, of one number for each unit."""
    model = layer(flax)
    step, x = step_of(model), sharded(BATCH, AxisType.Auto)
    if layer is not LAYERS["BatchTopK"]:
        assert set(collectives_of(step, x)) <= ({"all-reduce"} if state_of(model) else set())
    assert_close(jax.jit(step)(x), step(jnp.asarray(BATCH)))


@layers
def test_explicit_sharding(sharded, layer):
    model = layer(flax)
    if layer is LAYERS["BatchTopK"]:
        model.eval()  # in training it refuses a sharded batch
    step, x = step_of(model), sharded(BATCH, AxisType.Explicit)
    with jax.sharding.set_mesh(x.sharding.mesh):
        output, state = jax.jit(step)(x)
        for leaf in jax.tree.leaves(output):
            assert jax.typeof(leaf).sharding.spec == P("a", None, None)
    assert_close((output, state), step(jnp.asarray(BATCH)))


# Errors

# layer, its arguments -> error, rule, what the message must give beside it.
BAD_LAYERS = {
    "momentum": ("BatchTopK", (2,), {"momentum": 1.0}, ValueError, "momentum must be .* below 1, got 1.0"),
    "momentum array": (
        "BatchTopK",
        (2,),
        {"momentum": jnp.ones(())},
        TypeError,
        "momentum must be .* a Python float",
    ),
    "k of features": ("KWinners", (16, 17), {}, ValueError, r"k must be between 1 and features=16, got 17.*min\(k, fe"),
    "no k": ("KWinners", (16, 0), {}, ValueError, "k must be between 1 and features=16, got 0"),
    "float features": ("KWinners", (16.0, 2), {}, TypeError, r"features must be a static Python int, got 16.0.*int\("),
    "boost": ("KWinners", (16, 2), {"boost_strength": -1.0}, ValueError, "boost_strength must be .* got -1.0"),
    "period": ("KWinners", (16, 2), {"duty_cycle_period": 0}, ValueError, "duty_cycle_period must be .* got 0.*Pass 1"),
    "factor": ("KWinners", (16, 2), {"k_inference_factor": "2"}, TypeError, "k_inference_factor must be .* got '2'"),
    "k of experts": ("TopKRouter", (16, 17), {}, ValueError, "k must be between 1 and num_experts=16, got 17"),
    "rate": ("TopKRouter", (16, 2), {"bias_update_rate": True}, TypeError, "bias_update_rate must be .* got True"),
    "k of a row": ("BatchTopK", (17,), {}, ValueError, r"k must be at most .* k=17 for axis 1 of shape \(2, 16\)"),
    "features": ("KWinners", (8, 2), {}, ValueError, r"features=8 long, got .* \(2, 16\). Make .* features=16"),
    "experts": ("TopKRouter", (8, 2), {}, ValueError, r"num_experts=8 long, got .* \(2, 16\). Make .*num_experts=16"),
}


@pytest.mark.parametrize(("name", "arguments", "options", "error", "message"), BAD_LAYERS.values(), ids=BAD_LAYERS)
def test_bad_layers(name, arguments, options, error, message):
    with pytest.raises(error, match=rf"^{name}: .*{message}"):
        getattr(flax, name)(*arguments, **options)(jnp.ones((2, 16)))
    layer = getattr(linen, name)(*arguments, **options, use_running_average=False)
    with pytest.raises(error, match=rf"^{name}: .*{message}"):
        layer.init({}, jnp.ones((2, 16)))


@pytest.mark.parametrize("library", ["flax", "linen"])
def test_without_flax(library):
    """The package itself does without; the layers say what to install."""
    program = f"""
import sys
sys.modules["flax"] = None  # Python then knows of no such module
import jax_rtopk
try:
    import jax_rtopk.{library}
except ImportError as error:
    print(error)
"""
    # -P: not the source folder, which a plain install leaves without native modules
    run = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    needs = f"jax_rtopk.{library} needs flax, which is not installed: pip install 'jax_rtopk[flax]'"
    assert run.stdout.strip() == needs


def test_the_package_does_not_import_flax():
    program = "import sys, jax_rtopk; sys.exit('flax' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
