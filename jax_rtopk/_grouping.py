"""Integers brought into groups of equal ones, as compressed sparse rows have them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_rtopk._compat import vary_alike


def grouped(keys: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The order that puts equal keys side by side, and `starts[count + 1]`, where those of each in `[0, count)` begin.

    Equal keys keep their order. Keys that are not in `[0, count)` come before all starts or behind the last.
    """
    order = jnp.argsort(keys, stable=True).astype(np.int32)
    return order, how_many_below(keys[order], jnp.arange(count + 1, dtype=np.int32))


def how_many_below(ordered: jax.Array, bounds: jax.Array) -> jax.Array:
    """How many of the int32 in ascending order are less than each bound.

    `jnp.searchsorted`, but the length may be symbolic, as in a program exported for any number of rows.
    """
    length = ordered.shape[0]
    steps = length.bit_length() if isinstance(length, int) else 31
    padded = jnp.append(ordered, np.int32(np.iinfo(np.int32).max))  # which is below no bound

    def step(below: jax.Array, size: jax.Array) -> tuple[jax.Array, None]:
        more = below + size
        return jnp.where(padded.at[more - 1].get(mode="clip") < bounds, more, below), None

    (none,) = vary_alike(jnp.zeros_like(bounds), ordered, bounds)[:1]
    # Computed, where jnp.arange(steps - 1, -1, -1) is a constant up to jax 0.7: custom_partitioning takes none there.
    sizes = 1 << jnp.arange(steps, dtype=np.int32)[::-1]
    below, _ = lax.scan(step, none, sizes)
    return below
