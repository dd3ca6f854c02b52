"""The pure-JAX definitions of the operations: what every back end must return, where no search stops early.

They serve as the fallback where no native code is built, and answer exactly whatever `max_iter` says. All work on
*keys* (see docs/architecture.md): unsigned integers whose order is the order of selection. `jax.lax.top_k` on the
operand itself would not do: it has no `largest=False`, on the CPU it loses the payloads of NaNs of bfloat16 and
float8_e5m2 before it compares them, and XLA's GPU kernel (f32, k <= 16, n >= 1024) has misplaced NaNs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_Mode = lax.GatherScatterMode
_lax_top_k = lax.top_k  # JAX's own, whoever has the name later (_accelerate.py)


def topk(operand: jax.Array, *, k: int, largest: bool, sorted: bool, float_order: bool) -> tuple[jax.Array, jax.Array]:
    """Values and int32 indices of the k first elements along the last axis.

    `float_order` says that the platform's `lax.top_k` is known to follow IEEE 754 total order for float32.
    """
    indices = _topk_indices(operand, k=k, largest=largest, by_magnitude=False, float_order=float_order)
    return _selected(operand, indices, sorted=sorted)


def bucketed(
    operand: jax.Array,
    *,
    k: int,
    num_buckets: int,
    bucket_k: int,
    largest: bool,
    sorted: bool,
    float_order: bool,
) -> tuple[jax.Array, jax.Array]:
    """Values and int32 indices of the k first, along the last axis, of the `bucket_k` first of each bucket.

    Element i is in bucket i mod `num_buckets`. No bucket has fewer than `bucket_k` elements.
    """
    keys = _wide(keys_of(operand, largest=largest, by_magnitude=False))
    n = operand.shape[-1]
    lines = -(-n // num_buckets)
    # What is padded comes last in its bucket, behind enough others.
    padded = jnp.pad(keys, [(0, 0)] * (keys.ndim - 1) + [(0, lines * num_buckets - n)])
    buckets = padded.reshape(*keys.shape[:-1], lines, num_buckets)
    if bucket_k == 1:
        line = lax.argmax(buckets, buckets.ndim - 2, np.int32)[..., None]
    else:
        line = _lax_top_k(_ranked(jnp.swapaxes(buckets, -1, -2), float_order=float_order), bucket_k)[1]
    kept = line * np.int32(num_buckets) + jnp.arange(num_buckets, dtype=np.int32)[:, None]
    # Ascending, so that ties go to the lowest index again.
    candidates = lax.sort(kept.reshape(*keys.shape[:-1], num_buckets * bucket_k))
    first = _lax_top_k(_ranked(take_rows(keys, candidates), float_order=float_order), k)[1]
    return _selected(operand, take_rows(candidates, first), sorted=sorted)


def _selected(operand: jax.Array, indices: jax.Array, *, sorted: bool) -> tuple[jax.Array, jax.Array]:
    if not sorted:
        indices = lax.sort(indices)
    # Gathered as integers: XLA's CPU gather of float8_e5m2 goes through a wider float, which changes signalling NaNs.
    return from_bits(take_rows(to_bits(operand), indices), operand.dtype), indices


def mask(operand: jax.Array, *, k: int, largest: bool, by_magnitude: bool, float_order: bool) -> jax.Array:
    """True at the k first elements along the last axis."""
    indices = _topk_indices(operand, k=k, largest=largest, by_magnitude=by_magnitude, float_order=float_order)
    return put_rows(jnp.zeros(operand.shape, bool), indices, jnp.ones(indices.shape, bool))


def sparsify(operand: jax.Array, *, k: int, by_magnitude: bool, float_order: bool) -> jax.Array:
    """The operand with all but the k first elements along the last axis set to +0."""
    indices = _topk_indices(operand, k=k, largest=True, by_magnitude=by_magnitude, float_order=float_order)
    bits = to_bits(operand)
    return from_bits(put_rows(jnp.zeros_like(bits), indices, take_rows(bits, indices)), operand.dtype)


def keep(mask: jax.Array, operand: jax.Array) -> jax.Array:
    """The operand where `mask` is True, and +0 elsewhere."""
    # As integers: XLA's CPU select of float8_e5m2 goes through a wider float (of bfloat16 too, in jaxlib 0.7.1).
    bits = to_bits(operand)
    return from_bits(jnp.where(mask, bits, jnp.zeros_like(bits)), operand.dtype)


def take_rows(operand: jax.Array, indices: jax.Array, *, zero_outside: bool = False) -> jax.Array:
    """`jnp.take_along_axis(operand, indices, -1)` for indices that are in bounds and distinct within their row.

    Saying so lets XLA transpose it to a scatter without atomics; saying which dimensions are batch dimensions lets it
    shard both without a collective. With `zero_outside` indices may be out of bounds on either side, and take a zero.
    """
    if 0 in indices.shape:  # lax.gather refuses to take from an empty dimension
        return indices.astype(operand.dtype)
    batch = tuple(range(operand.ndim - 1))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(operand.ndim - 1,),
        start_index_map=(operand.ndim - 1,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    return lax.gather(
        operand,
        indices[..., None],
        numbers,
        slice_sizes=(1,) * operand.ndim,
        unique_indices=True,
        mode=_Mode.FILL_OR_DROP if zero_outside else _Mode.PROMISE_IN_BOUNDS,
        fill_value=0 if zero_outside else None,
    )


def put_rows(operand: jax.Array, indices: jax.Array, updates: jax.Array) -> jax.Array:
    """The inverse of `take_rows`: the operand with `updates` at `indices`."""
    if 0 in indices.shape:  # jaxlib 0.7.1 would write one element of each row
        return operand
    batch = tuple(range(operand.ndim - 1))
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(operand.ndim - 1,),
        scatter_dims_to_operand_dims=(operand.ndim - 1,),
        operand_batching_dims=batch,
        scatter_indices_batching_dims=batch,
    )
    return lax.scatter(
        operand,
        indices[..., None],
        updates,
        numbers,
        unique_indices=True,
        mode=_Mode.PROMISE_IN_BOUNDS,
    )


def _topk_indices(operand: jax.Array, *, k: int, largest: bool, by_magnitude: bool, float_order: bool) -> jax.Array:
    keys = _wide(keys_of(operand, largest=largest, by_magnitude=by_magnitude))
    return _lax_top_k(_ranked(keys, float_order=float_order), k)[1]


def _wide(keys: jax.Array) -> jax.Array:
    """Keys that every platform can sort."""
    return keys if keys.dtype.itemsize >= 4 else keys.astype(np.uint32)


def _ranked(keys: jax.Array, *, float_order: bool) -> jax.Array:
    """What to give `lax.top_k`, of which the CPU's has a fast path for float32 alone."""
    return _float32_in_order_of(keys) if float_order and keys.dtype == np.uint32 else keys


