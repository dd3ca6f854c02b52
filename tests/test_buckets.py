"""approx_topk through buckets that are given: bit for bit against numpy on every back end."""

import re

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import TopK, _native, approx_topk, export_disabled_checks

pytestmark = pytest.mark.usefixtures("backend")

LENGTHS = (1, 2, 31, 33, 100, 1000, 4097)


def bucketed(x, k, b, j=1, *, axis=-1, largest=True, sorted=True):
    """What bucketed top-k must give, straight from its definition."""
    rows = np.moveaxis(x, axis, -1)
    n = rows.shape[-1]
    order = np.argsort(~oracle.keys(rows, largest=largest), axis=-1, kind="stable")  # all of a row's, first ones first
    bucket = order % b
    by_bucket = np.argsort(bucket, axis=-1, kind="stable")
    place = np.empty_like(order)  # of an element within its bucket
    np.put_along_axis(
        place, by_bucket, np.arange(n) - (np.cumsum(_sizes(n, b)) - _sizes(n, b)).repeat(_sizes(n, b)), -1
    )
    first = np.argsort(place >= j, axis=-1, kind="stable")[..., :k]
    indices = np.take_along_axis(order, first, -1)
    indices = np.moveaxis(indices if sorted else np.sort(indices, -1), -1, axis)
    return np.take_along_axis(x, indices, axis), indices.astype(np.int32)


def _sizes(n, b):
    return np.bincount(np.arange(n) % b, minlength=b)


def check(x, k, b, j=1, **arguments):
    with oracle.x64_for(x.dtype):
        values, indices = approx_topk(jnp.asarray(x), k, num_buckets=b, bucket_k=j, **arguments)
    want_values, want_indices = bucketed(x, k, b, j, **arguments)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)


