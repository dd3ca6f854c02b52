"""Sharded programs: a sharded batch costs no collective, a sharded selection axis is gathered or refused."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import topk, topk_mask, topk_sparsify
from jax_rtopk.flax import TopK

pytestmark = pytest.mark.usefixtures("backend")

COLLECTIVE = re.compile(r"(all-gather|all-reduce|all-to-all|reduce-scatter|collective-\w+)(?:-start)?\(")

OPERATIONS = {
    "layer with a recall": TopK(3, recall_target=0.5),
    "grad of layer": jax.grad(lambda x: (TopK(3, recall_target=0.5, straight_through=True)(x) ** 2).sum()),
    "topk": lambda x: topk(x, 3),
    "unsorted": lambda x: topk(x, 3, sorted=False, largest=False),
    "early": lambda x: topk(x, 3, max_iter=2),
    "mask": lambda x: topk_mask(x, 3),
    "sparsify": lambda x: topk_sparsify(x, 3),
    "straight through": lambda x: topk_sparsify(x, 3, straight_through=True, by_magnitude=True),
    "grad of topk": jax.grad(lambda x: (topk(x, 3).values ** 2).sum()),
    "grad of sparsify": jax.grad(lambda x: (topk_sparsify(x, 3) ** 2).sum()),
    "jvp of topk": lambda x: jax.jvp(lambda x: topk(x, 3).values, (x,), (x,)),
    "second order": jax.grad(lambda x: (jax.grad(lambda x: (topk(x, 3).values ** 3).sum())(x) ** 2).sum()),
}
operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
FEW = ("topk", "mask", "grad of topk", "grad of sparsify")
few_operations = pytest.mark.parametrize("operation", [OPERATIONS[name] for name in FEW], ids=FEW)


def operand(shape=(8, 4, 24), seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_same(got, want):
    jax.tree.map(lambda g, w: oracle.assert_same(g, np.asarray(w)), got, want)


@operations
def test_auto(backend, mesh, operation):
    check_auto(backend, mesh, operation, P("a", "b"))


@pytest.mark.parametrize("spec", [P("a"), P(("a", "b"), None), P(None, "b"), P("b", "a", None)], ids=str)
def test_auto_with_other_shardings(backend, mesh, spec):
    check_auto(backend, mesh, OPERATIONS["grad of topk"], spec)


def check_auto(backend, mesh, operation, spec):
    sharding = NamedSharding(mesh(AxisType.Auto), spec)
    x = jax.device_put(operand(), sharding)
    compiled = jax.jit(operation).lower(x).compile()
    if backend.native:  # lax.top_k, on which pure JAX builds, gathers
        assert not COLLECTIVE.findall(compiled.as_text())
        for leaf in jax.tree.leaves(compiled(x)):
            assert leaf.sharding.is_equivalent_to(sharding, 3)
    assert_same(compiled(x), jax.jit(operation)(operand()))


@few_operations
def test_auto_under_gspmd(backend, mesh, operation):
    """The partitioner that Shardy has replaced, as long as JAX has it."""
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        check_auto(backend, mesh, operation, P("a", "b"))
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


@few_operations
@pytest.mark.parametrize("spec", [P("b", None, "a"), P(None, None, ("a", "b"))], ids=str)
def test_auto_with_sharded_selection_axis(mesh, operation, spec):
    x = jax.device_put(operand(), NamedSharding(mesh(AxisType.Auto), spec))
    assert_same(jax.jit(operation)(x), jax.jit(operation)(operand()))


def test_auto_keeps_the_batch_sharded_when_the_selection_axis_is_gathered(backend, mesh):
    sharding = NamedSharding(mesh(AxisType.Auto), P("a", None, "b"))
    x = jax.device_put(operand(), sharding)
    compiled = jax.jit(lambda x: topk(x, 3).indices).lower(x).compile()
    assert_same(compiled(x), topk(operand(), 3).indices)
    if backend.native:
        # Each device gathers its own rows, not all of them.
        rows = 8 // sharding.mesh.shape["a"]
        gathered = re.findall(r"= f32\[([\d,]+)\]\S* all-gather", compiled.as_text())
        assert gathered in ([f"{rows},4,24"], [])
        assert gathered or sharding.mesh.shape["b"] == 1


@operations
def test_explicit(backend, mesh, operation):
    spec = P("a", "b", None)
    with jax.sharding.set_mesh(mesh(AxisType.Explicit)):
        x = jax.device_put(operand(), spec)
        got = jax.jit(operation)(x)
        for leaf in jax.tree.leaves(got):
            assert jax.typeof(leaf).sharding.spec == spec
        assert_same(operation(x), got)
        if backend.native:
            assert not COLLECTIVE.findall(jax.jit(operation).lower(x).compile().as_text())
    assert_same(got, jax.jit(operation)(operand()))


@few_operations
@pytest.mark.parametrize("jit", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_explicitly_sharded_selection_axis_is_refused(mesh, operation, jit):
    with jax.sharding.set_mesh(mesh(AxisType.Explicit)):
        x = jax.device_put(operand(), P("a", None, "b"))
        with pytest.raises(ValueError, match=r"selection axis must not be sharded .* 'b'.*sharded_topk"):
            jit(operation)(x)
        gathered = jax.sharding.reshard(x, P("a", None, None))  # as the message says
        assert_same(jit(operation)(gathered), jit(operation)(operand()))


def test_explicit_with_another_axis(mesh):
    with jax.sharding.set_mesh(mesh(AxisType.Explicit)):
        x = jax.device_put(operand(), P(None, "b", "a"))
        got = topk(x, 3, axis=0)
        assert jax.typeof(got.indices).sharding.spec == P(None, "b", "a")
        assert_same(got.indices, oracle.topk(operand(), 3, axis=0)[1])


@few_operations
def test_shard_map(mesh, operation):
    mapped = jax.shard_map(operation, mesh=mesh(AxisType.Auto), in_specs=P("a", "b"), out_specs=P("a", "b"))
    assert_same(jax.jit(mapped)(operand()), jax.jit(operation)(operand()))
    assert_same(mapped(operand()), jax.jit(operation)(operand()))


@few_operations
def test_shard_map_over_some_mesh_axes(backend, mesh, operation):
    """Manual over one axis, automatic over the other."""
    auto = mesh(AxisType.Auto)
    mapped = jax.jit(
        jax.shard_map(operation, mesh=auto, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}),
        in_shardings=NamedSharding(auto, P("a", "b")),
    )
    compiled = mapped.lower(operand()).compile()
    if backend.native:
        assert not COLLECTIVE.findall(compiled.as_text())
    assert_same(mapped(operand()), jax.jit(operation)(operand()))


@operations
def test_shard_map_and_scan(mesh, operation):
    """The loop's carry must vary over the same mesh axes on entry and exit."""

    def local(x):
        return jax.lax.scan(
            lambda total, row: (total + jax.tree.leaves(operation(row))[0].sum(), None), 0.0 * x[0, 0, 0], x
        )[0][None]

    def everywhere(x):
        return jnp.stack([local(part)[0] for part in jnp.split(x, parts)])

    auto = mesh(AxisType.Auto)
    parts = auto.size
    mapped = jax.jit(jax.shard_map(local, mesh=auto, in_specs=P(("a", "b")), out_specs=P(("a", "b"))))
    np.testing.assert_allclose(mapped(operand()), everywhere(operand()), rtol=1e-5)


