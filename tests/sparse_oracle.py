"""What the sparse operations must return, in numpy: the products and the sums in the order that native code keeps."""

from __future__ import annotations

import ml_dtypes
import numpy as np

FLOATS = [np.dtype(t) for t in (np.float32, ml_dtypes.bfloat16, np.float16, np.float64)]
PARTIAL_SUMS = 32


def wide(x):
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def with_one_nan(x):
    """Which NaN a sum is depends on the order of a processor's operands."""
    return np.where(np.isnan(x), x.dtype.type(np.nan), x)


_INT32 = np.iinfo(np.int32)


def some_indices(rng, shape, n, outside=0.2):
    """Some twice in a row; about that share of them outside, next to the others or far off."""
    others = rng.choice(np.array([-1, -n, n, n + 1, _INT32.min, _INT32.max], np.int32), shape)
    return np.where(rng.random(shape) < outside, others, rng.integers(0, max(n, 1), shape)).astype(np.int32)


def inside(indices, n):
    return (indices >= 0) & (indices < n)


def gather_sum(values, indices, weight):
    """`[..., d]`: in ascending order of the entries."""
    total = np.zeros((*indices.shape[:-1], weight.shape[-1]), wide(weight).dtype)
    for t in range(indices.shape[-1]):
        used = inside(indices[..., t], len(weight))
        total[used] += wide(values)[used, t][:, None] * wide(weight)[indices[..., t][used]]
    return total.astype(values.dtype)


def sampled_dot(rows, indices, weight):
    """`[..., k]`: columns c mod 32 in order, then the partial sums by halves."""
    columns = -(-rows.shape[-1] // PARTIAL_SUMS) * PARTIAL_SUMS
    total = np.zeros(indices.shape, wide(rows).dtype)
    used = inside(indices, len(weight))
    left = np.broadcast_to(wide(rows)[..., None, :], (*indices.shape, rows.shape[-1]))[used]
    products = np.zeros((len(left), columns), total.dtype)
    products[:, : rows.shape[-1]] = left * wide(weight)[indices[used]]
    sums = np.zeros((len(left), PARTIAL_SUMS), total.dtype)
    for block in range(0, columns, PARTIAL_SUMS):
        sums += products[:, block : block + PARTIAL_SUMS]
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    total[used] = sums[:, 0]
    return total.astype(rows.dtype)


def scatter_add(values, indices, rows, n):
    """`[n, d]`: in order of the rows, and of the entries within each."""
    total = np.zeros((n, rows.shape[-1]), wide(rows).dtype)
    used = inside(indices, n)
    products = wide(values)[..., None] * wide(rows)[..., None, :]
    np.add.at(total, indices[used], products[used])
    return total.astype(rows.dtype)


class Edges:
    """The edges of a list that have two nodes, in the order of a CSRGraph's."""

    def __init__(self, sources, targets, weights, num_targets, num_sources):
        order = np.argsort(targets, kind="stable")
        order = order[inside(targets[order], num_targets) & inside(sources[order], num_sources)]
        self.used = order
        self.sources, self.targets, self.weights = sources[order], targets[order], wide(weights)[order]
        self.num_targets = num_targets

    def neighbor_sum(self, values, indices, n):
        total = np.zeros((self.num_targets, n), wide(values).dtype)
        used = inside(indices[self.sources], n)
        targets = np.broadcast_to(self.targets[:, None], used.shape)
        products = self.weights[:, None] * wide(values)[self.sources]
        np.add.at(total, (targets[used], indices[self.sources][used]), products[used])
        return total.astype(values.dtype)

    def neighbor_dot(self, dense, indices):
        total = np.zeros(indices.shape, wide(dense).dtype)
        np.add.at(total, self.sources, self.weights[:, None] * self._taken(dense, indices))
        return total.astype(dense.dtype)

    def edge_dot(self, values, dense, indices, edges):
        """In the order of the edge list."""
        products = wide(values)[self.sources] * self._taken(dense, indices)
        total = np.zeros(edges, products.dtype)
        for t in range(indices.shape[1]):
            total[self.used] += products[:, t]
        return total.astype(dense.dtype)

    def _taken(self, dense, indices):
        """`[edges, k]`: what the dense rows of the edges' targets have at the indices of their sources, or zero."""
        at = indices[self.sources]
        used = inside(at, dense.shape[1])
        return np.where(used, wide(dense)[self.targets[:, None], np.where(used, at, 0)], 0)


def in_order(indices, n):
    """The entries in the order of their indices, those outside last, and where those of each index begin."""
    flat = indices.ravel()
    return _grouped(np.where(inside(flat, n), flat, n), n)


def graph_arrays(sources, targets, num_targets, num_sources):
    """The integer arrays of a CSRGraph, and the order of its edges."""
    order, indptr = _grouped(targets, num_targets)
    out_edges, out_indptr = _grouped(sources[order], num_sources)
    arrays = {"indptr": indptr, "neighbors": sources[order], "out_indptr": out_indptr}
    return {**arrays, "out_neighbors": targets[order][out_edges], "out_edges": out_edges}, order


def _grouped(keys, count):
    order = np.argsort(keys, kind="stable")
    return order.astype(np.int32), np.searchsorted(keys[order], np.arange(count + 1)).astype(np.int32)
