"""jax.export: round trips, symbolic shapes, and the stable signatures of the custom calls."""

import re
from functools import partial
from types import SimpleNamespace

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import (
    CSRGraph,
    TopK,
    _native,
    approx_topk,
    export_disabled_checks,
    neighbor_sum,
    sharded_topk,
    sparse_dense_matmul,
    topk,
    topk_mask,
    topk_sparsify,
)


@pytest.fixture
def cuda(monkeypatch):
    """A CUDA back end to lower for: that needs neither a GPU nor the kernels."""
    module = SimpleNamespace(
        SCATTERS_IN_ORDER=True,
        bucketed_workspace=lambda candidates, k, item_bytes: 64,
        topk_parts=lambda rows, n, k, item_bytes: 2 if 100 <= n < 200 else 1,
        topk_in_parts_workspace=lambda parts, k, item_bytes: 96,
        by_digits=lambda rows, n, item_bytes: n >= 200,
        by_digits_workspace=lambda item_bytes: 128,
    )
    backend = _native.Backend(module, _native.PREFIX, frozenset(_native.OPERATIONS))
    monkeypatch.setitem(_native.BACKENDS, "cuda", backend)
    jax.clear_caches()
    yield
    jax.clear_caches()


def export(function, *operands, **arguments):
    return jax.export.export(jax.jit(function), disabled_checks=export_disabled_checks(), **arguments)(*operands)


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def all_three(x):
    return *topk(x, 3), topk_mask(x, 3, largest=False), topk_sparsify(x, 3, by_magnitude=True)


def check_all_three(got, x):
    values, indices, mask, dense = got
    oracle.assert_same(values, oracle.topk(x, 3)[0])
    oracle.assert_same(indices, oracle.topk(x, 3)[1])
    oracle.assert_same(mask, oracle.mask(x, 3, largest=False))
    oracle.assert_same(dense, np.where(oracle.mask(x, 3, by_magnitude=True), x, np.float32(0)))


def test_round_trip():
    x = normal(5, 8)
    data = export(all_three, f32(5, 8)).serialize()
    check_all_three(jax.export.deserialize(data).call(x), x)


def test_round_trip_of_a_topk():
    x = normal(8, 16)
    exported = jax.export.deserialize(export(lambda x: {"best": topk(x, 2)}, f32(8, 16)).serialize())
    best = exported.call(x)["best"]
    assert isinstance(best, TopK)
    oracle.assert_same(best.values, oracle.topk(x, 2)[0])
    oracle.assert_same(best.indices, oracle.topk(x, 2)[1])


def test_serialized_name_of_topk():
    """Serialized programs name it: those of one release must load under the next."""
    assert b"jax_rtopk.TopK" in export(lambda x: topk(x, 2), f32(8, 16)).serialize()


def test_round_trip_of_a_gradient():
    x = normal(5, 8)

    def loss(x):
        return (topk(x, 3).values ** 2).sum() + topk_sparsify(x, 2).sum()

    exported = jax.export.deserialize(export(loss, f32(5, 8)).serialize(vjp_order=1))
    np.testing.assert_allclose(jax.grad(exported.call)(x), jax.grad(loss)(x), rtol=1e-6)


def test_refused_without_the_disabled_checks():
    with pytest.raises(ValueError, match="jax_rtopk_topk"):
        jax.export.export(jax.jit(all_three))(f32(5, 8))


def test_names_of_the_disabled_checks():
    checks = map(jax.export.DisabledSafetyCheck.custom_call, SIGNATURES.keys() | LONG_SIGNATURES.keys())
    assert set(export_disabled_checks()) == set(checks)


@pytest.mark.parametrize("implementation", [None, "xla"])
def test_symbolic_batch(implementation):
    batch, rows = jax.export.symbolic_shape("batch, rows")
    exported = export(lambda x: topk(x, 3, implementation=implementation), f32(batch, rows, 8))
    for shape in ((1, 1, 8), (4, 5, 8)):
        x = normal(*shape)
        values, indices = exported.call(x)
        oracle.assert_same(indices, oracle.topk(x, 3)[1])
        oracle.assert_same(values, oracle.topk(x, 3)[0])


@pytest.mark.parametrize("implementation", [None, "xla"])
def test_symbolic_row_length(implementation):
    rows, n = jax.export.symbolic_shape("rows, n", constraints=["n >= 3"])
    exported = export(lambda x: topk_mask(x, 3, implementation=implementation), f32(rows, n))
    for shape in ((2, 3), (4, 50)):
        x = normal(*shape)
        oracle.assert_same(exported.call(x), oracle.mask(x, 3))