def keys_of(operand: jax.Array, *, largest: bool, by_magnitude: bool) -> jax.Array:
    """The ordered unsigned image of the operand's bits; native/ordered_key.h is its C++ twin."""
    bits = to_bits(operand)
    sign = _sign_bit(bits.dtype)
    if jnp.issubdtype(operand.dtype, np.floating):
        keys = bits & ~sign if by_magnitude else jnp.where(bits < sign, bits | sign, ~bits)
    elif jnp.issubdtype(operand.dtype, np.signedinteger):
        keys = jnp.where(bits < sign, bits, -bits) if by_magnitude else bits ^ sign
    else:
        keys = bits
    return keys if largest else ~keys


def _float32_in_order_of(keys: jax.Array) -> jax.Array:
    """The float32 whose IEEE 754 total order is the integer order of uint32 keys."""
    sign = _sign_bit(keys.dtype)
    return lax.bitcast_convert_type(jnp.where(keys < sign, ~keys, keys ^ sign), np.float32)


def _sign_bit(dtype: np.dtype) -> Any:  # a numpy scalar of the same dtype
    return dtype.type(1 << (8 * dtype.itemsize - 1))


def to_bits(operand: jax.Array) -> jax.Array:
    if operand.dtype == np.bool_:
        return operand.astype(np.uint8)
    return lax.bitcast_convert_type(operand, np.dtype(f"uint{8 * operand.dtype.itemsize}"))


def from_bits(bits: jax.Array, dtype: np.dtype) -> jax.Array:
    return bits.astype(bool) if dtype == np.bool_ else lax.bitcast_convert_type(bits, dtype)
