"""How the native products of sparse and dense matrices are lowered, so that each device works on the rows it has.

The rows may be sharded, and so may the columns (d) of what is dense; each device needs all k entries of its rows, and
all n rows of the weight. Where a sum goes over what is sharded each device adds up its own part, and these are added
up. XLA's way for batch dimensions, which the selections take, will not do: a weight has none.

On one device, or inside a shard_map over all mesh axes, `custom_partitioning` leaves no trace in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

# Of each operand and result, as _Layout names them: the axis behind the batch axes, or both axes of the weight.
_LAST = {"values": "k", "indices": "k", "rows": "d"}


def lower(operation: Any, target: str, ctx: mlir.LoweringRuleContext, *operands: Any, n: Any) -> Any:
    """Lowers a product of sparse and dense matrices to the FFI target."""
    aval: Any = ctx.avals_in[2]
    names = ("values", "rows", "weight")
    layout = _Layout(
        [*(names[factor] for factor in operation.given()), "indices"], names[operation.made], aval.ndim - 1
    )
    call = custom_partitioning(partial(_native_p.bind, operation=operation, target=target, n=n))
    call.def_partition(
        partition=partial(_partition, call.fun, layout),
        infer_sharding_from_operands=partial(_infer, layout),
        sharding_rule=layout.rule(),
    )
    return mlir.lower_fun(call, multiple_results=False)(ctx, *operands)


# The custom call itself, on one device.
_native_p = Primitive("jax_rtopk_native")
_native_p.def_abstract_eval(lambda *operands, operation, target, n: operation.abstract(*operands, n))
mlir.register_lowering(
    _native_p, lambda ctx, *operands, operation, target, n: jax.ffi.ffi_lowering(target)(ctx, *operands)
)


class _Layout:
    """What the axes of the operands and of the result are."""

    def __init__(self, operands: Sequence[str], result: str, batch_dims: int) -> None:
        self.operands = operands
        self.result = result
        self.batch = [f"b{i}" for i in range(batch_dims)]

    def axes(self, name: str) -> list[str]:
        return ["n", "d"] if name == "weight" else [*self.batch, _LAST[name]]

    def rule(self) -> str:
        """Shardy's."""
        operands = ", ".join(" ".join(self.axes(name)) for name in self.operands)
        return f"{operands} -> {' '.join(self.axes(self.result))}"

    def sharded(self, shapes: Sequence[Any]) -> dict[str, tuple[str, ...]]:
        """The mesh axes over which each axis is to be sharded, from how the operands come."""
        sharded: dict[str, tuple[str, ...]] = {}
        taken: set[str] = set()
        for axis in [*self.batch, "d"]:  # the rows first, of which there may be most
            found = [
                entry if isinstance(entry, tuple) else (entry,)
                for name, shape in zip(self.operands, shapes, strict=True)
                for which, entry in zip(self.axes(name), shape.sharding.spec, strict=False)
                if which == axis and entry is not None
            ]
            sharded[axis] = tuple(mesh_axis for mesh_axis in max(found, key=len, default=()) if mesh_axis not in taken)
            taken.update(sharded[axis])
        return sharded

    def sharding(self, mesh: Any, name: str, sharded: dict[str, tuple[str, ...]]) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*(sharded.get(axis) or None for axis in self.axes(name))))

    def summed(self, sharded: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The mesh axes over which the parts of the result are to be added up."""
        kept = self.axes(self.result)
        return tuple(mesh_axis for axis, axes in sharded.items() if axis not in kept for mesh_axis in axes)


def _infer(layout: _Layout, mesh: Any, shapes: Sequence[Any], _: Any) -> NamedSharding:
    return layout.sharding(mesh, layout.result, layout.sharded(shapes))


def _partition(call: Any, layout: _Layout, mesh: Any, shapes: Sequence[Any], _: Any) -> Any:
    sharded = layout.sharded(shapes)
    summed = layout.summed(sharded)

    def on_each_device(*operands: jax.Array) -> jax.Array:
        part: jax.Array = call(*operands)
        return lax.psum(part, summed) if summed else part

    operands = tuple(layout.sharding(mesh, name, sharded) for name in layout.operands)
    return mesh, on_each_device, layout.sharding(mesh, layout.result, sharded), operands