@st.composite
def problems(draw):
    n = draw(st.sampled_from(LENGTHS))
    b = draw(st.sampled_from(sorted({1, 2, 7, 16, 17, n // 3, n // 2, n})).filter(lambda b: 1 <= b <= n))
    j = draw(st.sampled_from(sorted({1, 2, 3, 4, 5, 9, n // b})).filter(lambda j: j <= n // b))
    k = draw(st.sampled_from(sorted({0, 1, b * j // 7, b * j // 2, b * j})))
    shape = draw(st.sampled_from([(), (3,), (2, 3), (0,)]))
    axis = draw(st.integers(0, len(shape)))
    dtype, kind = draw(st.sampled_from(oracle.DTYPES)), draw(st.sampled_from(oracle.KINDS))
    seed = draw(st.integers(0, 2**32 - 1))
    x = oracle.operand(np.random.default_rng(seed), dtype, (*shape[:axis], n, *shape[axis:]), kind)
    return x, k, b, j, axis - draw(st.sampled_from([0, len(shape) + 1]))


@settings(deadline=None, max_examples=40)
@given(problems(), st.booleans(), st.booleans())
def test_bit_for_bit(problem, largest, is_sorted):
    x, k, b, j, axis = problem
    check(x, k, b, j, axis=axis, largest=largest, sorted=is_sorted)


@pytest.mark.parametrize("dtype", oracle.DTYPES, ids=str)
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_every_dtype(dtype, kind):
    """Ragged rows whose lines are no multiple of a vector; queues of one level, of few and of many."""
    x = oracle.operand(np.random.default_rng(0), dtype, (5, 1100), kind)
    check(x, 30, 100)
    check(x, 40, 37, 3, largest=False, sorted=False)
    check(x, 300, 101, 6)


@pytest.mark.parametrize("filling", [-np.inf, np.inf, np.nan, -np.nan, 0.0, -0.0], ids=str)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_rows_of_one_value(filling, is_sorted):
    x = np.full((2, 1000), filling, np.float32)
    x[1, 617] = 1.0
    check(x, 64, 96, sorted=is_sorted)
    check(x, 300, 96, 5, sorted=is_sorted)
    check(x, 64, 96, 2, sorted=is_sorted, largest=False)
    check(x, 5, 5, sorted=is_sorted)


@pytest.mark.parametrize("dtype", [np.uint8, ml_dtypes.bfloat16, np.float32, np.int64], ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("j", [1, 2, 3, 4, 5, 16, 17])
def test_every_length_of_queue(dtype, j):
    """Rows that start anywhere, with few distinct elements; the last ones with long columns on CUDA."""
    x = oracle.operand(np.random.default_rng(j), np.dtype(dtype), (4, 997), "ties")
    check(x, 23 * j // 2, 23, j)
    check(x[:2], 23 * j // 3, 23, j, largest=False, sorted=False)
    check(x, 5 * j, 5, j)
    check(x, 5 * j, 5, j, largest=False)


@pytest.mark.parametrize("negative", [False, True])
def test_rows_that_blocks_take_in_turn(negative):
    """Once a CUDA block has found too few elements without a sign, it reads its later rows in another way."""
    x = np.random.default_rng(0).standard_normal((150, 70)).astype(np.float32)
    if negative:
        x[::3] = -np.abs(x[::3])
    check(x, 9, 20)
    check(x, 25, 11, 3, sorted=False)


def test_buckets_that_a_block_of_threads_deals_with_in_several_ways():
    """Many columns of a bucket, or many buckets; lines of a few packs, of odd lengths, and of almost the row's."""
    x = np.random.default_rng(0).standard_normal((2, 2999)).astype(np.float32)
    for b in (1, 2, 3, 4, 6, 255, 256, 257, 511, 1025, 1499, 2998):
        check(x, (b + 1) // 2, b)
    x = x.astype(np.float16)
    for b, j in ((5, 2), (128, 2), (1498, 2), (700, 4)):
        check(x, b, b, j, sorted=False)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64], ids=lambda t: np.dtype(t).name)
def test_rows_of_the_least_element(dtype):
    """It is what the CUDA kernel's queues hold where they hold nothing."""
    dtype = np.dtype(dtype)
    least = np.full(1, -1, f"i{dtype.itemsize}").view(dtype) if dtype.kind == "f" else np.full(1, np.iinfo(dtype).min)
    x = np.repeat(least.astype(dtype), 4 * 301).reshape(4, 301)
    x[1, 77] = x[2, ::9] = x[3, 5:290] = 1
    for b, j in ((40, 1), (3, 1), (41, 2), (20, 5), (7, 20)):
        check(x, b * j * 3 // 4, b, j)
        check(x, b * j * 3 // 4, b, j, sorted=False)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda t: np.dtype(t).name)
def test_more_candidates_than_fit_a_block(dtype):
    """On CUDA they are kept in a workspace."""
    x = oracle.operand(np.random.default_rng(0), np.dtype(dtype), (3, 12007), "bits")
    check(x, 100, 6000)
    check(x, 1500, 1999, 2, sorted=False)
    check(x, 1500, 700, 4)


def test_ties_go_to_the_lowest_index_across_buckets():
    """The last selected ones have many equals among the candidates, whose order is by bucket, not by index."""
    x = np.zeros((1, 64), np.float32)
    x[0, [9, 17, 34, 59, 60]] = 1.0  # buckets 1, 1, 2, 3, 4
    _, indices = approx_topk(x, 3, num_buckets=8)
    assert indices.tolist() == [[9, 34, 59]]
    _, indices = approx_topk(x, 5, num_buckets=8)
    assert indices.tolist() == [[9, 34, 59, 60, 0]]


@pytest.mark.parametrize("k", [100, 700])
def test_long_rows(k):
    x = np.random.default_rng(1).standard_normal((2, 70001)).astype(np.float32)
    check(x, k, 3001)
    check(x, k, 1501, 2, sorted=False)


def test_indices_that_are_close_together():
    """So close that their leading bits are the same."""
    x = np.zeros((1, 2**20), np.int32)
    x[0, 2**19 : 2**19 + 200] = np.arange(200)
    check(x, 150, 4096, sorted=False)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64], ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_one_long_row(dtype, is_sorted):
    """So long that the threads share its buckets."""
    x = oracle.operand(np.random.default_rng(10), np.dtype(dtype), (1, 2**18 + 77), "bits")
    check(x, 100, 1001, sorted=is_sorted)
    check(x, 500, 203, 3, sorted=is_sorted)


def test_transforms():
    x = np.random.default_rng(2).standard_normal((3, 4, 200)).astype(np.float32)

    def select(x):
        return approx_topk(x, 9, num_buckets=24, bucket_k=2)

    want_values, want_indices = bucketed(x, 9, 24, 2)
    got = jax.jit(select)(x)
    assert isinstance(got, TopK)
    oracle.assert_same(got.values, want_values)
    for axis in (0, 1):
        got = jax.vmap(select, in_axes=axis, out_axes=axis)(x)
        oracle.assert_same(got.indices, want_indices)
    got = jax.vmap(select, in_axes=2, out_axes=1)(x.swapaxes(1, 2))  # what is mapped over lies innermost
    oracle.assert_same(got.indices, want_indices)


def test_derivatives():
    x = np.random.default_rng(3).standard_normal((3, 200)).astype(np.float32)
    weights = np.arange(9, dtype=np.float32)

    def loss(x):
        return (approx_topk(x, 9, num_buckets=24).values ** 2 * weights).sum()

    values, indices = bucketed(x, 9, 24)
    want = np.zeros_like(x)
    np.put_along_axis(want, indices, 2 * values * weights, -1)
    np.testing.assert_array_equal(jax.grad(loss)(x), want)
    tangent = np.random.default_rng(4).standard_normal(x.shape).astype(np.float32)
    _, got = jax.jvp(lambda x: approx_topk(x, 9, num_buckets=24).values, (x,), (tangent,))
    np.testing.assert_array_equal(got, np.take_along_axis(tangent, indices, -1))
    second = jax.grad(lambda x: (jax.grad(loss)(x) ** 2).sum())(x)
    np.put_along_axis(want, indices, 8 * values * weights**2, -1)
    np.testing.assert_allclose(second, want, rtol=1e-6)


@pytest.mark.parametrize("function", ["select", "grad"])
def test_sharded_batch(backend, function):
    def select(x):
        return approx_topk(x, 3, num_buckets=6)

    def grad(x):
        return jax.grad(lambda x: (select(x).values ** 2).sum())(x)

    operation = {"select": select, "grad": grad}[function]
    x = np.random.default_rng(5).standard_normal((8, 4, 24)).astype(np.float32)
    mesh = jax.sharding.Mesh(np.array(backend.devices[:2]), ("a",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, P("a"))
    sharded = jax.device_put(x, sharding)
    compiled = jax.jit(operation).lower(sharded).compile()
    if backend.native:  # lax.top_k, on which pure JAX builds, gathers
        assert not re.findall(r"(all-gather|all-reduce|all-to-all|collective-\w+)(?:-start)?\(", compiled.as_text())
        for leaf in jax.tree.leaves(compiled(sharded)):
            assert leaf.sharding.is_equivalent_to(sharding, 3)
    jax.tree.map(lambda g, w: oracle.assert_same(g, np.asarray(w)), compiled(sharded), jax.jit(operation)(x))


def test_export():
    function = jax.jit(lambda x: approx_topk(x, 4, num_buckets=16))
    batch = jax.export.symbolic_shape("batch")[0]
    emulated = jax.export.DisabledSafetyCheck.custom_call("jax_rtopk_emulated_bucketed")
    exported = jax.export.export(function, disabled_checks=[*export_disabled_checks(), emulated])(
        jax.ShapeDtypeStruct((batch, 50), jnp.float32)
    )
    x = np.random.default_rng(6).standard_normal((3, 50)).astype(np.float32)
    got = jax.export.deserialize(exported.serialize()).call(x)
    oracle.assert_same(got.indices, bucketed(x, 4, 16)[1])


@pytest.mark.native_only
def test_the_custom_call_is_stable(backend):
    """Programs exported by one release must run under the next."""
    call = jax.jit(lambda x: approx_topk(x, 4, num_buckets=16, largest=False)).lower(jnp.ones((3, 50))).as_text()
    ((attributes, results),) = re.findall(
        r"custom_call @jax_rtopk_(?:emulated_)?bucketed\(.*?mhlo\.backend_config = {(.*?)}.*-> \((.*)\)", call
    )
    assert sorted(attributes.split(", ")) == [
        "bucket_k = 1 : i64",
        "k = 4 : i64",
        "largest = false",
        "num_buckets = 16 : i64",
        "sorted = true",
    ]
    workspace = [] if backend.name == "native" else ["tensor<3x0xui8>"]
    assert results.split(", ") == ["tensor<3x4xf32>", "tensor<3x4xi32>", *workspace]


@pytest.fixture
def call(backend):
    """Makes a custom call for four of each row of float32 ones, with a workspace where the back end has one."""
    platform = "cuda" if backend.name == "gpu" else "cpu"
    name = _native.BACKENDS[platform].target("bucketed")

    def call(rows, num_buckets, bucket_k, workspace=(jnp.uint8, 3, 0), k=4):
        results = [jax.ShapeDtypeStruct((3, k), dtype) for dtype in (jnp.float32, jnp.int32)]
        if backend.name != "native":
            results.append(jax.ShapeDtypeStruct(workspace[1:], workspace[0]))
        attributes = {"k": k, "num_buckets": num_buckets, "bucket_k": bucket_k}
        return jax.block_until_ready(
            jax.ffi.ffi_call(name, results)(
                jnp.ones(rows), **{key: np.int64(value) for key, value in attributes.items()}, largest=True, sorted=True
            )
        )

    return call


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ((0, 1), "num_buckets must be between 1 and the row length 50, got 0"),
        ((51, 1), "num_buckets must be between 1 and the row length 50, got 51"),
        ((8, 0), "bucket_k must be between 1 and the size of the smallest bucket, 6, got 0"),
        ((8, 7), "bucket_k must be between 1 and the size of the smallest bucket, 6, got 7"),
        ((3, 1), "num_buckets . bucket_k must be at least k=4, got 3"),
        ((2**32, 2**32), "num_buckets must be between"),
    ],
)
@pytest.mark.native_only
def test_malformed_calls_are_refused(call, buckets, message):
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: {message}"):
        call((3, 50), *buckets)


# 6000 candidates, and 4 that are selected, of 8 bytes each.
@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        ((jnp.uint8, 3, 0), "workspace must have at least 48032 bytes a row, a multiple of 8, got 0"),
        ((jnp.uint8, 3, 48024), "workspace must have at least 48032 bytes a row, a multiple of 8, got 48024"),
        ((jnp.uint8, 3, 48036), "workspace must have at least 48032 bytes a row, a multiple of 8, got 48036"),
        ((jnp.uint8, 2, 48032), r"workspace must have the operand's shape \[3, 7000\] with 48032 .*, got \[2, 48032\]"),
        ((jnp.uint8, 144096), "workspace must have the operand's shape"),
        ((jnp.float32, 3, 48032), "workspace must be of dtype uint8"),
    ],
)
@pytest.mark.cuda_only
def test_malformed_workspaces_are_refused(call, workspace, message):
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: {message}"):
        call((3, 7000), 6000, 1, workspace)


@pytest.mark.native_only
def test_workspaces_may_be_larger_than_they_need_to_be(call):
    for rows, buckets, workspace in (((3, 50), 10, 8), ((3, 50), 10, 808), ((3, 7000), 6000, 50000)):
        _, indices, *_ = call(rows, buckets, 1, (jnp.uint8, 3, workspace))
        assert indices.tolist() == [[0, 1, 2, 3]] * 3
