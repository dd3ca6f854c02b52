"""What a right custom call must return, in numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import search_spec
import sparse_oracle
from hostile_rules import INT32, NEIGHBORS, PRODUCTS, SELECTIONS, CustomCall


def answer(call: CustomCall) -> list[np.ndarray | None]:
    """The results of a right call; None: anything, as long as it is inside."""
    arrays = [operand.data for operand in call.args]
    if call.operation in SELECTIONS:
        return _selected(call, arrays[0])
    if call.operation in PRODUCTS:
        return _summed(call, arrays)
    return [_over_edges(call, dict(zip(NEIGHBORS[call.operation], arrays, strict=False)))]


def _selected(call: CustomCall, operand: np.ndarray) -> list[np.ndarray | None]:
    a = {name: int(value) for name, value in call.attributes.items()}
    k, n = a["k"], operand.shape[-1]
    x = operand.reshape(math.prod(operand.shape[:-1]), n)
    order = {"largest": bool(a.get("largest", 1)), "by_magnitude": bool(a.get("by_magnitude", 0))}
    if x.size == 0 or k == 0:
        dtypes = {"values": x.dtype, "indices": INT32, "mask": bool, "dense": x.dtype}
        return [np.zeros(ret.shape, dtypes[ret.name]) if ret.name in dtypes else None for ret in call.rets]
    if call.operation == "bucketed":
        results = oracle.bucketed(
            x, k, a["num_buckets"], a["bucket_k"], largest=order["largest"], sorted=bool(a["sorted"])
        )
    else:
        mask = search_spec.mask(x, k, a.get("max_iter"), **order)
        if call.operation.startswith("mask"):
            results = [mask]
        elif call.operation.startswith("sparsify"):
            results = [np.where(mask, x, np.zeros((), x.dtype))]
        else:
            results = oracle.listed(x, mask, sorted=bool(a["sorted"]), **order)
    made = [result.reshape(ret.shape) for result, ret in zip(results, call.rets, strict=False)]
    return made + [None] * (len(call.rets) - len(made))  # of a workspace


def _summed(call: CustomCall, arrays: list[np.ndarray]) -> list[np.ndarray | None]:
    first, second, indices, *groups = arrays
    if call.operation == "gather_sum":
        return [sparse_oracle.gather_sum(first, indices, second)]
    if call.operation == "sampled_dot":
        return [sparse_oracle.sampled_dot(first, indices, second)]
    n = call.rets[0].shape[0]
    if groups:  # which are right only as long as what they were made of is
        right = sparse_oracle.in_order(indices, n)
        if not all(np.array_equal(got, want) for got, want in zip(groups, right, strict=True)):
            return [None]
    return [sparse_oracle.scatter_add(first, indices, second, n)]


def _over_edges(call: CustomCall, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """By the definition, over the edges that the arrays name, whatever graph they are of."""
    made = call.rets[0]
    weights, values, dense = (arrays.get(name) for name in ("weights", "values", "dense"))
    indices, edges = arrays["indices"], len(arrays["neighbors"])
    wide = np.float64 if made.dtype.itemsize == 8 else np.float32
    total = np.zeros(made.shape, wide)

    def one(array: np.ndarray, *at: int) -> Any:
        return wide(array[at])

    def edges_of(pointers: np.ndarray, node: int) -> range:
        begin = min(max(int(pointers[node]), 0), edges)
        return range(begin, min(max(int(pointers[node + 1]), begin), edges))

    targets, sources = len(arrays["indptr"]) - 1, len(arrays["out_indptr"]) - 1
    n = (made if dense is None else dense).shape[1]
    if call.operation == "edge_dot" and (np.diff(arrays["indptr"].astype(np.int64)) < 0).any():
        return None  # which target an edge has is not defined
    by_source = call.operation == "neighbor_dot"
    for node in range(sources if by_source else targets):
        for place in edges_of(arrays["out_indptr" if by_source else "indptr"], node):
            edge = int(arrays["out_edges"][place]) if by_source else place
            source = node if by_source else int(arrays["neighbors"][place])
            target = int(arrays["out_neighbors"][place]) if by_source else node
            if not (0 <= edge < edges and 0 <= source < sources and 0 <= target < targets):
                continue
            for t, index in enumerate(map(int, indices[source])):
                if not 0 <= index < n:
                    continue
                if call.operation == "neighbor_sum":
                    total[target, index] += one(weights, edge) * one(values, source, t)
                elif by_source:
                    total[source, t] += one(weights, edge) * one(dense, target, index)
                else:
                    total[edge] += one(values, source, t) * one(dense, target, index)
    return total.astype(made.dtype)
