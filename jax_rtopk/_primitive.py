"""The primitives, and beside them their abstract eval, batching, jvp and lowerings.

All select along the last axis; every leading axis is a batch axis. Parameters: the attributes that docs/architecture.md
gives the FFI target of the same name, and `implementation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from jax_rtopk import _native, _xla


@dataclass(frozen=True)
class _Operation:
    name: str  # one of _native.OPERATIONS
    definition: Callable[..., Any]  # in pure JAX
    results: tuple[type | None, ...]  # their dtypes; None: the operand's
    dense: bool  # whether the results are as long as the row, rather than k long


def _primitive(operation: _Operation) -> Primitive:
    primitive = Primitive(_native.PREFIX + operation.name)
    primitive.multiple_results = True
    primitive.def_impl(partial(xla.apply_primitive, primitive))
    primitive.def_abstract_eval(partial(_abstract_eval, operation))
    batching.primitive_batchers[primitive] = partial(_batch, primitive)
    for platform in ("cpu", "cuda", None):  # None: every other
        mlir.register_lowering(primitive, partial(_lower, operation, platform), platform=platform)
    return primitive


def _abstract_eval(operation: _Operation, operand: Any, *, k: int, **_: Any) -> list[Any]:
    shape = operand.shape if operation.dense else (*operand.shape[:-1], k)
    # `update` keeps the explicit sharding, and the mesh axes over which the operand varies inside shard_map.
    return [operand.update(shape=shape, dtype=np.dtype(t or operand.dtype), weak_type=False) for t in operation.results]


def _batch(primitive: Primitive, args: Sequence[Any], dims: Sequence[int], **params: Any) -> tuple[Any, list[int]]:
    (operand,), (dim,) = args, dims
    if dim == operand.ndim - 1:  # anywhere else it is a batch axis already
        operand, dim = jnp.moveaxis(operand, dim, 0), 0
    results = primitive.bind(operand, **params)
    return results, [dim] * len(results)


def _lower(
    operation: _Operation,
    platform: str | None,
    ctx: mlir.LoweringRuleContext,
    operand: Any,
    *,
    implementation: str | None,
    straight_through: bool = False,  # concerns the derivative only
    **attributes: Any,
) -> Any:
    aval: Any = ctx.avals_in[0]
    empty = attributes["k"] == 0 or 0 in aval.shape
    backend = _native.choose(operation.name, platform, implementation, needed=not empty)
    if backend is None:
        attributes.pop("max_iter", None)  # the definitions answer exactly
        definition = partial(operation.definition, float_order=platform == "cpu", **attributes)
        return mlir.lower_fun(definition, multiple_results=len(operation.results) > 1)(ctx, operand)
    name, attributes = _by_length(backend, operation.name, aval, attributes)
    workspace = backend.workspace(name, aval.dtype.itemsize, attributes)
    native = jax.ffi.ffi_lowering(
        backend.target(name),
        extra_attributes=_sharding_attributes(operation, aval.shape, attributes["k"], workspace),
    )
    if workspace is None:
        return native(ctx, operand, **attributes)
    space = aval.update(shape=(*aval.shape[:-1], workspace), dtype=np.dtype(np.uint8), weak_type=False)
    return native(ctx.replace(avals_out=[*ctx.avals_out, space]), operand, **attributes)[:-1]


def _by_length(
    backend: _native.Backend, name: str, aval: Any, attributes: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The call for rows of that length, and its attributes."""
    *batch, n = aval.shape
    # Early stopping must find the same on every back end, and so takes a row as one; buckets are parts already.
    if attributes.get("max_iter") != 0 or not isinstance(n, int):
        return name, attributes
    # Of all devices where a batch is sharded automatically, and of what is symbolic one: only speed hangs on it.
    rows = math.prod(size for size in batch if isinstance(size, int))
    exact = {key: value for key, value in attributes.items() if key != "max_iter"}
    if name == "topk" and (parts := backend.parts(rows, n, attributes["k"], aval.dtype.itemsize)) > 1:
        return "topk_in_parts", {"parts": parts, **exact}
    return (f"{name}_by_digits", exact) if backend.by_digits(rows, n, aval.dtype.itemsize) else (name, attributes)


