"""Long rows that a GPU selects from in parts: the custom call itself, with rows as short as it takes them."""

import re

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oracle
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import _native, export_disabled_checks, topk

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.cuda_only]


@pytest.fixture
def native(backend):
    return _native.BACKENDS["cuda" if backend.name == "gpu" else "cpu"]


@pytest.fixture
def call(native):
    def call(x, k, parts, *, largest=True, sorted=True, workspace=None):
        with oracle.x64_for(x.dtype):
            x = jnp.asarray(x)
            if workspace is None:
                needed = native.module.topk_in_parts_workspace(parts, k, x.dtype.itemsize)
                workspace = jax.ShapeDtypeStruct((*x.shape[:-1], needed), jnp.uint8)
            shape = (*x.shape[:-1], k)
            results = [jax.ShapeDtypeStruct(shape, x.dtype), jax.ShapeDtypeStruct(shape, jnp.int32), workspace]
            custom_call = jax.ffi.ffi_call(native.target("topk_in_parts"), results)
            numbers = {"k": np.int64(k), "parts": np.int64(parts)}
            return jax.block_until_ready(custom_call(x, **numbers, largest=largest, sorted=sorted))[:2]

    return call


def check(call, x, k, parts, **order):
    values, indices = call(x, k, parts, **order)
    want_values, want_indices = oracle.topk(x, k, **order)
    oracle.assert_same(indices, want_indices)
    oracle.assert_same(values, want_values)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.bfloat16, np.float32, np.uint32, np.float64])
@pytest.mark.parametrize("kind", oracle.KINDS)
def test_bit_for_bit(call, kind, dtype, largest, is_sorted):
    x = oracle.operand(np.random.default_rng(1), np.dtype(dtype), (2, 531), kind)
    check(call, x, 7, 5, largest=largest, sorted=is_sorted)


@pytest.mark.parametrize(
    ("rows", "n", "k", "parts"),
    [
        (1, 1, 1, 1),
        (3, 97, 97, 1),  # a part that is the row
        (3, 97, 24, 4),  # k are all but one of the last part, whose last pack is not full
        (1, 97, 1, 25),  # parts of a pack
        (40, 30, 2, 3),  # more parts than blocks
        (2, 9001, 40, 3),  # which small blocks hold
        (1, 9001, 40, 2),  # which large ones do
        (1, 20000, 2048, 9),  # what they select is more than a block holds
        (1, 16384, 4, 1),  # as much as a block can hold
    ],
)
def test_parts_of_every_length(call, rows, n, k, parts):
    x = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32)
    check(call, x, k, parts)
    check(call, np.round(x), k, parts, sorted=False)


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.bfloat16, np.float32, np.uint32, np.float64])
def test_parts_for_large_blocks(call, dtype):
    x = oracle.operand(np.random.default_rng(2), np.dtype(dtype), (2, 12288), "special")
    check(call, x, 9, 2)


def test_the_lowest_of_equals_across_parts(call):
    x = np.zeros((1, 400), np.float32)
    x[0, [399, 130, 7]] = 1
    for is_sorted in (True, False):
        check(call, x, 2, 4, sorted=is_sorted)
        check(call, x, 12, 4, sorted=is_sorted)


@pytest.mark.parametrize(
    ("n", "k", "parts", "rule"),
    [
        (100, 4, 0, "from 1 to so many that each has k elements, got 0 parts of rows of 100"),
        (100, 4, -1, "from 1 to so many"),
        (100, 4, 2**62, "from 1 to so many"),
        (100, 4, 26, "from 1 to so many that each has k elements, got 26 parts"),
        (101, 4, 26, "from 1 to so many"),  # the last has one
        (16385, 4, 1, "so many that a block can hold each, got 1 parts of rows of 16385"),
    ],
)
def test_malformed_parts_are_refused(call, n, k, parts, rule):
    space = jax.ShapeDtypeStruct((1, 4096), jnp.uint8)
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: parts must be {rule}"):
        call(np.zeros((1, n), np.float32), k, parts, workspace=space)


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        ((jnp.uint8, 2, 159), "at least 160 bytes a row, got 159"),
        ((jnp.uint8, 1, 160), r"the operand's shape \[2, 100\] with 160 .*, got \[1, 160\]"),
        ((jnp.int8, 2, 160), "dtype uint8"),
    ],
)
def test_malformed_workspaces_are_refused(call, workspace, message):
    x = np.zeros((2, 100), np.float32)
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT: jax_rtopk: workspace must .*{message}"):
        call(x, 4, 5, workspace=jax.ShapeDtypeStruct(workspace[1:], workspace[0]))
    oracle.assert_same(call(x, 4, 5, workspace=jax.ShapeDtypeStruct((2, 1001), jnp.uint8))[1], oracle.topk(x, 4)[1])


