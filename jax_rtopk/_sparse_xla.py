"""The pure-JAX definitions of the sparse operations: the fallback where there is no native code, and an oracle.

All go through the k entries of the rows one after the other, so that nothing of k times the size of a dense operand is
ever made. 16-bit floats are summed in float32. Entries whose index is outside [0, n), and edges whose node is, take no
part: they add nothing, and what is asked of them is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_rtopk._compat import vary_alike
from jax_rtopk._grouping import how_many_below


def gather_sum(values: jax.Array, weight: jax.Array, indices: jax.Array, *, n: Any) -> jax.Array:
    """`[..., d]`: the rows of `weight[n, d]` at the indices, times their values, summed in order."""

    def add(total: jax.Array, entry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        value, index = entry
        inside = _inside(index, n)[..., None]
        return total + jnp.where(inside, _wide(value)[..., None] * _wide(_take(weight, index, n)), 0), None

    shape = (*indices.shape[:-1], weight.shape[-1])
    total = jnp.zeros(shape, _wide(values).dtype)
    return _scan(add, total, (values, indices), (values, weight)).astype(values.dtype)


def sampled_dot(rows: jax.Array, weight: jax.Array, indices: jax.Array, *, n: Any) -> jax.Array:
    """`[..., k]`: the inner products of `rows[..., d]` with the rows of `weight[n, d]` at the indices."""

    def dot(_: None, entry: tuple[jax.Array]) -> tuple[None, jax.Array]:
        (index,) = entry
        product = (_wide(rows) * _wide(_take(weight, index, n))).sum(-1)
        return None, jnp.where(_inside(index, n), product, 0).astype(rows.dtype)

    return jnp.moveaxis(_scan(dot, None, (indices,), (rows, weight)), 0, -1)


def scatter_add(values: jax.Array, rows: jax.Array, indices: jax.Array, *, n: Any) -> jax.Array:
    """`[n, d]`: each row of `rows[..., d]` times each of its values, added up at their indices."""

    def add(total: jax.Array, entry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        value, index = entry
        return total.at[_dropped(index, n)].add(_wide(value)[..., None] * _wide(rows), mode="drop"), None

    total = jnp.zeros((n, rows.shape[-1]), _wide(rows).dtype)
    return _scan(add, total, (values, indices), (values, rows)).astype(rows.dtype)


def neighbor_sum(
    weights: jax.Array,
    values: jax.Array,
    indices: jax.Array,
    indptr: jax.Array,
    neighbors: jax.Array,
    *_: jax.Array,
    n: Any,
) -> jax.Array:
    """`[nodes, n]`: the sum over a node's edges of their weight times the sparse row of the neighbor."""
    target, source, used = _edges(indptr, neighbors, indices)

    def add(total: jax.Array, entry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        value, index = entry
        product = _wide(weights) * _wide(value[source])
        to = jnp.where(used, _dropped(index[source], n), n)
        return total.at[target, to].add(product, mode="drop"), None

    total = jnp.zeros((indptr.shape[0] - 1, n), _wide(values).dtype)
    return _scan(add, total, (values, indices), (weights, values)).astype(values.dtype)


def neighbor_dot(
    weights: jax.Array,
    dense: jax.Array,
    indices: jax.Array,
    indptr: jax.Array,
    neighbors: jax.Array,
    *_: jax.Array,
    n: Any,
) -> jax.Array:
    """`[nodes, k]`: the sum over the edges from a node of their weight times what `dense` has at its indices."""
    target, source, used = _edges(indptr, neighbors, indices)
    nodes = indices.shape[0]

    def gather(_: None, entry: tuple[jax.Array]) -> tuple[None, jax.Array]:
        (index,) = entry
        at = index[source]
        taken = _wide(weights) * _wide(dense[target, _clipped(at, n)])
        total = jnp.zeros(nodes, taken.dtype).at[source].add(jnp.where(used & _inside(at, n), taken, 0))
        return None, total.astype(dense.dtype)

    return jnp.moveaxis(_scan(gather, None, (indices,), (weights, dense)), 0, -1)


def edge_dot(
    values: jax.Array,
    dense: jax.Array,
    indices: jax.Array,
    indptr: jax.Array,
    neighbors: jax.Array,
    *_: jax.Array,
    n: Any,
) -> jax.Array:
    """`[edges]`: the inner product of each edge's sparse row with the dense row of the node that it leads to."""
    target, source, used = _edges(indptr, neighbors, indices)

    def add(total: jax.Array, entry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        value, index = entry
        at = index[source]
        product = _wide(value[source]) * _wide(dense[target, _clipped(at, n)])
        return total + jnp.where(used & _inside(at, n), product, 0), None

    total = jnp.zeros(neighbors.shape, _wide(values).dtype)
    return _scan(add, total, (values, indices), (values, dense)).astype(values.dtype)


def _scan(
    step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, entries: tuple[jax.Array, ...], like: tuple[jax.Array, ...]
) -> jax.Array:
    """What `lax.scan` over the last axis of the entries carries, or, if it carries nothing, makes."""
    if carry is not None:
        carry = vary_alike(carry, *like, *entries)[0]  # within shard_map a loop must end as it began
    carried, made = lax.scan(step, carry, tuple(jnp.moveaxis(entry, -1, 0) for entry in entries))
    result: jax.Array = made if carry is None else carried
    return result


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def _inside(index: jax.Array, n: Any) -> jax.Array:
    inside: jax.Array = (index >= 0) & (index < n)
    return inside


def _dropped(index: jax.Array, n: Any) -> jax.Array:
    """Indices of which jax.numpy drops those that are outside."""
    return jnp.where(_inside(index, n), index, n)


def _clipped(index: jax.Array, n: Any) -> jax.Array:
    return jnp.clip(index, 0, n - 1)


def _take(weight: jax.Array, index: jax.Array, n: Any) -> jax.Array:
    taken: jax.Array = weight.at[_clipped(index, n)].get(mode="promise_in_bounds")
    return taken


def _edges(indptr: jax.Array, neighbors: jax.Array, indices: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of each edge the node it leads to, the one it comes from, and whether there are both."""
    edge = jnp.arange(neighbors.shape[0], dtype=np.int32)
    target = how_many_below(indptr, edge + 1) - 1
    nodes = indptr.shape[0] - 1
    used = (target >= 0) & (target < nodes) & _inside(neighbors, indices.shape[0])
    return _clipped(target, nodes), _clipped(neighbors, indices.shape[0]), used
