"""Integers brought into groups of equal ones, as compressed sparse rows have them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def grouped(keys: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The order that puts equal keys side by side, and `starts[count + 1]`, where those of each in `[0, count)` begin.

    Equal keys keep their order. Keys that are not in `[0, count)` come before all starts or behind the last.
    """
    order = jnp.argsort(keys, stable=True).astype(np.int32)
    starts = jnp.searchsorted(keys[order], jnp.arange(count + 1, dtype=np.int32))
    return order, starts.astype(np.int32)