@pytest.mark.parametrize("function", [topk, topk_mask, topk_sparsify])
def test_symbolic_row_length_that_may_be_less_than_k(function):
    with pytest.raises(
        ValueError, match=f"^{function.__name__}: k must be at most .* undecided for k=3 .* size n.*"
    ) as e:
        export(lambda x: function(x, 3), f32(*jax.export.symbolic_shape("rows, n")))
    assert 'constraints=("n >= 3",)' in str(e.value)
    # As the message says:
    export(lambda x: function(x, 3), f32(*jax.export.symbolic_shape("rows, n", constraints=("n >= 3",))))


@pytest.mark.parametrize("function", [topk, topk_mask, topk_sparsify])
@pytest.mark.parametrize("argument", ["k", "axis", "max_iter"])
def test_symbolic_arguments(function, argument):
    rows, n = jax.export.symbolic_shape("rows, n")
    with pytest.raises(
        TypeError, match=f"^{function.__name__}: {argument} must be .* symbolic size n: .* is a constant"
    ):
        export(lambda x: function(x, **{"k": 1, argument: x.shape[1]}), f32(rows, n))


GRAPH = ["6xi32", "4xi32", "6xi32", "4xi32", "4xi32"]  # of 5 nodes and 4 edges

# Target -> attributes, operands and results: programs that one release exported must run under the next, so nothing of
# this may change, but be added to.
SIGNATURES = {
    "jax_rtopk_topk": (
        ["k = 3 : i64", "largest = true", "max_iter = 0 : i64", "sorted = true"],
        ["5x8xf32"],
        ["5x3xf32", "5x3xi32"],
    ),
    "jax_rtopk_bucketed": (
        ["bucket_k = 1 : i64", "k = 3 : i64", "largest = true", "num_buckets = 4 : i64", "sorted = true"],
        ["5x8xf32"],
        ["5x3xf32", "5x3xi32"],
    ),
    "jax_rtopk_mask": (
        ["by_magnitude = false", "k = 3 : i64", "largest = true", "max_iter = 0 : i64"],
        ["5x8xf32"],
        ["5x8xi1"],
    ),
    "jax_rtopk_sparsify": (["by_magnitude = false", "k = 3 : i64", "max_iter = 0 : i64"], ["5x8xf32"], ["5x8xf32"]),
    "jax_rtopk_gather_sum": ([], ["5x3xf32", "8x2xf32", "5x3xi32"], ["5x2xf32"]),
    "jax_rtopk_sampled_dot": ([], ["5x2xf32", "8x2xf32", "5x3xi32"], ["5x3xf32"]),
    "jax_rtopk_scatter_add": ([], ["5x3xf32", "5x2xf32", "5x3xi32"], ["8x2xf32"]),
    "jax_rtopk_neighbor_sum": ([], ["4xf32", "5x3xf32", "5x3xi32", *GRAPH], ["5x8xf32"]),
    "jax_rtopk_neighbor_dot": ([], ["4xf32", "5x8xf32", "5x3xi32", *GRAPH], ["5x3xf32"]),
    "jax_rtopk_edge_dot": ([], ["5x3xf32", "5x8xf32", "5x3xi32", *GRAPH], ["4xf32"]),
}
# What CUDA kernels have besides: the workspace of buckets; the entries in the order of their indices.
CUDA_SIGNATURES = SIGNATURES | {
    "jax_rtopk_bucketed": (*SIGNATURES["jax_rtopk_bucketed"][:2], ["5x3xf32", "5x3xi32", "5x64xui8"]),
    "jax_rtopk_scatter_add": ([], ["5x3xf32", "5x2xf32", "5x3xi32", "15xi32", "9xi32"], ["8x2xf32"]),
}

# And what they have besides for long rows.
LONG_SIGNATURES = {
    "jax_rtopk_topk_in_parts": (
        ["k = 3 : i64", "largest = true", "parts = 2 : i64", "sorted = false"],
        ["5x100xf32"],
        ["5x3xf32", "5x3xi32", "5x96xui8"],
    ),
    "jax_rtopk_topk_by_digits": (
        ["k = 3 : i64", "largest = true", "sorted = true"],
        ["5x200xf32"],
        ["5x3xf32", "5x3xi32", "5x128xui8"],
    ),
    "jax_rtopk_mask_by_digits": (
        ["by_magnitude = false", "k = 3 : i64", "largest = true"],
        ["5x200xf32"],
        ["5x200xi1", "5x128xui8"],
    ),
    "jax_rtopk_sparsify_by_digits": (
        ["by_magnitude = false", "k = 3 : i64"],
        ["5x200xf32"],
        ["5x200xf32", "5x128xui8"],
    ),
}


