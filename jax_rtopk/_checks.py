"""Checks of arguments at trace time: each error gives the rule, what was got, and the fix."""

from __future__ import annotations

import math
import operator
from typing import Any, get_args

import jax
import jax.core
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from jax_rtopk._compat import is_traced

_FLOATS = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")
_INTEGERS = tuple(f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64))
_NAMES = (*_FLOATS, *_INTEGERS, "bool")
_DTYPES = frozenset(map(jnp.dtype, _NAMES))

_ARRAYS = get_args(ArrayLike)  # and scalars, which are refused as such

MAX_LENGTH = 2**31 - 1  # indices are int32


def check_operand(name: str, operand: Any) -> jax.Array:
    """The operand as a JAX array of a dtype that can be selected from."""
    check_is_array(name, "operand", operand)
    if isinstance(operand, np.ndarray | np.generic) and operand.dtype not in _DTYPES:
        raise _dtype_error(name, operand.dtype)  # JAX may have no such dtype
    if isinstance(operand, int):
        raise _scalar_error(name)  # JAX may have no such int
    if jax.typeof(operand).dtype not in _DTYPES:
        raise _dtype_error(name, jax.typeof(operand).dtype)
    return as_array(name, "operand", operand)


def as_array(name: str, argument: str, value: Any) -> jax.Array:
    """As a JAX array an argument that is one or would be taken for one."""
    aval = jax.typeof(value)
    unreduced = aval.sharding.spec.unreduced
    if unreduced:
        raise ValueError(
            f"{name}: {argument} must not have pending sums over mesh axes, got {aval.str_short()} unreduced over "
            f"{sorted(unreduced)}. Finish them first, with jax.sharding.reshard."
        )
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def check_is_array(name: str, argument: str, value: Any) -> None:
    """That JAX would take the argument as an array without converting it."""
    if not isinstance(value, _ARRAYS) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: {argument} must be a JAX or numpy array, got {type(value).__name__}. "
            f"{_array_fix(argument, value)}"
        )


def _array_fix(argument: str, value: Any) -> str:
    if isinstance(value, np.ma.MaskedArray):
        return f"Fill what is masked first, with {argument}.filled."
    if isinstance(value, jax.ShapeDtypeStruct):
        return "Shapes without values are for jax.eval_shape."
    if isinstance(value, getattr(jax, "Ref", ())):
        return f"Read it first, as {argument}[...]."
    return "Convert it with jax.numpy.asarray."


def _scalar_error(name: str) -> Exception:
    return ValueError(f"{name}: operand must have at least one axis, got a scalar. Reshape it to (1,).")


def _dtype_error(name: str, dtype: Any) -> Exception:
    if jnp.issubdtype(dtype, np.complexfloating):
        return ValueError(
            f"{name}: operand must be real, got {dtype}: complex numbers have no order. Select by operand.real or "
            "jax.numpy.abs(operand)."
        )
    return TypeError(
        f"{name}: operand must be of dtype {', '.join(_NAMES)}, got {dtype}. Convert it first, with operand.astype."
    )


def check_axis(name: str, axis: Any, operand: jax.Array) -> int:
    """The selection axis, counted from the front."""
    if operand.ndim == 0:
        raise _scalar_error(name)
    position = static_int(name, "axis", axis)
    if not -operand.ndim <= position < operand.ndim:
        raise ValueError(
            f"{name}: axis must be between {-operand.ndim} and {operand.ndim - 1} for an operand of shape "
            f"{operand.shape}, got {position}."
        )
    position %= operand.ndim
    if isinstance(operand.shape[position], int) and operand.shape[position] > MAX_LENGTH:
        raise ValueError(
            f"{name}: the selection axis may be at most 2**31 - 1 long, as indices are int32, got "
            f"{operand.shape[position]}. Split it, select from each part, then from what was selected."
        )
    mesh_axes = jax.typeof(operand).sharding.spec[position]
    if mesh_axes is not None:
        raise ValueError(
            f"{name}: the selection axis must not be sharded over explicit mesh axes, got axis {position} of "
            f"{jax.typeof(operand).str_short()} sharded over {mesh_axes!r}. Use sharded_topk inside jax.shard_map over "
            "these, which moves k candidates per device instead of the row, or gather it first with "
            "jax.sharding.reshard."
        )
    return position


def check_k(name: str, k: Any, operand: jax.Array, axis: int) -> int:
    """`k` as a Python int within the row."""
    count = _count(name, k)
    if _is_more_than(name, count, operand.shape[axis]):
        raise ValueError(
            f"{name}: k must be at most the size of the selection axis, got k={count} for axis {axis} of shape "
            f"{operand.shape}. Pass min(k, operand.shape[{axis}])."
        )
    return count


