"""Checks of the sparse functions' arguments at trace time: each error gives the rule, what was got, and the fix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_rtopk._checks import MAX_LENGTH, as_array, check_is_array, static_int

_NAMES = ("float32", "bfloat16", "float16", "float64")
_FLOATS = frozenset(map(jnp.dtype, _NAMES))


def check_floats(name: str, argument: str, value: Any, axes: tuple[str, ...] | None = None) -> jax.Array:
    """The argument as a JAX array of a float dtype, with these axes if they are given."""
    array = _array(name, argument, value, _FLOATS, ", ".join(_NAMES))
    return array if axes is None else _with_axes(name, argument, array, axes)


def check_integers(name: str, argument: str, value: Any, axes: tuple[str, ...] | None = None) -> jax.Array:
    """The argument as a JAX array of dtype int32, with these axes if they are given."""
    array = _array(name, argument, value, frozenset([np.dtype(np.int32)]), "int32")
    return array if axes is None else _with_axes(name, argument, array, axes)


def _array(name: str, argument: str, value: Any, dtypes: frozenset[Any], names: str) -> jax.Array:
    check_is_array(name, argument, value)
    try:
        dtype = jax.typeof(value).dtype
    except (TypeError, OverflowError):  # JAX has no such dtype
        dtype = np.asarray(value).dtype
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        dtype = value.dtype  # of which JAX would drop the upper half, unless it has 64-bit types enabled
    if dtype not in dtypes:
        raise TypeError(
            f"{name}: {argument} must be of dtype {names}, got {dtype}. Convert it first, with {argument}.astype."
        )
    return as_array(name, argument, value)


def _with_axes(name: str, argument: str, array: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    if array.ndim != len(axes):
        raise ValueError(
            f"{name}: {argument} must have {len(axes)} axes, {argument}[{', '.join(axes)}], got shape {array.shape}. "
            "Reshape it; for a batch of them there is jax.vmap."
        )
    return array


def check_sparse_rows(
    name: str, values: Any, indices: Any, axes: tuple[str, ...] | None = None
) -> tuple[jax.Array, jax.Array]:
    """Values and indices of one shape, as `topk` returns them."""
    floats = check_floats(name, "values", values, axes)
    integers = check_integers(name, "indices", indices, axes)
    _check_has_axis(name, "values", floats)
    if floats.shape != integers.shape:
        raise ValueError(
            f"{name}: values and indices must have the same shape, as topk returns them, got {floats.shape} and "
            f"{integers.shape}."
        )
    return floats, integers


def check_sampled_rows(name: str, x: Any, indices: Any) -> tuple[jax.Array, jax.Array]:
    """Dense rows, and as many rows of indices."""
    floats = check_floats(name, "x", x)
    integers = check_integers(name, "indices", indices)
    _check_has_axis(name, "x", floats)
    _check_has_axis(name, "indices", integers)
    if floats.shape[:-1] != integers.shape[:-1]:
        raise ValueError(
            f"{name}: x and indices must have the same shape but for their last axes, got {floats.shape} and "
            f"{integers.shape}. Broadcast one of them, with jax.numpy.broadcast_to."
        )
    return floats, integers


def _check_has_axis(name: str, argument: str, array: jax.Array) -> None:
    if array.ndim == 0:
        raise ValueError(f"{name}: {argument} must have at least one axis, got a scalar. Reshape it to (1,).")


def check_same_length(name: str, x: jax.Array, weight: jax.Array) -> None:
    """That there are inner products of the rows of both."""
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"{name}: x[..., d] and weight[n, d] must have rows of the same length, got shapes {x.shape} and "
            f"{weight.shape}. Of a weight as for x @ weight pass weight.T."
        )


def check_same_dtype(name: str, argument: str, array: jax.Array, other: str, like: jax.Array) -> None:
    """That an argument has the dtype of another."""
    if array.dtype != like.dtype:
        raise TypeError(
            f"{name}: {argument} must be of the dtype of {other}, got {array.dtype} and {like.dtype}. Convert one of "
            "them, with astype."
        )


def check_count(name: str, argument: str, value: Any) -> int:
    """A number of rows or columns that int32 indices can tell apart."""
    count = static_int(name, argument, value)
    if not 0 <= count <= MAX_LENGTH:
        raise ValueError(f"{name}: {argument} must be between 0 and 2**31 - 1, as indices are int32, got {count}.")
    return count
