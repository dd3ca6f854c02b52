"""The sparse primitives, and beside them their derivatives, batching and lowerings.

Each family belongs to one sum of products of three *factors*, at places that integer arrays, the *structure*, say:

    products of sparse and dense matrices:  sum over r, t of  values[r, t] * <rows[r], weight[indices[r, t]]>
    sums over neighbors:  sum over edges e from j to i, and t, of  weights[e] * values[j, t] * dense[i, indices[j, t]]

A primitive is the derivative by one factor, and so linear in each of the two others, which are its first operands.
That makes a family complete: what the derivatives and the transposes of its primitives need are its primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from jax_rtopk import _native, _sparse_partition, _sparse_xla
from jax_rtopk._checks import MAX_LENGTH
from jax_rtopk._compat import vary_alike


@dataclass(frozen=True)
class Operation:
    """A primitive of a family: `family[made]` is the operation itself."""

    name: str  # one of _native.OPERATIONS
    definition: Callable[..., jax.Array]  # in pure JAX
    abstract: Callable[..., Any]  # the result's aval, from those of the operands
    made: int  # which of the three factors it makes; its operands are the two others, in order, and the structure

    def given(self) -> list[int]:
        """The factors that are its operands."""
        return [factor for factor in range(3) if factor != self.made]


def _family(operations: Sequence[Operation], batch: Callable[..., Any], lower: Callable[..., Any]) -> list[Primitive]:
    primitives = [Primitive(_native.PREFIX + operation.name) for operation in operations]
    for primitive, operation in zip(primitives, operations, strict=True):
        primitive.def_impl(partial(xla.apply_primitive, primitive))
        primitive.def_abstract_eval(partial(_abstract_eval, operation))
        batching.primitive_batchers[primitive] = partial(batch, primitive, operation)
        ad.primitive_jvps[primitive] = partial(_jvp, primitive)
        ad.primitive_transposes[primitive] = partial(_transpose, primitives, operation)
        for platform in ("cpu", "cuda", None):  # None: every other
            mlir.register_lowering(primitive, partial(_lower, operation, lower, platform), platform=platform)
    return primitives


def _abstract_eval(operation: Operation, *operands: Any, n: Any, **_: Any) -> Any:
    return operation.abstract(*operands, n)


def _jvp(primitive: Primitive, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    first, second, *structure = primals
    result = primitive.bind(*primals, **params)
    parts = []
    if not isinstance(tangents[0], ad.Zero):
        parts.append(primitive.bind(_strongly_typed(tangents[0]), second, *structure, **params))
    if not isinstance(tangents[1], ad.Zero):
        parts.append(primitive.bind(first, _strongly_typed(tangents[1]), *structure, **params))
    if not parts:
        return result, ad.Zero(jax.typeof(result).to_tangent_aval())
    return result, sum(parts[1:], start=parts[0])


# No result is weakly typed, so no tangent may be.
def _strongly_typed(tangent: Any) -> Any:
    return lax.convert_element_type(tangent, tangent.dtype)


def _transpose(
    primitives: Sequence[Primitive], operation: Operation, cotangent: Any, *operands: Any, **params: Any
) -> list[Any]:
    """The cotangent is of the factor that the operation makes, and takes its place among the others."""
    cotangents: list[Any] = [None] * len(operands)
    linear = 0 if ad.is_undefined_primal(operands[0]) else 1
    if isinstance(cotangent, ad.Zero):
        cotangents[linear] = ad.Zero(operands[linear].aval)
        return cotangents
    factors: dict[int, Any] = dict(zip(operation.given(), operands[:2], strict=True))
    factors[operation.made] = cotangent
    wanted = operation.given()[linear]
    given = [factors[factor] for factor in range(3) if factor != wanted]
    cotangents[linear] = primitives[wanted].bind(*given, *operands[2:], **params)
    return cotangents


def _lower(
    operation: Operation,
    native: Callable[..., Any],
    platform: str | None,
    ctx: mlir.LoweringRuleContext,
    *operands: Any,
    n: Any,
    implementation: str | None,
    **_: Any,
) -> Any:
    avals: Any = [*ctx.avals_in, *ctx.avals_out]
    empty = any(0 in aval.shape for aval in avals)
    backend = _native.choose(operation.name, platform, implementation, needed=not empty)
    if empty:
        return mlir.lower_fun(partial(_zeros, ctx.avals_out[0]), multiple_results=False)(ctx, *operands)
    if backend is None:
        return mlir.lower_fun(partial(operation.definition, n=n), multiple_results=False)(ctx, *operands)
    return native(operation, backend, ctx, *operands, n=n)


def _zeros(aval: Any, *_: Any) -> jax.Array:
    """A sum of nothing."""
    return jnp.zeros(aval.shape, aval.dtype)


def _in_front(operands: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """The operands with their batch axes in front, where they have one."""
    return [
        operand if dim is None else jnp.moveaxis(operand, dim, 0) for operand, dim in zip(operands, dims, strict=True)
    ]


def _batch_by_loop(
    primitive: Primitive, _: Operation, operands: Sequence[Any], dims: Sequence[int | None], **params: Any
) -> tuple[Any, int]:
    """One call after the other: each uses all threads."""
    fronts = _in_front(operands, dims)
    batched = [i for i, dim in enumerate(dims) if dim is not None]

    def one(parts: Sequence[Any]) -> Any:
        chosen = dict(zip(batched, parts, strict=True))
        return primitive.bind(*(chosen.get(i, operand) for i, operand in enumerate(operands)), **params)

    return lax.map(one, [fronts[i] for i in batched]), 0


# Products of sparse and dense matrices. The factors are values[..., k], rows[..., d] and weight[n, d], the structure is
# indices[..., k].

_VALUES, _ROWS, _WEIGHT = range(3)


def _values_of(_rows: Any, weight: Any, indices: Any, _n: Any) -> Any:
    return indices.update(dtype=weight.dtype, weak_type=False)


def _rows_of(values: Any, weight: Any, _indices: Any, _n: Any) -> Any:
    return values.update(shape=(*values.shape[:-1], weight.shape[-1]), weak_type=False)


def _weight_of(_values: Any, rows: Any, _indices: Any, n: Any) -> Any:
    unsharded = jax.sharding.NamedSharding(rows.sharding.mesh, jax.sharding.PartitionSpec(None, None))
    return rows.update(shape=(n, rows.shape[-1]), weak_type=False, sharding=unsharded)


def _batch_by_rows(
    primitive: Primitive, operation: Operation, operands: Sequence[Any], dims: Sequence[int | None], **params: Any
) -> tuple[Any, int]:
    """A batch of rows is more rows; each weight of a batch gets rows of its own in a larger one."""
    size = next(operand.shape[dim] for operand, dim in zip(operands, dims, strict=True) if dim is not None)
    weight = operation.given().index(_WEIGHT) if operation.made != _WEIGHT else None
    n = params["n"]
    separate = weight is None or dims[weight] is not None
    if separate and (jax.export.is_symbolic_dim(size * n) or size * n > MAX_LENGTH):
        return _batch_by_loop(primitive, operation, operands, dims, **params)
    fronts = _in_front(operands, dims)
    for i, dim in enumerate(dims):
        if i == weight:
            if separate:
                fronts[i] = fronts[i].reshape(size * n, fronts[i].shape[-1])
        elif dim is None:
            fronts[i] = jnp.broadcast_to(fronts[i], (size, *fronts[i].shape))
    if not separate:
        return primitive.bind(*fronts, **params), 0
    indices = fronts[2]
    first = n * lax.broadcasted_iota(np.int32, (size,) + (1,) * (indices.ndim - 1), 0)
    fronts[2] = jnp.where((indices >= 0) & (indices < n), indices + first, -1)  # none may get into another's rows
    result = primitive.bind(*fronts, **{**params, "n": size * n})
    return (result.reshape(size, n, result.shape[-1]) if weight is None else result), 0


_SAMPLED_DOT = Operation("sampled_dot", _sparse_xla.sampled_dot, _values_of, _VALUES)
_GATHER_SUM = Operation("gather_sum", _sparse_xla.gather_sum, _rows_of, _ROWS)
sampled_dot_p, gather_sum_p, scatter_add_p = _family(
    (_SAMPLED_DOT, _GATHER_SUM, Operation("scatter_add", _sparse_xla.scatter_add, _weight_of, _WEIGHT)),
    _batch_by_rows,
    _sparse_partition.lower,
)


def sum_of_rows(values: jax.Array, weight: jax.Array, indices: jax.Array, *, implementation: str | None) -> jax.Array:
    """`[..., d]`, what `sparse_dense_matmul` returns."""
    return _product("sparse_dense_matmul", gather_sum_p, _GATHER_SUM, values, weight, indices, implementation)


def products_with_rows(
    rows: jax.Array, weight: jax.Array, indices: jax.Array, *, implementation: str | None
) -> jax.Array:
    """`[..., k]`, what `sampled_dense_matmul` returns."""
    return _product("sampled_dense_matmul", sampled_dot_p, _SAMPLED_DOT, rows, weight, indices, implementation)


def _product(
    name: str,
    primitive: Primitive,
    operation: Operation,
    first: jax.Array,
    weight: jax.Array,
    indices: jax.Array,
    implementation: str | None,
) -> jax.Array:
    def bind(*operands: jax.Array) -> jax.Array:
        result: jax.Array = primitive.bind(
            *vary_alike(*operands),
            n=weight.shape[0],
            implementation=_sparse_partition.check_mesh(name, implementation),
            devices=_sparse_partition.needs_devices(),
        )
        return result

    layout = _sparse_partition.Layout.of(operation, indices.ndim - 1)
    return _sparse_partition.call(bind, layout, first, weight, indices)


# Sums over neighbors. The factors are weights[edges], values[sources, k] and dense[targets, n], the structure is
# indices[sources, k] and the graph's integer arrays.


def _edge_weights_of(values: Any, _dense: Any, _indices: Any, _indptr: Any, neighbors: Any, *_: Any) -> Any:
    return neighbors.update(dtype=values.dtype, weak_type=False)


def _sparse_rows_of(weights: Any, _dense: Any, indices: Any, *_: Any) -> Any:
    return indices.update(dtype=weights.dtype, weak_type=False)


def _dense_rows_of(_weights: Any, values: Any, _indices: Any, indptr: Any, *rest: Any) -> Any:
    return values.update(shape=(indptr.shape[0] - 1, rest[-1]), weak_type=False)


def _lower_whole(
    operation: Operation, backend: _native.Backend, ctx: mlir.LoweringRuleContext, *operands: Any, n: Any
) -> Any:
    """Not partitioned: a graph's edges lead anywhere."""
    del n  # the shapes say it
    return jax.ffi.ffi_lowering(backend.target(operation.name))(ctx, *operands)


edge_dot_p, neighbor_dot_p, neighbor_sum_p = _family(
    (
        Operation("edge_dot", _sparse_xla.edge_dot, _edge_weights_of, 0),
        Operation("neighbor_dot", _sparse_xla.neighbor_dot, _sparse_rows_of, 1),
        Operation("neighbor_sum", _sparse_xla.neighbor_sum, _dense_rows_of, 2),
    ),
    _batch_by_loop,
    _lower_whole,
)


def sum_of_neighbors(*operands: jax.Array, n: int, implementation: str | None) -> jax.Array:
    """`[targets, n]`, what `neighbor_sum` returns, of weights, values, indices and the graph's integer arrays."""
    result: jax.Array = neighbor_sum_p.bind(*vary_alike(*operands), n=n, implementation=implementation)
    return result
