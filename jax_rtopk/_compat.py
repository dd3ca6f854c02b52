"""What differs, or may come to differ, between JAX releases; supported are 0.7.1 to 0.12."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax


def all_gather_invariant(x: jax.Array, axis_name: str, *, axis: int) -> jax.Array:
    """`lax.all_gather`, whose result `check_vma` knows to be the same on every device of the mesh axis."""
    if hasattr(lax, "all_gather_invariant"):  # up to jax 0.7
        gathered: jax.Array = lax.all_gather_invariant(x, axis_name, axis=axis)
    else:
        gathered = lax.all_gather(x, axis_name, axis=axis, to="invarying")
    return gathered


def is_traced(value: Any) -> bool:
    """Whether a transformation such as jit stands for the value."""
    return isinstance(value, jax.core.Tracer)