def every_operation(x, values, indices, weight, graph):
    """All custom calls, those that are derivatives only among them."""

    def product(values, weight):
        return sparse_dense_matmul(values, indices, weight).sum()

    def aggregate(weights, values):
        return neighbor_sum(graph._replace(weights=weights), values, indices, 8).sum()

    return (
        *(topk(x, 3), approx_topk(x, 3, num_buckets=4, bucket_k=1), topk_mask(x, 3), topk_sparsify(x, 3)),
        jax.value_and_grad(product, argnums=(0, 1))(values, weight),
        jax.value_and_grad(aggregate, argnums=(0, 1))(graph.weights, values),
    )


def custom_calls(text):
    """Target -> attributes, operands and results, of the package's custom calls in a module's text."""
    found = re.findall(
        r"custom_call @(jax_rtopk_\w+)\(.*?mhlo\.backend_config = {(.*?)}.*?} : \((.*?)\) -> \(?(.*?)\)? loc", text
    )
    return {
        target: (
            sorted(filter(None, attributes.split(", "))),
            re.findall("tensor<(.*?)>", operands),
            re.findall("tensor<(.*?)>", results),
        )
        for target, attributes, operands, results in found
    }


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("platform", "signatures"), [("cpu", SIGNATURES), ("cuda", CUDA_SIGNATURES)])
def test_custom_calls_are_stable(platform, signatures):
    i32 = partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    graph = CSRGraph(i32((6,)), i32((4,)), f32(4), i32((6,)), i32((4,)), i32((4,)))
    operands = f32(5, 8), f32(5, 3), i32((5, 3)), f32(8, 2), graph
    assert custom_calls(export(every_operation, *operands, platforms=(platform,)).mlir_module()) == signatures


@pytest.mark.usefixtures("cuda")
def test_custom_calls_of_long_rows_are_stable():
    def selections(long, longer):
        return topk(long, 3, sorted=False), topk(longer, 3), topk_mask(longer, 3), topk_sparsify(longer, 3)

    exported = export(selections, f32(5, 100), f32(5, 200), platforms=("cuda",))
    assert custom_calls(exported.mlir_module()) == LONG_SIGNATURES


@pytest.mark.parametrize(
    ("function", "attribute"),
    [
        (partial(topk, largest=False), "largest = false"),
        (partial(topk, sorted=False), "sorted = false"),
        (partial(topk, max_iter=5), "max_iter = 5 : i64"),
        (partial(approx_topk, num_buckets=2, bucket_k=2, largest=False), "largest = false"),
        (partial(approx_topk, num_buckets=2, bucket_k=2, sorted=False), "sorted = false"),
        (partial(topk_mask, largest=False), "largest = false"),
        (partial(topk_mask, max_iter=5), "max_iter = 5 : i64"),
        (partial(topk_sparsify, by_magnitude=True), "by_magnitude = true"),
        (partial(topk_sparsify, max_iter=5), "max_iter = 5 : i64"),
    ],
)
def test_arguments_become_attributes(function, attribute):
    ((attributes, *_),) = custom_calls(export(lambda x: function(x, 3), f32(5, 8)).mlir_module()).values()
    assert attribute in attributes


@pytest.mark.usefixtures("cuda")
def test_one_export_for_several_platforms():
    exported = export(all_three, f32(5, 8), platforms=("cpu", "cuda", "tpu"))
    text = exported.mlir_module()
    assert text.count("custom_call @jax_rtopk_topk(") == 2
    assert "top_k" in text or "mhlo.topk" in text  # pure JAX for the TPU
    x = normal(5, 8)
    check_all_three(exported.call(x), x)


@pytest.mark.parametrize("platform", ["tpu", "rocm"])
def test_platforms_without_native_code_get_pure_jax(platform):
    assert "jax_rtopk" not in export(all_three, f32(5, 8), platforms=(platform,)).mlir_module().split("loc(")[0]
    with pytest.raises(NotImplementedError, match="needs native code for the platform"):
        export(lambda x: topk(x, 3, implementation="native"), f32(5, 8), platforms=(platform,))


def split_rows():
    """sharded_topk over all CPU devices, and how its operand is sharded."""
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), "d", axis_types=(AxisType.Auto,))
    function = jax.shard_map(lambda x: sharded_topk(x, 5, "d"), mesh=mesh, in_specs=P(None, "d"), out_specs=P())
    return function, NamedSharding(mesh, P(None, "d"))


def test_split_rows():
    function, sharding = split_rows()
    x = jax.device_put(normal(4, 64), sharding)
    exported = export(function, jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding))
    got = jax.jit(jax.export.deserialize(exported.serialize()).call)(x)
    for g, want in zip(got, oracle.topk(normal(4, 64), 5), strict=True):
        oracle.assert_same(g, want)


@pytest.mark.parametrize("shape", ["4, 8*n", "n, 64"])
def test_split_rows_of_symbolic_size(shape):
    with pytest.raises(ValueError, match=r"sharded_topk: .* must not be of symbolic size.*Export a program for each"):
        export(split_rows()[0], f32(*jax.export.symbolic_shape(shape)))
