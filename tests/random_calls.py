"""Calls drawn at random, with what they must return: for the campaign, which makes very many of them.

The rows of one operand differ in kind as well as in content, so that one compiled program serves for many cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import search_spec
import sparse_oracle

from jax_rtopk import (
    CSRGraph,
    approx_topk,
    neighbor_sum,
    sampled_dense_matmul,
    sparse_dense_matmul,
    topk,
    topk_mask,
    topk_sparsify,
)
from jax_rtopk._plan import plan_approx


@dataclass(frozen=True)
class Call:
    """A call, on numpy arrays."""

    description: str
    cases: int  # rows, each with a content of its own
    dtype: np.dtype
    function: Callable[..., Any]  # of the operands, to be compiled
    operands: tuple[np.ndarray, ...]
    want: Callable[[], Any]  # what the function must return, bit for bit
    sums: bool = False  # but for which NaN it is


@dataclass(frozen=True)
class Limits:
    """What a back end does in reasonable time."""

    native: bool  # whether it stops early and adds up in the order of tests/sparse_oracle.py
    rows: int
    elements: int  # of an operand
    lengths: tuple[tuple[int, float], ...]  # rows are at most so long, with this probability


# ---- rows ----------------------------------------------------------------------------------------------------------


def _filled(rng: np.random.Generator, dtype: np.dtype, n: int) -> np.ndarray:
    """All of one special value, as -inf, but for a few."""
    row = np.full(n, rng.choice(oracle.special_values(dtype)), dtype)
    few = rng.integers(0, n, rng.integers(0, 4))
    row[few] = oracle.operand(rng, dtype, few.shape, "special")
    return row


def _bracketed(rng: np.random.Generator, dtype: np.dtype, n: int) -> np.ndarray:
    """Neighbouring bit patterns, often across the ends of what they are a part of."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    middle = oracle.bits(oracle.operand(rng, dtype, (1,), "special"))
    around = rng.integers(-3, 4, n).astype(np.int64).astype(unsigned)
    return (middle + around).view(dtype) if dtype.kind != "b" else _ties(rng, dtype, n)


def _ties(rng: np.random.Generator, dtype: np.dtype, n: int) -> np.ndarray:
    return rng.choice(oracle.operand(rng, dtype, (rng.integers(1, 6),), "bits"), n)


def _numbers(rng: np.random.Generator, dtype: np.dtype, n: int) -> np.ndarray:
    """Normally distributed, of any scale."""
    scale = 10.0 ** rng.integers(-2, 3)
    with np.errstate(all="ignore"):
        return (rng.standard_normal(n) * scale).astype(np.int64 if dtype.kind in "iub" else dtype).astype(dtype)


def _ordered(rng: np.random.Generator, dtype: np.dtype, n: int) -> np.ndarray:
    row = oracle.operand(rng, dtype, (n,), "bits")
    row = row[np.argsort(oracle.keys(row), kind="stable")]
    return row if rng.random() < 0.5 else row[::-1]


ROWS = (
    *(partial(lambda kind, rng, dtype, n: oracle.operand(rng, dtype, (n,), kind), kind) for kind in oracle.KINDS),
    _filled,
    _bracketed,
    _ties,
    _numbers,
    _ordered,
)


def _rows(rng: np.random.Generator, dtype: np.dtype, rows: int, n: int) -> np.ndarray:
    return np.stack([ROWS[i](rng, dtype, n) for i in rng.integers(0, len(ROWS), rows)])


