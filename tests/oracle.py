"""What the answers must be, in numpy: a stable sort of ordered keys. And operands that make it hard."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

FLOATS = [
    np.dtype(t)
    for t in (
        np.float32,
        ml_dtypes.bfloat16,
        np.float16,
        np.float64,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
    )
]
INTEGERS = [np.dtype(f"{sign}int{width}") for sign in ("", "u") for width in (8, 16, 32, 64)]
DTYPES = [*FLOATS, *INTEGERS, np.dtype(bool)]


def x64_for(dtype):
    """The context in which JAX has arrays of the dtype."""
    if dtype.itemsize < 8:
        return nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # up to jax 0.8

    return enable_x64()


def bits(x):
    x = np.ascontiguousarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def keys(x, *, largest=True, by_magnitude=False):
    """Unsigned integers whose order is the order of selection, by the definition of each kind of number."""
    b = bits(x)
    sign = b.dtype.type(1 << (8 * b.dtype.itemsize - 1))
    negative = (b & sign) != 0
    if x.dtype in FLOATS:
        key = b & ~sign if by_magnitude else np.where(negative, ~b, b | sign)
    elif x.dtype.kind == "i":
        key = np.where(negative, ~b + b.dtype.type(1), b) if by_magnitude else b ^ sign
    else:
        key = b
    return key if largest else ~key


def topk(x, k, *, axis=-1, largest=True, sorted=True, by_magnitude=False):
    """Values and indices of the k first of each row."""
    order = np.argsort(~keys(x, largest=largest, by_magnitude=by_magnitude), axis=axis, kind="stable")
    indices = np.take(order, np.arange(k), axis=axis)
    if not sorted:
        indices = np.sort(indices, axis=axis)
    return np.take_along_axis(x, indices, axis), indices.astype(np.int32)


def mask(x, k, *, axis=-1, **order):
    selected = np.zeros(x.shape, bool)
    np.put_along_axis(selected, topk(x, k, axis=axis, **order)[1], True, axis)
    return selected


def listed(x, mask, *, sorted=True, **order):
    """Values and indices of what a mask selects of rows, the same number of each."""
    indices = np.nonzero(mask)[1].reshape(len(x), -1)
    if sorted:
        selected = np.take_along_axis(keys(x, **order), indices, 1)
        indices = np.take_along_axis(indices, np.argsort(~selected, axis=1, kind="stable"), 1)
    return np.take_along_axis(x, indices, 1), indices.astype(np.int32)


def bucketed(x, k, b, j=1, *, axis=-1, largest=True, sorted=True):
    """What bucketed top-k must give with `b` buckets that keep `j` each, straight from its definition."""
    rows = np.moveaxis(x, axis, -1)
    n = rows.shape[-1]
    order = np.argsort(~keys(rows, largest=largest), axis=-1, kind="stable")  # all of a row's, first ones first
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


def assert_same(got, want):
    """Equal in dtype, shape and every bit."""
    got = np.asarray(got)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_array_equal(bits(got), bits(want))


def special_values(dtype):
    """The values at which comparisons go wrong: both zeros, denormals, infinities, NaNs with payloads; extreme ints."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.min + 1, 0, 1, info.max // 2, info.max - 1, info.max], dtype)
    info = jnp.finfo(dtype)
    width, unsigned = 8 * dtype.itemsize, np.dtype(f"u{dtype.itemsize}").type
    ones, exponent = (1 << (width - 1)) - 1, ((1 << info.nexp) - 1) << info.nmant
    # e4m3fn has no infinities: its largest exponent holds numbers but for the last, a NaN.
    patterns = [0, 1, 2, 1 << info.nmant, exponent - 1, exponent, exponent + 1, ones - 1, ones]
    return np.array([p | s for p in patterns for s in (0, 1 << (width - 1))], unsigned).view(dtype)


def with_canonical_nans(x):
    """The same with every NaN replaced by the quiet NaN of its sign without payload."""
    x = np.asarray(x)
    if x.dtype not in FLOATS or x.dtype == ml_dtypes.float8_e4m3fn:  # e4m3fn has one NaN of each sign
        return x
    info = jnp.finfo(x.dtype)
    sign = 1 << (8 * x.dtype.itemsize - 1)
    infinity = ((1 << info.nexp) - 1) << info.nmant
    nan = bits(x) & (sign - 1) > infinity
    canonical = bits(x) & sign | bits(x).dtype.type(infinity | 1 << (info.nmant - 1))
    return np.where(nan, canonical, bits(x)).view(x.dtype)


def operand(rng, dtype, shape, kind):
    """An operand of one of KINDS."""
    if kind == "bits":
        raw = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
        return (raw[..., 0] & 1).astype(bool) if dtype.kind == "b" else raw.view(dtype)[..., 0]
    if kind == "ties":
        return rng.integers(0, 2 if dtype.kind == "b" else 4, shape).astype(dtype)
    if kind == "constant":
        return np.full(shape, 1, dtype)
    assert kind == "special"
    return rng.choice(special_values(dtype), shape)


KINDS = ("bits", "ties", "constant", "special")
