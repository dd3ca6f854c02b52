"""What differs, or may come to differ, between JAX releases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

OLDEST = (0, 7, 1)  # pyproject.toml demands it
NEWEST = (0, 12)  # the newest minor release that was tested


@contextmanager
def explained() -> Iterator[None]:
    """Says of an error which JAX is supported, if another one is installed: then that is the likely reason.

    No JAX is refused beforehand: most newer ones will do.
    """
    try:
        yield
    except Exception as error:  # a name that is gone, or FFI handlers that XLA refuses
        found = jax.__version_info__
        if found >= OLDEST and found[:2] <= NEWEST:
            raise
        oldest, newest, next_one = (".".join(map(str, v)) for v in (OLDEST, NEWEST, (NEWEST[0], NEWEST[1] + 1)))
        raise ImportError(
            f"jax_rtopk: this release supports jax {oldest} to {newest}, got {jax.__version__}, which will not do. "
            f"Upgrade jax_rtopk, or pip install 'jax>={oldest},<{next_one}'. What failed: {error}"
        ) from error


def all_gather_invariant(x: jax.Array, axis_name: str, *, axis: int) -> jax.Array:
    """`lax.all_gather` of integers, whose result `check_vma` knows to be the same on every device of the mesh axis."""
    if jax.__version_info__ >= (0, 10):
        gathered: jax.Array = lax.all_gather(x, axis_name, axis=axis, to="invarying")
    elif hasattr(lax, "all_gather_invariant"):  # up to jax 0.8.1
        gathered = lax.all_gather_invariant(x, axis_name, axis=axis)
    else:  # it has no public name: the largest of what each device has at its own place, in more bytes
        places = jnp.arange(lax.axis_size(axis_name)).reshape([-1] + [1] * (x.ndim - axis))
        own = places == lax.axis_index(axis_name)
        gathered = lax.pmax(jnp.where(own, jnp.expand_dims(x, axis), 0), axis_name)
    return gathered


def is_traced(value: Any) -> bool:
    """Whether a transformation such as jit stands for the value."""
    return isinstance(value, jax.core.Tracer)


def vary_alike(*arrays: jax.Array) -> list[jax.Array]:
    """The arrays, each varying over every mesh axis of a surrounding shard_map that any of them varies over.

    The operations of JAX see to this themselves; with it, what is the same on every device has a cotangent that is
    summed over the devices.
    """
    varying = [_varying(array) for array in arrays]
    union = frozenset().union(*varying)
    return [_vary(array, tuple(sorted(union - axes))) for array, axes in zip(arrays, varying, strict=True)]


def _varying(array: jax.Array) -> frozenset[str]:
    aval: Any = jax.typeof(array)
    axes: frozenset[str] = aval.vma if hasattr(aval, "vma") else aval.mat.varying  # vma: up to jax 0.10 or 0.11
    return axes


def _vary(array: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    if not axes:
        return array
    if hasattr(lax, "pvary"):  # up to jax 0.10 or 0.11
        varying: jax.Array = lax.pvary(array, axes)
    else:
        varying = lax.pcast(array, axes, to="varying")
    return varying
