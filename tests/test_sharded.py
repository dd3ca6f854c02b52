"""sharded_topk: the answer of topk for rows that are split over devices, and what that moves."""

import math
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jax_rtopk import _sharded, sharded_topk, topk

# One axis; both, in either order; one, with the rows themselves sharded over the other.
AXES = ["a", ("a", "b"), ("b", "a"), "b"]
DTYPES = [np.dtype(t) for t in (np.float32, jnp.bfloat16, np.int8, np.float64, jnp.float8_e5m2, bool)]


pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.not_emulated]


@pytest.fixture
def two_rounds(monkeypatch):
    """As on a mesh axis of many devices."""
    monkeypatch.setattr(_sharded, "_ONE_ROUND", 1)
    jax.clear_caches()
    yield
    jax.clear_caches()


def operand(shape=(4, 64), seed=0):
    """Small integers: with ties within and across shards, and gradients that are exact."""
    return np.random.default_rng(seed).integers(-20, 20, shape).astype(np.float32)


def on(mesh, axis_name, function, *, rows=None, **options):
    """The function on each device's part of the columns, of results that are the same everywhere."""
    out_specs = P(rows) if rows else P()
    return jax.shard_map(function, mesh=mesh, in_specs=P(rows, axis_name), out_specs=out_specs, **options)


def assert_topk(got, x, k, **order):
    values, indices = oracle.topk(x, k, **order)
    oracle.assert_same(got.indices, indices)
    oracle.assert_same(got.values, values)


def loss(select, x):
    values = select(x).values
    return (values**2 * np.arange(1, values.size + 1, dtype=np.float32).reshape(values.shape)).sum()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit(mesh, dtype):
    with oracle.x64_for(dtype):
        names = ("a", "b")
        select = jax.jit(on(mesh(AxisType.Auto), names, lambda x: sharded_topk(x, 10, names)))
        rng = np.random.default_rng(0)
        for kind in oracle.KINDS:
            x = oracle.operand(rng, dtype, (4, 64), kind)
            assert_topk(select(x), x, 10)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("sorted", [True, False])
def test_every_k(mesh, largest, sorted):
    """Less and more than a device has, nothing, and everything."""
    ks, order = (0, 1, 2, 3, 4, 13, 23, 24), {"largest": largest, "sorted": sorted}
    x = operand((3, 24))
    every = on(mesh(AxisType.Auto), ("a", "b"), lambda x: [sharded_topk(x, k, ("a", "b"), **order) for k in ks])
    for k, got in zip(ks, jax.jit(every)(x), strict=True):
        assert_topk(got, x, k, **order)


@pytest.mark.parametrize("shape", [(0, 16), (0,), (2, 0), (16,), (2, 3, 16)], ids=str)
def test_shapes(mesh, shape):
    x, k = operand(shape), min(5, shape[-1])
    spec = P(*[None] * (len(shape) - 1), "a")
    select = jax.shard_map(lambda x: sharded_topk(x, k, "a"), mesh=mesh(AxisType.Auto), in_specs=spec, out_specs=P())
    assert_topk(jax.jit(select)(x), x, k)
    gradient = jax.jit(jax.grad(partial(loss, select)))(x)
    oracle.assert_same(gradient, np.asarray(jax.grad(partial(loss, partial(topk, k=k)))(x)))


def check_axes(mesh, axis_name, **options):
    x = operand()
    rows = {"a": "b", "b": "a"}.get(axis_name)
    select = on(mesh, axis_name, lambda x: sharded_topk(x, 10, axis_name), rows=rows, **options)
    got, gradient = jax.jit(lambda x: (select(x), jax.grad(partial(loss, select))(x)))(x)
    assert_topk(got, x, 10)
    oracle.assert_same(gradient, np.asarray(jax.grad(partial(loss, partial(topk, k=10)))(x)))


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("axis_name", AXES, ids=str)
def test_axes(mesh, axis_name, check_vma):
    check_axes(mesh(AxisType.Auto), axis_name, check_vma=check_vma)


@pytest.mark.usefixtures("two_rounds")
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("axis_name", ["a", ("b", "a")], ids=str)
def test_two_rounds(mesh, axis_name, check_vma):
    check_axes(mesh(AxisType.Auto), axis_name, check_vma=check_vma)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("manual", [("a", "b"), ("b",)], ids=str)
