"""What the public functions begin and end with: arguments that all of them take, and the selection axis moved."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from jax_rtopk._checks import check_axis, check_implementation, check_k, check_operand

Implementation = Literal["native", "xla"]


def prepare(name: str, operand: Any, k: Any, axis: Any, implementation: Any) -> tuple[jax.Array, int, dict[str, Any]]:
    """Checks what all functions take; returns the operand with the selection axis last, that axis, and parameters."""
    x = check_operand(name, operand)
    position = check_axis(name, axis, x)
    check_implementation(name, implementation)
    params = {"k": check_k(name, k, x, position), "implementation": implementation}
    return move(x, position, x.ndim - 1), position, params


def move(x: jax.Array, source: int, destination: int) -> jax.Array:
    """`jnp.moveaxis`."""
    # Outside jit even a move to the same place is a call of some 10 microseconds.
    return x if source == destination else jnp.moveaxis(x, source, destination)