@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8])
def test_which_rows_are_taken_in_parts(native, item_bytes):
    longest = 8192 if item_bytes == 8 else 16384
    for rows in (1, 10, 10**6):
        assert native.parts(rows, longest, 1, item_bytes) == 1
        for n in (longest + 1, 40000, 151936, 2**24 + 1, 2**31 - 1):
            for k in (1, 64, 500):
                parts = native.parts(rows, n, k, item_bytes)
                packs = -(-n * item_bytes // 16)
                assert 1 < parts <= packs
                assert packs // parts * 16 // item_bytes - 16 >= k
                assert -(-packs // parts) * 16 // item_bytes <= longest
                assert 8 * parts * k <= n
            assert native.parts(rows, n, longest // 8 + 1, item_bytes) == 1
    few, many = (native.parts(rows, 151936, 50, item_bytes) for rows in (8, 10**6))
    assert few > many  # few rows are to keep a GPU busy
    # Unless what the parts select would be too many for a block.
    assert native.parts(8, 151936, 500, item_bytes) == native.parts(10**6, 151936, 500, item_bytes)


def calls(function, *operands):
    return re.findall(r"@jax_rtopk_(?:emulated_)?(\w+)", jax.jit(function).lower(*operands).as_text())


def test_topk_of_long_rows():
    x = np.random.default_rng(2).standard_normal((2, 20000)).astype(np.float32)
    assert calls(lambda x: topk(x, 5), x) == ["topk_in_parts"]
    assert calls(lambda x: topk(x, 5, max_iter=2), x) == ["topk"]
    assert calls(lambda x: topk(x, 5), x[:, :16384]) == ["topk"]
    got = jax.jit(lambda x: topk(x, 5, largest=False))(x)
    oracle.assert_same(got.indices, oracle.topk(x, 5, largest=False)[1])


def test_a_sharded_batch_stays_where_it_is(backend):
    x = np.random.default_rng(3).standard_normal((2, 2, 17000)).astype(np.float32)
    mesh = jax.sharding.Mesh(np.array(backend.devices[:2]), ("a",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, P(None, "a") if len(backend.devices) > 1 else P())
    sharded = jax.device_put(x, sharding)
    compiled = jax.jit(lambda x: topk(x, 3)).lower(sharded).compile()
    assert not re.findall(r"(all-gather|all-reduce|all-to-all|collective-\w+)(?:-start)?\(", compiled.as_text())
    got = compiled(sharded)
    assert got.indices.sharding.is_equivalent_to(sharding, 3)
    oracle.assert_same(got.indices, oracle.topk(x, 3)[1])


def test_export():
    batch = jax.export.symbolic_shape("batch")[0]
    emulated = jax.export.DisabledSafetyCheck.custom_call("jax_rtopk_emulated_topk_in_parts")
    exported = jax.export.export(jax.jit(lambda x: topk(x, 4)), disabled_checks=[*export_disabled_checks(), emulated])(
        jax.ShapeDtypeStruct((batch, 17000), jnp.float32)
    )
    x = np.random.default_rng(6).standard_normal((2, 17000)).astype(np.float32)
    got = jax.export.deserialize(exported.serialize()).call(x)
    oracle.assert_same(got.indices, oracle.topk(x, 4)[1])
