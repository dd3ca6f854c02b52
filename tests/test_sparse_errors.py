"""Bad calls of the sparse functions: in Python at trace time, and custom calls that no function of jax_rtopk makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_rtopk import CSRGraph, _native, neighbor_sum, sampled_dense_matmul, sparse_dense_matmul

V, I, W = jnp.ones((3, 2)), jnp.zeros((3, 2), jnp.int32), jnp.ones((5, 4))  # noqa: E741
NODES = jnp.array([0, 1, 2])
GRAPH = CSRGraph.from_edges(NODES, NODES, 3)

MATMUL = {
    "list": (([1.0], I, W), TypeError, "values must be a JAX or numpy array, got list", "jax.numpy.asarray"),
    "integers": ((I, I, W), TypeError, "values must be of dtype float32, .* got int32", "values.astype"),
    "numpy's int64": (
        (V, np.asarray(I, np.int64), W),
        TypeError,
        "indices must be of dtype int32, got int64",
        "astype",
    ),
    "a large int": ((V, 2**40, W), TypeError, "indices must be of dtype int32, got int64", "astype"),
    "strings": ((V, np.array(["a"]), W), TypeError, "indices must be of dtype int32, got <U1", "indices.astype"),
    "unsigned": ((V, I.astype(jnp.uint32), W), TypeError, "indices must be of dtype int32, got uint32", "astype"),
    "float8": (
        (V, I, W.astype(jnp.float8_e5m2)),
        TypeError,
        "weight must be of dtype float32, .* got float8",
        "astype",
    ),
    "two dtypes": ((V, I, W.astype(jnp.bfloat16)), TypeError, "dtype of values, got bfloat16 and float32", "astype"),
    "shapes": ((V, I[:2], W), ValueError, r"same shape, as topk returns them, got \(3, 2\) and", ""),
    "scalar": ((V[0, 0], I[0, 0], W), ValueError, "values must have at least one axis, got a scalar", "Reshape"),
    "weights": ((V, I, W[None]), ValueError, r"weight must have 2 axes, weight\[n, d\], got shape \(1, 5, 4\)", "vmap"),
}


@pytest.mark.parametrize(("operands", "error", "rule", "fix"), MATMUL.values(), ids=MATMUL)
def test_matmul(operands, error, rule, fix):
    with pytest.raises(error, match=f"^sparse_dense_matmul: .*{rule}.*{fix}"):
        sparse_dense_matmul(*operands)


X = jnp.ones((3, 4))
SAMPLED = {
    "integers": ((I, W, I), TypeError, "x must be of dtype float32, .* got int32", "x.astype"),
    "float indices": ((X, W, V), TypeError, "indices must be of dtype int32, got float32", "indices.astype"),
    "two dtypes": ((X, W.astype(jnp.float16), I), TypeError, "dtype of x, got float16 and float32", "astype"),
    "rows": ((X, W, I[:2]), ValueError, r"shape but for their last axes, got \(3, 4\) and \(2, 2\)", "broadcast_to"),
    "scalar x": ((X[0, 0], W, I[0]), ValueError, "x must have at least one axis, got a scalar", "Reshape"),
    "scalar indices": ((X[0], W, I[0, 0]), ValueError, "indices must have at least one axis, got a scalar", "Reshape"),
    "weights": ((X, W[None], I), ValueError, r"weight must have 2 axes, weight\[n, d\], got shape \(1, 5, 4\)", "vmap"),
    "transposed": ((X, W.T, I), ValueError, r"same length, got shapes \(3, 4\) and \(4, 5\)", r"weight\.T"),
}


@pytest.mark.parametrize(("operands", "error", "rule", "fix"), SAMPLED.values(), ids=SAMPLED)
def test_sampled_matmul(operands, error, rule, fix):
    with pytest.raises(error, match=f"^sampled_dense_matmul: .*{rule}.*{fix}"):
        sampled_dense_matmul(*operands)


@pytest.mark.parametrize(
    ("function", "operands"), [(sparse_dense_matmul, (V, I, W)), (sampled_dense_matmul, (X, W, I))]
)
def test_implementation(function, operands):
    with pytest.raises(ValueError, match=rf'^{function.__name__}: implementation must be None, "native" or "xla"'):
        function(*operands, implementation="cuda")


def test_native_where_there_is_none(monkeypatch):
    monkeypatch.setattr(_native, "BACKENDS", {})
    jax.clear_caches()
    with pytest.raises(NotImplementedError, match="needs native code for the platform, got cpu"):
        sparse_dense_matmul(V, I, W, implementation="native")
    with pytest.raises(NotImplementedError, match="needs native code for the platform, got cpu"):
        sampled_dense_matmul(X, W, I, implementation="native")
    with pytest.raises(NotImplementedError, match="needs native code for the platform, got cpu"):
        neighbor_sum(GRAPH, V, I, 4, implementation="native")


NEIGHBORS = {
    "no graph": ((tuple(GRAPH), V, I, 4), TypeError, "graph must be a CSRGraph, got tuple", "from_edges"),
    "other nodes": (
        (GRAPH, V[:2], I[:2], 4),
        ValueError,
        r"a row for each node .*, 3, got shape \(2, 2\)",
        "num_sources",
    ),
    "a batch": ((GRAPH, V[None], I[None], 4), ValueError, r"values must have 2 axes, values\[sources, k\]", "jax.vmap"),
    "negative n": ((GRAPH, V, I, -1), ValueError, "n must be between 0 and .*, got -1", ""),
    "float n": ((GRAPH, V, I, 4.0), TypeError, "n must be a static Python int, got 4.0", r"int\(\)"),
    "dtypes": (
        (GRAPH._replace(weights=jnp.ones(3, jnp.float16)), V, I, 4),
        TypeError,
        "graph.weights must be of the dtype of values, got float16 and float32",
        "astype",
    ),
    "lengths": (
        (GRAPH._replace(neighbors=NODES[:2]), V, I, 4),
        ValueError,
        "one element an edge, .* neighbors 2",
        "from_edges",
    ),
}


@pytest.mark.parametrize(("operands", "error", "rule", "fix"), NEIGHBORS.values(), ids=NEIGHBORS)
def test_neighbors(operands, error, rule, fix):
    with pytest.raises(error, match=f"^neighbor_sum: .*{rule}.*{fix}"):
        neighbor_sum(*operands)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (
            (NODES, NODES[:2], 3),
            {},
            ValueError,
            "sources, targets and weights must be of the same length.* got lengths 3, 2",
        ),
        ((NODES, NODES, 3), {"weights": jnp.ones(2)}, ValueError, "must be of the same length"),
        ((NODES, NODES, True), {}, TypeError, "num_nodes must be a static Python int, got the bool"),
        ((NODES, NODES, 3), {"num_sources": -2}, ValueError, "num_sources must be between 0 and"),
        ((NODES * 1.0, NODES, 3), {}, TypeError, "sources must be of dtype int32, got float32"),
    ],
)
def test_graphs(arguments, options, error, message):
    with pytest.raises(error, match=f"^CSRGraph.from_edges: .*{message}"):
        CSRGraph.from_edges(*arguments, **options)


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def ints(*sizes):
    return jnp.zeros(sizes, jnp.int32)


ones = jnp.ones
EDGES = (ints(4), ints(6), ints(6), ints(6), ints(6))  # of 3 targets and 5 sources: indptr, neighbors, and outgoing
BAD_CUSTOM_CALLS = {
    "integers": ("gather_sum", (ints(3, 2), ints(5, 4), ints(3, 2)), shape(3, 4, dtype=jnp.int32), "must be float16"),
    "two dtypes": ("gather_sum", (ones((3, 2)), ones((5, 4), jnp.float16), ints(3, 2)), shape(3, 4), "one float dtype"),
    "float indices": (
        "gather_sum",
        (ones((3, 2)), ones((5, 4)), ones((3, 2))),
        shape(3, 4),
        "indices must be of dtype",
    ),
    "no rows": ("gather_sum", (ones((3, 2)), ones((5, 4)), ints(3, 2)), shape(2, 4), r"the rows must have the shape"),
    "columns": ("gather_sum", (ones((3, 2)), ones((5, 4)), ints(3, 2)), shape(3, 5), r"with 4 as its last dimension"),
    "rank": ("gather_sum", (ones((3, 2)), ones((5,)), ints(3, 2)), shape(3, 4), "weight must have 2 dimensions"),
    "scalar": ("gather_sum", (ones(()), ones((5, 4)), ints()), shape(), "indices must have 1 dimensions"),
    "values": ("sampled_dot", (ones((3, 4)), ones((5, 4)), ints(3, 2)), shape(3, 3), "values must have the shape"),
    "nodes": ("neighbor_sum", (ones(6), ones((5, 2)), ints(5, 2), *EDGES), shape(2, 7), "indptr must be 3 long, got 4"),
    "edges": (
        "edge_dot",
        (ones((5, 2)), ones((3, 7)), ints(5, 2), *EDGES),
        shape(7),
        "neighbors must be 7 long, got 6",
    ),
    "sources": ("neighbor_dot", (ones(6), ones((3, 7)), ints(4, 2), *EDGES), shape(4, 2), "out_indptr must be 5 long"),
}


@pytest.mark.native_only
@pytest.mark.parametrize(
    ("operation", "operands", "result", "message"), BAD_CUSTOM_CALLS.values(), ids=BAD_CUSTOM_CALLS
)
def test_malformed_custom_calls(backend, operation, operands, result, message):
    target = _native.BACKENDS["cuda" if backend.name == "gpu" else "cpu"].target(operation)
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: .*{message}"):
        jax.block_until_ready(jax.ffi.ffi_call(target, result)(*operands))


@pytest.mark.native_only
def test_custom_calls_without_entries(backend):
    """Which no function of jax_rtopk makes: zeros, whatever was in the buffer."""
    backends = _native.BACKENDS["cuda" if backend.name == "gpu" else "cpu"]
    for operation, operands, result in (
        ("gather_sum", (ones((3, 0)), ones((5, 4)), ints(3, 0)), shape(3, 4)),
        ("sampled_dot", (ones((3, 0)), ones((5, 0)), ints(3, 2)), shape(3, 2)),
        ("neighbor_sum", (ones(6), ones((5, 0)), ints(5, 0), *EDGES), shape(3, 7)),
    ):
        np.testing.assert_array_equal(jax.ffi.ffi_call(backends.target(operation), result)(*operands), 0)


@pytest.mark.native_only
def test_in_place(backend):
    target = _native.BACKENDS["cuda" if backend.name == "gpu" else "cpu"].target("gather_sum")
    call = jax.ffi.ffi_call(target, shape(3, 2), input_output_aliases={0: 0})
    with pytest.raises(Exception, match="the result must not be the operand's own buffer"):
        jax.block_until_ready(call(ones((3, 2)), ones((5, 2)), ints(3, 2)))