def test_explicit(request, mesh, manual, rounds):
    """Manual over both mesh axes, or over that of the columns alone."""
    if rounds == 2:
        request.getfixturevalue("two_rounds")
    rows = "a" if "a" in manual else None
    with jax.sharding.set_mesh(mesh(AxisType.Explicit)) as explicit:
        x = jax.device_put(operand(), P("a", "b"))
        select = on(explicit, "b", lambda x: sharded_topk(x, 7, "b"), rows=rows, axis_names=set(manual))
        got = jax.jit(select)(x)
        assert jax.typeof(got.values).sharding.spec == P("a", None)
        assert_topk(got, operand(), 7)
        gradient = jax.jit(jax.grad(partial(loss, select)))(x)
    oracle.assert_same(gradient, np.asarray(jax.grad(partial(loss, partial(topk, k=7)))(operand())))


def test_eager(mesh):
    x = operand()
    assert_topk(on(mesh(AxisType.Auto), "b", lambda x: sharded_topk(x, 5, "b"))(x), x, 5)


@pytest.mark.parametrize("check_vma", [True, False])
def test_replicated_operand(mesh, check_vma):
    """Each device then holds the same elements, at other places of the row."""
    x = operand((2, 6))
    auto = mesh(AxisType.Auto)
    select = jax.shard_map(
        lambda x: sharded_topk(x, 9, "b"), mesh=auto, in_specs=P(), out_specs=P(), check_vma=check_vma
    )
    whole = np.tile(x, auto.shape["b"])
    assert_topk(jax.jit(select)(x), whole, min(9, whole.shape[-1]))


def test_derivatives(mesh):
    x, t, cotangent = operand(), operand(seed=1), operand((4, 10), seed=2)

    def derivatives(select, x, t, cotangent):
        return {
            "jvp": jax.jvp(lambda x: select(x).values, (x,), (t,)),
            "vjp": jax.vjp(lambda x: select(x).values, x)[1](cotangent),
            "second order": jax.jvp(jax.grad(partial(loss, select)), (x,), (t,)),
            "linearized": jax.linearize(lambda x: select(x).values, x)[1](t),
            "checkpointed": jax.grad(jax.checkpoint(partial(loss, select)))(x),
        }

    sharded = on(mesh(AxisType.Auto), ("a", "b"), lambda x: sharded_topk(x, 10, ("a", "b")))
    got, want = (jax.jit(partial(derivatives, f))(x, t, cotangent) for f in (sharded, partial(topk, k=10)))
    jax.tree.map(lambda g, w: oracle.assert_same(g, np.asarray(w)), got, want)


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in (jnp.bfloat16, np.float16, jnp.float8_e5m2)], ids=str)
def test_gradient_of_narrow_floats(mesh, dtype):
    x = operand((2, 16)).astype(dtype)
    select = on(mesh(AxisType.Auto), "a", lambda x: sharded_topk(x, 3, "a"))
    got, want = (
        jax.jit(
            lambda x, f=f: (
                jax.grad(lambda x: f(x).values.astype(jnp.float32).sum())(x),
                jax.jvp(f, (x,), (x,))[1].values,
            )
        )(x)
        for f in (select, partial(topk, k=3))
    )
    jax.tree.map(lambda g, w: oracle.assert_same(g, np.asarray(w)), got, want)


def test_gradient_inside(mesh):
    """`check_vma` lets the gradient be taken inside shard_map too."""
    auto, x = mesh(AxisType.Auto), operand()
    inside = jax.shard_map(
        jax.grad(partial(loss, lambda x: sharded_topk(x, 10, ("a", "b")))),
        mesh=auto,
        in_specs=P(None, ("a", "b")),
        out_specs=P(None, ("a", "b")),
    )
    oracle.assert_same(jax.jit(inside)(x), np.asarray(jax.grad(partial(loss, partial(topk, k=10)))(x)))


def test_integers_have_no_tangent(mesh):
    x = operand((2, 16)).astype(np.int32)
    select = on(mesh(AxisType.Auto), "a", lambda x: sharded_topk(x, 3, "a"))
    primal, tangent = jax.jvp(select, (x,), (np.zeros(x.shape, jax.dtypes.float0),))
    assert_topk(primal, x, 3)
    assert tangent.values.dtype == tangent.indices.dtype == jax.dtypes.float0