def test_grad_through_shard_map(mesh):
    def loss(x):
        local = jax.shard_map(
            lambda x: jax.lax.psum((topk(x, 3).values ** 2).sum(), ("a", "b")),
            mesh=mesh(AxisType.Auto),
            in_specs=P("a", "b"),
            out_specs=P(),
        )
        return local(x)

    want = jax.grad(lambda x: (topk(x, 3).values ** 2).sum())(operand())
    np.testing.assert_allclose(jax.grad(loss)(operand()), want, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(operand()), want, rtol=1e-6)


@operations
def test_pmap(backend, operation):
    x = operand((len(backend.devices), 4, 24))
    mapped = jax.pmap(operation, devices=backend.devices)
    assert_same(mapped(x), jax.vmap(jax.jit(operation))(x))


@few_operations
def test_pmap_of_vmap(backend, operation):
    x = operand((len(backend.devices), 4, 24))
    assert_same(jax.pmap(jax.vmap(operation), devices=backend.devices)(x), jax.vmap(jax.vmap(jax.jit(operation)))(x))


@pytest.mark.parametrize("k", [1, 4])
def test_two_long_rows_sharded_by_columns(mesh, k):
    x = np.round(operand((2, 8192)), 1)  # with ties
    sharded = jax.device_put(x, NamedSharding(mesh(AxisType.Auto), P(None, ("a", "b"))))
    values, indices = jax.jit(partial(topk, k=k))(sharded)
    want_values, want_indices = oracle.topk(x, k)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)