def _count(name: str, k: Any) -> int:
    count = static_int(name, "k", k)
    if count < 0:
        raise ValueError(f"{name}: k must be at least 0, got {count}.")
    return count


def _is_more_than(name: str, k: int, size: Any) -> bool:
    try:
        return bool(k > size)
    except Exception as error:  # jax.errors has it from jax 0.8 on only
        if not jax.export.is_symbolic_dim(size):
            raise
        raise ValueError(
            f"{name}: k must be at most the size of the selection axis, which is undecided for k={k} and the symbolic "
            f'size {size}. Say so where you make the shape: jax.export.symbolic_shape(..., constraints=("{size} >= {k}"'
            ",))."
        ) from error


def check_axis_name(name: str, axis_name: Any) -> tuple[str, ...]:
    """The mesh axes as a tuple, once it is known that a surrounding shard_map is manual over each of them."""
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    rule = f"{name}: axis_name must be a mesh axis or a tuple of mesh axes, got {axis_name!r}"
    if not all(isinstance(axis, str) for axis in names):
        raise TypeError(f"{rule}. Pass names, as in the PartitionSpec of the selection axis.")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{rule}. Pass each axis over which the rows are split, once.")
    for axis in names:
        try:
            lax.axis_size(axis)
        except NameError as error:
            raise ValueError(
                f"{name}: axis_name must be of mesh axes that a surrounding jax.shard_map is manual over, got "
                f"{axis!r}. Call it inside jax.shard_map, with {axis!r} among its axis_names if these are given; for "
                "whole rows there is topk."
            ) from error
    return names


def check_shard(name: str, operand: jax.Array, names: tuple[str, ...]) -> int:
    """The length of the rows of which the operand's are the part that one device has."""
    shard = operand.shape[check_axis(name, -1, operand)]
    if not all(isinstance(size, int) for size in operand.shape):
        raise ValueError(
            f"{name}: operand must not be of symbolic size, of which XLA's collectives take nothing, got "
            f"{operand.shape}. Export a program for each size that is needed."
        )
    shards = lax.axis_size(names)
    if shard * shards > MAX_LENGTH:
        raise ValueError(
            f"{name}: the whole row may be at most 2**31 - 1 long, as indices are int32, got {shards} parts of "
            f"{shard}. Split it, select from each part, then from what was selected."
        )
    return shard * shards


def check_k_of_shards(name: str, k: Any, operand: jax.Array, length: int) -> int:
    """`k` as a Python int within the whole row."""
    count = _count(name, k)
    if count > length:
        raise ValueError(
            f"{name}: k must be at most the length of the whole row, got k={count} for one of {length}, of which each "
            f"device has {operand.shape[-1]}. Pass min(k, {length})."
        )
    return count


def check_max_iter(name: str, max_iter: Any) -> int:
    """`max_iter` as the primitives take it: 0 for None, which is exact."""
    if max_iter is None:
        return 0
    passes = static_int(name, "max_iter", max_iter)
    if passes < 1:
        raise ValueError(f"{name}: max_iter must be at least 1, got {passes}. Pass None for the exact answer.")
    return min(passes, 2**31 - 1)  # no search takes so many


def check_static_row(name: str, operand: jax.Array, axis: int) -> int:
    """The row length as a Python int, for plans that are made of it."""
    size = operand.shape[axis]
    if not isinstance(size, int):
        raise ValueError(
            f"{name}: the selection axis must have a static size, as how to select depends on it, got the symbolic "
            f"size {size}. Export a program for each size that is needed, or use topk."
        )
    return size


def check_row(name: str, n: Any, k: Any, *, n_name: str = "n") -> tuple[int, int]:
    """A row length and a k to reckon with, of which there is something to be found."""
    length, count = static_int(name, n_name, n), static_int(name, "k", k)
    if not 1 <= length <= MAX_LENGTH:
        raise ValueError(f"{name}: {n_name} must be between 1 and 2**31 - 1, as rows have, got {length}.")
    if not 1 <= count <= length:
        fix = f" Pass min(k, {n_name})." if count > length else ""
        raise ValueError(f"{name}: k must be between 1 and {n_name}={length}, got {count}.{fix}")
    return length, count


def check_last_axis(name: str, operand: Any, size_name: str, size: int) -> jax.Array:
    """The operand, whose last axis is as long as the layer was made for."""
    x = check_operand(name, operand)
    axis = check_axis(name, -1, x)
    if x.shape[axis] != size:
        raise ValueError(
            f"{name}: the last axis must be {size_name}={size} long, got an operand of shape {x.shape}. Make the layer "
            f"with {size_name}={x.shape[axis]}, or move the axis to the end with jax.numpy.moveaxis."
        )
    return x