def test_vmap_and_scan(mesh):
    x = operand((3, 4, 64))
    auto = mesh(AxisType.Auto)
    select = on(auto, "a", lambda x: sharded_topk(x, 5, "a"))
    within = jax.shard_map(
        jax.vmap(lambda x: sharded_topk(x, 5, "a"), in_axes=2, out_axes=2),
        mesh=auto,
        in_specs=P(None, "a"),
        out_specs=P(),
    )

    def scanned(x):
        return jax.lax.scan(lambda total, row: (total + sharded_topk(row, 5, "a").values.sum(), None), 0.0, x)[0]

    vmapped, along_columns, total = jax.jit(
        lambda x: (jax.vmap(select)(x), within(jnp.moveaxis(x, 0, 2)), on(auto, "a", scanned)(x[0]))
    )(x)
    assert_topk(vmapped, x, 5)
    assert_topk(jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 2, 0), along_columns), x, 5)
    assert total == oracle.topk(x[0], 5)[0].sum()


INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%(?P<name>[\w.-]+) = (?P<type>\S+) (?P<kind>[\w-]+)\((?P<operands>.*?)\)", re.M
)
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "reduce-scatter", "collective-permute", "collective-broadcast")


def received_bytes(hlo):
    """What the collectives of a compiled program bring each device: their results, but for what was its own."""
    sizes, received = {}, 0
    for found in INSTRUCTION.finditer(hlo):
        sizes[found["name"]] = bytes_of(found["type"])
        kind = found["kind"].removesuffix("-start")
        assert kind not in COLLECTIVES[1:], found[0]
        if kind == "all-gather":
            assert found["kind"] == kind, "asynchronous ones are to be counted otherwise"
            (source,) = re.findall(r"%([\w.-]+)", found["operands"])
            received += sizes[found["name"]] - sizes[source]
    return received


def bytes_of(type_):
    found = re.match(r"(\w+?)(\d+)\w*\[([\d,]*)\]", type_)
    return int(found[2]) // 8 * math.prod(map(int, filter(None, found[3].split(",")))) if found else 0


# k candidates of every other device; all that each has where that is less; the last axis first, then the one before it.
MOVED = {
    "one axis": ("a", 64, 5, np.float32, 3 * 5 * 8),
    "k above the shard": ("a", 64, 40, np.float32, 3 * 16 * 8),
    "whole rows": ("a", 64, 64, np.float32, 3 * 16 * 8),
    "two axes": (("a", "b"), 4096, 50, np.float32, (1 + 3) * 50 * 8),
    "two axes, the other way": (("b", "a"), 4096, 50, np.float32, (3 + 1) * 50 * 8),
    "two axes, k above the shard": (("a", "b"), 64, 12, np.float32, (1 * 8 + 3 * 12) * 8),
    "two bytes": ("a", 64, 5, jnp.bfloat16, 3 * 5 * 6),
    "one byte": ("a", 64, 5, np.int8, 3 * 5 * 5),
}


@pytest.mark.parametrize("case", MOVED.values(), ids=MOVED)
def test_moved_bytes(mesh, case):
    check_moved(mesh(AxisType.Auto), *case)


@pytest.mark.usefixtures("two_rounds")
def test_moved_bytes_in_two_rounds(mesh):
    """Over 4 devices: k from one's neighbour, and half of k from each of three."""
    check_moved(mesh(AxisType.Auto), "a", 4096, 50, np.float32, (1 * 50 + 3 * 25) * 8)


def test_the_way_back_moves_nothing(mesh):
    """Each device knows the cotangent and which of the selected elements are its own."""
    select = on(mesh(AxisType.Auto), "a", lambda x: sharded_topk(x, 5, "a"))
    forth, back = (
        received_bytes(jax.jit(function).lower(operand()).compile().as_text())
        for function in (select, jax.grad(partial(loss, select)))
    )
    assert forth == back


def check_moved(mesh, axis_name, n, k, dtype, candidates_bytes):
    if mesh.size != 8:
        pytest.skip("of 8 devices")
    rows = 3
    select = jax.jit(on(mesh, axis_name, lambda x: sharded_topk(x, k, axis_name)))
    hlo = select.lower(operand((rows, n)).astype(dtype)).compile().as_text()
    assert received_bytes(hlo) == rows * candidates_bytes