def _sharding_attributes(
    operation: _Operation, shape: tuple[Any, ...], k: int, workspace: int | None
) -> dict[str, mlir.ir.Attribute]:
    """Tells XLA that the batch axes may stay sharded, in the words of GSPMD and in those of Shardy.

    Without both of them, and the registration as batch partitionable, XLA gathers a batch-sharded operand.
    """
    batch_dims = mlir.ir.StringAttr.get(str(len(shape) - 1))
    attributes: dict[str, mlir.ir.Attribute] = {
        "mhlo.frontend_attributes": mlir.ir.DictAttr.get({"num_batch_dims": batch_dims})
    }
    if not all(isinstance(dim, int) for dim in shape):
        return attributes  # a rule states every size, which a symbolic dimension lacks
    # Shardy's names of the factors are i to z, z_1, z_2, ... in this order.
    sizes = [*shape] if operation.dense else [*shape, k]
    results = [len(sizes) - 1] * len(operation.results)  # which factor is the last of each
    if workspace is not None:
        results.append(len(sizes))
        sizes.append(workspace)
    factors = [chr(ord("i") + i) if i < 18 else f"z_{i - 17}" for i in range(len(sizes))]
    batch = factors[: len(shape) - 1]

    def array(last: int) -> str:
        return f"[{', '.join([*batch, factors[last]])}]"

    named_sizes = ", ".join(f"{factor}={size}" for factor, size in zip(factors, sizes, strict=True))
    attributes["sdy.sharding_rule"] = mlir.ir.Attribute.parse(
        f"#sdy.op_sharding_rule<({array(len(batch))})->({', '.join(map(array, results))}) "
        f"{{{named_sizes}}} need_replication={{{', '.join(factors[len(batch) :])}}}>"
    )
    return attributes


topk_p = _primitive(_Operation("topk", _xla.topk, results=(None, np.int32), dense=False))
mask_p = _primitive(_Operation("mask", _xla.mask, results=(np.bool_,), dense=True))
sparsify_p = _primitive(_Operation("sparsify", _xla.sparsify, results=(None,), dense=True))
bucketed_p = _primitive(_Operation("bucketed", _xla.bucketed, results=(None, np.int32), dense=False))


def _zero_tangent(result: Any) -> ad.Zero:
    return ad.Zero(jax.typeof(result).to_tangent_aval())


# No result is weakly typed, so no tangent may be: the operand's is where the operand is.
def _strongly_typed(tangent: Any) -> Any:
    return lax.convert_element_type(tangent, tangent.dtype)


def _selection_jvp(primitive: Primitive, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (operand,), (tangent,) = primals, tangents
    values, indices = primitive.bind(operand, **params)
    if isinstance(tangent, ad.Zero):
        return (values, indices), (_zero_tangent(values), _zero_tangent(indices))
    return (values, indices), (_xla.take_rows(_strongly_typed(tangent), indices), _zero_tangent(indices))


def _mask_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (mask,) = mask_p.bind(*primals, **params)
    return (mask,), (_zero_tangent(mask),)


def _sparsify_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, straight_through: bool, **params: Any) -> Any:
    (operand,), (tangent,) = primals, tangents
    if straight_through or isinstance(tangent, ad.Zero):
        (dense,) = sparsify_p.bind(operand, straight_through=straight_through, **params)
        return (dense,), (_zero_tangent(dense) if isinstance(tangent, ad.Zero) else _strongly_typed(tangent),)
    # One search serves both results.
    (mask,) = mask_p.bind(operand, largest=True, **params)
    return (keep(mask, operand),), (_keep_tangent(mask, _strongly_typed(tangent)),)


# The derivative has to be said, as there is none of the bits.
@jax.custom_jvp
def keep(mask: Any, operand: Any) -> Any:
    """`_xla.keep` with the tangent of what is kept."""
    return _xla.keep(mask, operand)


@keep.defjvp
def _keep_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    mask, operand = primals
    return keep(mask, operand), _keep_tangent(mask, tangents[1])


def _keep_tangent(mask: Any, tangent: Any) -> Any:
    return jnp.where(mask, tangent, jnp.zeros_like(tangent))


for _p in (topk_p, bucketed_p):
    ad.primitive_jvps[_p] = partial(_selection_jvp, _p)
ad.primitive_jvps[mask_p] = _mask_jvp
ad.primitive_jvps[sparsify_p] = _sparsify_jvp