def _shape(rng: np.random.Generator, limits: Limits) -> tuple[int, int]:
    at_most, chances = zip(*limits.lengths, strict=True)
    n = int(rng.integers(1, 1 + rng.choice(at_most, p=chances)))
    most = min(limits.rows, max(1, limits.elements // n))
    return int(rng.integers((most + 1) // 2, most + 1)), n


def _some_k(rng: np.random.Generator, n: int) -> int:
    """Small and large ones alike, with the ends."""
    exponent = rng.uniform(0, np.log2(n + 1))
    k = int(rng.choice([int(2**exponent), n + 1 - int(2**exponent), rng.integers(0, n + 1)]))
    return min(max(k, 0), n)


# ---- selections ----------------------------------------------------------------------------------------------------


def selection(rng: np.random.Generator, limits: Limits, implementation: str | None) -> Call:
    """A call of one of the four selections."""
    dtype = oracle.DTYPES[rng.integers(len(oracle.DTYPES))]
    rows, n = _shape(rng, limits)
    k = _some_k(rng, n)
    function = (topk, topk, topk_mask, topk_sparsify, approx_topk)[rng.integers(5)]
    options: dict[str, Any] = {}
    if function is not topk_sparsify:
        options["largest"] = bool(rng.integers(2))
    if function in (topk, approx_topk):
        options["sorted"] = bool(rng.integers(2))
    if function is topk_sparsify:
        options["by_magnitude"] = bool(rng.integers(2))
    if function is approx_topk:
        options |= _approximation(rng, n, k)
    elif rng.random() < 0.4:
        options["max_iter"] = int(rng.choice([1, 2, 3, 4, 6, 10, 100]))

    x = _rows(rng, dtype, rows, n)
    shape = _batch(rng, rows)
    axis = int(rng.integers(len(shape) + 1))
    operand = np.moveaxis(x.reshape(*shape, n), -1, axis)
    text = ", ".join(f"{name}={value}" for name, value in options.items())
    return Call(
        f"{function.__name__}({dtype}{list(operand.shape)}, {k}, axis={axis}, {text}, implementation={implementation})",
        rows,
        dtype,
        partial(function, k=k, axis=axis, implementation=implementation, **options),
        (np.ascontiguousarray(operand),),
        lambda: _in_place(_selected(function, x, k, limits.native, **options), shape, axis),
    )


def _approximation(rng: np.random.Generator, n: int, k: int) -> dict[str, Any]:
    if k == 0 or rng.random() < 0.3:
        return {"recall_target": float(rng.choice([0.5, 0.8, 0.9, 0.95, 0.99, 1.0]))}
    b = int(rng.choice([rng.integers(1, n + 1), _some_k(rng, n)])) or 1
    j = min(max(-(-k // b), int(rng.integers(1, 7))), n // b)
    return {"num_buckets": b, "bucket_k": j} if b * j >= k else {"num_buckets": n}


def _batch(rng: np.random.Generator, rows: int) -> tuple[int, ...]:
    divisor = int(rng.integers(1, 5))
    return (divisor, rows // divisor) if rows % divisor == 0 and rng.random() < 0.3 else (rows,)


def _selected(function: Callable[..., Any], x: np.ndarray, k: int, native: bool, **options: Any) -> tuple[Any, ...]:
    """Of rows along the last axis."""
    order = {name: options[name] for name in ("largest", "by_magnitude") if name in options}
    max_iter = options.get("max_iter", 0)
    if function is approx_topk and k > 0:
        plan = plan_approx(x.shape[1], k, options["recall_target"]) if "recall_target" in options else None
        max_iter, buckets = (plan.max_iter, plan.buckets) if plan else (0, None)
        b = buckets.num_buckets if buckets else options.get("num_buckets")
        if b is not None:
            j = buckets.bucket_k if buckets else options.get("bucket_k", 1)
            return oracle.bucketed(x, k, b, j, sorted=options["sorted"], **order)
    mask = search_spec.mask(x, k, max_iter if native else 0, **order)
    if function is topk_mask:
        return (mask,)
    if function is topk_sparsify:
        return (np.where(mask, x, np.zeros((), x.dtype)),)
    return oracle.listed(x, mask, sorted=options["sorted"], **order)


def _in_place(results: tuple[np.ndarray, ...], shape: tuple[int, ...], axis: int) -> list[np.ndarray]:
    return [np.moveaxis(result.reshape(*shape, result.shape[-1]), -1, axis) for result in results]


# ---- sparse operations ---------------------------------------------------------------------------------------------


def _floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, limits: Limits) -> np.ndarray:
    """Where sums may be made in any order they are of small integers, exact, and of no zeros, which have signs."""
    return (rng.standard_normal(shape) if limits.native else rng.choice([-2, -1, 1, 2], shape)).astype(dtype)


def _indices(rng: np.random.Generator, shape: tuple[int, ...], n: int) -> np.ndarray:
    return sparse_oracle.some_indices(rng, shape, n, rng.choice([0, 0.2]))


def _size(rng: np.random.Generator, most: int) -> int:
    return int(2 ** rng.uniform(0, np.log2(most + 0.99)))


def products(rng: np.random.Generator, limits: Limits, implementation: str | None) -> Call:
    """The products with a dense matrix, and their derivatives: all three operations."""
    dtype = sparse_oracle.FLOATS[rng.integers(len(sparse_oracle.FLOATS))]
    rows, k, n, d = (_size(rng, most) for most in (limits.rows, 20, 200, 150))
    values, weight = _floats(rng, (rows, k), dtype, limits), _floats(rng, (n, d), dtype, limits)
    cotangent, indices = _floats(rng, (rows, d), dtype, limits), _indices(rng, (rows, k), n)
    if limits.native and rng.random() < 0.3:
        for factor in (values, weight, cotangent):
            few = rng.random(factor.shape) < 0.02
            factor[few] = rng.choice(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0]).astype(dtype), few.sum())

    def function(values: Any, indices: Any, weight: Any, cotangent: Any) -> Any:
        multiply = partial(sparse_dense_matmul, implementation=implementation)
        out, pullback = jax.vjp(lambda v, w: multiply(v, indices, w), values, weight)
        return (
            out,
            *pullback(cotangent),
            sampled_dense_matmul(cotangent, weight, indices, implementation=implementation),
        )

    def want() -> list[np.ndarray]:
        sampled = sparse_oracle.sampled_dot(cotangent, indices, weight)
        scattered = sparse_oracle.scatter_add(values, indices, cotangent, n)
        return [sparse_oracle.gather_sum(values, indices, weight), sampled, scattered, sampled]

    description = f"sparse products of {dtype}: {rows=}, {k=}, {n=}, {d=}, implementation={implementation}"
    return Call(description, rows, dtype, function, (values, indices, weight, cotangent), want, sums=True)


def neighbors(rng: np.random.Generator, limits: Limits, implementation: str | None) -> Call:
    """Sums over neighbours and their derivatives, all three operations; the rows are the sources'."""
    dtype = sparse_oracle.FLOATS[rng.integers(len(sparse_oracle.FLOATS))]
    targets, sources, k, n = (_size(rng, most) for most in (limits.rows, limits.rows, 8, 100))
    edges = _size(rng, 4 * limits.rows)
    froms, tos = _indices(rng, (edges,), sources), _indices(rng, (edges,), targets)
    weights, values = _floats(rng, (edges,), dtype, limits), _floats(rng, (sources, k), dtype, limits)
    cotangent, indices = _floats(rng, (targets, n), dtype, limits), _indices(rng, (sources, k), n)

    def function(values: Any, weights: Any, froms: Any, tos: Any, indices: Any, cotangent: Any) -> Any:
        def aggregate(values: Any, weights: Any) -> Any:
            graph = CSRGraph.from_edges(froms, tos, targets, num_sources=sources, weights=weights)
            return neighbor_sum(graph, values, indices, n, implementation=implementation)

        out, pullback = jax.vjp(aggregate, values, weights)
        return out, *pullback(cotangent)

    def want() -> list[np.ndarray]:
        graph = sparse_oracle.Edges(froms, tos, weights, targets, sources)
        by_values = graph.neighbor_dot(cotangent, indices)
        by_weights = graph.edge_dot(values, cotangent, indices, edges)
        return [graph.neighbor_sum(values, indices, n), by_values, by_weights]

    sizes = f"{targets=}, {sources=}, {edges=}, {k=}, {n=}"
    return Call(
        f"neighbors of {dtype}: {sizes}, implementation={implementation}",
        sources,
        dtype,
        function,
        (values, weights, froms, tos, indices, cotangent),
        want,
        sums=True,
    )


def draw(seed: int, number: int, limits: Limits) -> Call:
    """The call of that number in the campaign of that seed."""
    rng = np.random.default_rng([seed, number])
    make = (products, neighbors)[rng.integers(2)] if rng.random() < 0.15 else selection
    return make(rng, limits, (None, "native" if limits.native else "xla")[rng.integers(2)])


def run(call: Call) -> list[np.ndarray]:
    """What it returns, as arrays of numpy."""
    with oracle.x64_for(call.dtype):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(call.function)(*map(jnp.asarray, call.operands)))]