def test_groups():
    """The rule by which neighbours merge first."""
    assert [_sharded._group(size, 50, 50) for size in (1, 2, 8, 13, 16, 64, 256, 1024)] == [1, 1, 1, 1, 4, 8, 16, 32]
    for size in (16, 64, 256, 1024):
        group = _sharded._group(size, 50, 50)
        received = (group - 1) * 50 + (size - 1) * -(-50 // group)
        assert received < 2.5 * math.sqrt(size) * 50
    assert _sharded._group(64, 10, 640) == 1  # everything is asked for: nothing to be saved


BAD_AXIS = {
    "other": ("c", ValueError, r"a surrounding jax.shard_map is manual over, got 'c'.*topk"),
    "one of two": (("a", "c"), ValueError, r"jax.shard_map is manual over, got 'c'"),
    "none": ((), ValueError, r"tuple of mesh axes, got \(\)"),
    "twice": (("a", "a"), ValueError, r"got \('a', 'a'\).*once"),
    "list": (["a"], TypeError, r"tuple of mesh axes, got \['a'\].*PartitionSpec"),
    "int": (0, TypeError, r"tuple of mesh axes, got 0"),
}


@pytest.mark.parametrize(("axis_name", "error", "message"), BAD_AXIS.values(), ids=BAD_AXIS)
def test_bad_axis_name(mesh, axis_name, error, message):
    with pytest.raises(error, match=f"sharded_topk: axis_name must be .*{message}"):
        on(mesh(AxisType.Auto), "a", lambda x: sharded_topk(x, 1, axis_name))(operand())


def test_outside_shard_map():
    with pytest.raises(ValueError, match=r"inside jax.shard_map"):
        sharded_topk(operand(), 1, "a")


def test_axis_that_is_not_manual(mesh):
    auto = mesh(AxisType.Auto)
    select = on(auto, "a", lambda x: sharded_topk(x, 1, "b"), axis_names={"a"})
    with pytest.raises(ValueError, match=r"manual over, got 'b'.*among its axis_names"):
        jax.jit(select)(operand())


# What topk refuses too is told in its words, so a sample will do.
BAD_CALLS = {
    "negative k": (operand(), {"k": -1}, ValueError, "k must be at least 0, got -1"),
    "k above the row": (operand(), {"k": 65}, ValueError, r"the whole row, got k=65 for one of 64, .*min\(k, 64\)"),
    "float k": (operand(), {"k": 1.0}, TypeError, "k must be a static Python int, got 1.0"),
    "complex": (operand() + 1j, {"k": 1}, ValueError, "operand must be real, got complex64"),
    "int4": (jnp.ones((4, 64), jnp.int4), {"k": 1}, TypeError, "operand must be of dtype float32, .* got int4"),
    "int largest": (operand(), {"k": 1, "largest": 1}, TypeError, "largest must be a Python bool, got 1"),
    "sorted as str": (operand(), {"k": 1, "sorted": "yes"}, TypeError, "sorted must be a Python bool, got 'yes'"),
}


@pytest.mark.parametrize(("x", "arguments", "error", "message"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls(mesh, x, arguments, error, message):
    with pytest.raises(error, match=f"sharded_topk: .*{message}"):
        jax.jit(on(mesh(AxisType.Auto), "a", lambda x: sharded_topk(x, axis_name="a", **arguments)))(x)


def test_part_that_is_sharded_further(mesh):
    with jax.sharding.set_mesh(mesh(AxisType.Explicit)) as explicit:
        x = jax.device_put(operand(), P("a", "b"))
        select = on(explicit, None, lambda x: sharded_topk(x, 1, "a"), rows="a", axis_names={"a"})
        with pytest.raises(ValueError, match=r"must not be sharded over explicit mesh axes.*'b'.*reshard"):
            jax.jit(select)(x)


def test_row_that_int32_cannot_index(mesh):
    auto = mesh(AxisType.Auto)
    select = on(auto, ("a", "b"), lambda x: sharded_topk(x, 1, ("a", "b")))
    longest = (2**31 - 1) // auto.size * auto.size
    assert jax.eval_shape(select, jax.ShapeDtypeStruct((1, longest), np.int8)).indices.shape == (1, 1)
    with pytest.raises(ValueError, match=r"whole row may be at most 2\*\*31 - 1 long"):
        jax.eval_shape(select, jax.ShapeDtypeStruct((1, longest + auto.size), np.int8))


def test_uneven_parts(mesh):
    """JAX's own error, which says what to do: parts that differ never come to be."""
    auto = mesh(AxisType.Auto)
    if auto.size == 1:
        pytest.skip("one device has it all")
    with pytest.raises(ValueError, match="not evenly divisible"):
        on(auto, ("a", "b"), lambda x: sharded_topk(x, 1, ("a", "b")))(operand((4, 63)))