def check_period(name: str, argument: str, value: Any) -> int:
    """A number of samples to average over."""
    period = static_int(name, argument, value)
    if period < 1:
        raise ValueError(f"{name}: {argument} must be at least 1, got {period}. Pass 1 to keep the last batch alone.")
    return period


def check_buckets(name: str, n: int, k: int, num_buckets: Any, bucket_k: Any) -> tuple[int, int]:
    """A bucket plan that holds k elements of a row of n."""
    b, j = static_int(name, "num_buckets", num_buckets), static_int(name, "bucket_k", bucket_k)
    if not 1 <= b <= n:
        rule = f"num_buckets must be between 1 and n={n}, as no bucket may be empty, got {b}"
    elif not 1 <= j <= n // b:
        rule = f"bucket_k must be between 1 and n // num_buckets={n // b}, the size of the smallest bucket, got {j}"
    elif b * j < k:
        rule = f"num_buckets * bucket_k must be at least k={k}, got {b} * {j} = {b * j}"
    else:
        return b, j
    nearest_b, nearest_j = _nearest_buckets(n, k, b, j)
    raise ValueError(
        f"{name}: {rule}. The nearest valid plan is num_buckets={nearest_b}, bucket_k={nearest_j}; "
        "plan_buckets finds one for a recall."
    )


def _nearest_buckets(n: int, k: int, num_buckets: int, bucket_k: int) -> tuple[int, int]:
    """The valid plan that keeps about as many elements, by changing as few of the two as will do."""
    b, j = min(max(num_buckets, 1), n), min(max(bucket_k, 1), n)
    plans = [
        (b, min(max(j, -(-k // b)), n // b)),
        (min(max(b, -(-k // j)), n // j), j),
        (min(max(b, k), n), 1),
    ]
    return min((plan for plan in plans if plan[0] * plan[1] >= k), key=lambda plan: abs(plan[0] * plan[1] - b * j))


def check_recall(name: str, recall_target: Any) -> float:
    """A share to be found of the top k."""
    rule = f"{name}: recall_target must be a number above 0 and at most 1, got"
    if not isinstance(recall_target, int | float | np.integer | np.floating) or isinstance(recall_target, bool):
        raise TypeError(f"{rule} {_describe(recall_target)}. Pass a Python float: it is a constant of the program.")
    if not 0 < recall_target <= 1:
        raise ValueError(f"{rule} {recall_target}. It is a share: 0.95 is 95 %, and 1.0 exact.")
    return float(recall_target)


def check_number(name: str, argument: str, value: Any, *, below: float = math.inf) -> float:
    """A constant of the program that is at least 0."""
    rule = f"{name}: {argument} must be a number of at least 0 and below {below}, got"
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise TypeError(f"{rule} {_describe(value)}. Pass a Python float: it is a constant of the program.")
    if not 0 <= value < below:
        raise ValueError(f"{rule} {value}.")
    return float(value)


def check_flag(name: str, flag: str, value: Any) -> bool:
    """`value` as a Python bool."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(
            f"{name}: {flag} must be a Python bool, got {_describe(value)}. Inside jit, mark it with static_argnames."
        )
    return bool(value)


def check_implementation(name: str, implementation: Any) -> None:
    """Checks nothing but the name: whether there is native code is known when the program is lowered for a platform."""
    rule = f'{name}: implementation must be None, "native" or "xla", got'
    if not isinstance(implementation, str | None):
        raise TypeError(f"{rule} {_describe(implementation)}. Pass one of these, as a str.")
    if implementation not in (None, "native", "xla"):
        raise ValueError(f"{rule} {implementation!r}.")


def static_int(name: str, argument: str, value: Any) -> int:
    rule = f"{name}: {argument} must be a static Python int"
    if jax.export.is_symbolic_dim(value):
        raise TypeError(
            f"{rule}, got the symbolic size {value}: {argument} is a constant of the program. Pass a number, and "
            "export a program for each that is needed."
        )
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{rule}, got the bool {value}. Write int({value}) if you mean {int(value)}.")
    try:
        return operator.index(value)
    except TypeError as error:
        if is_traced(value):
            raise TypeError(
                f"{rule}, got a traced value: the program depends on it. Use static_argnums or static_argnames to mark "
                "it as static in jit, or close over it."
            ) from error
        fix = "Pass one int." if isinstance(value, tuple | list | None) else "Convert it with int()."
        raise TypeError(f"{rule}, got {_describe(value)}. {fix}") from error


def _describe(value: Any) -> str:
    return "a traced value" if is_traced(value) else f"{value!r} of type {type(value).__name__}"
