"""What the sparse operations must return, in numpy: the products and the sums in the order that native code keeps."""

from __future__ import annotations

import ml_dtypes
import numpy as np

FLOATS = [np.dtype(t) for t in (np.float32, ml_dtypes.bfloat16, np.float16, np.float64)]
PARTIAL_SUMS = 32


def wide(x):
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


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
        for source, target, weight in zip(self.sources, self.targets, self.weights, strict=True):
            used = inside(indices[source], n)
            np.add.at(total[target], indices[source][used], weight * wide(values)[source][used])
        return total.astype(values.dtype)

    def neighbor_dot(self, dense, indices):
        total = np.zeros(indices.shape, wide(dense).dtype)
        for source, target, weight in zip(self.sources, self.targets, self.weights, strict=True):
            used = inside(indices[source], dense.shape[1])
            total[source, used] += weight * wide(dense)[target, indices[source][used]]
        return total.astype(dense.dtype)

    def edge_dot(self, values, dense, indices, edges):
        """In the order of the edge list."""
        total = np.zeros(edges, wide(dense).dtype)
        for edge, source, target in zip(self.used, self.sources, self.targets, strict=True):
            for t in range(indices.shape[1]):
                index = indices[source, t]
                if inside(index, dense.shape[1]):
                    total[edge] += wide(values)[source, t] * wide(dense)[target, index]
        return total.astype(dense.dtype)
