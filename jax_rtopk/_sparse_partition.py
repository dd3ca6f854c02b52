"""How the native products of sparse and dense matrices are lowered, so that each device works on the rows it has.

The rows may be sharded, and so may the columns (d) of what is dense; each device needs all k entries of its rows, and
all n rows of the weight. Where a sum goes over what is sharded each device adds up its own part, and these are added
up. XLA's way for batch dimensions, which the selections take, will not do: a weight has none.

On one device, or inside a shard_map over all mesh axes, `custom_partitioning` leaves no trace in the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Self

import jax
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jax_rtopk import _native
from jax_rtopk._grouping import grouped

# Of each operand and result, as Layout names them: the axis behind the batch axes, or both axes of the weight.
_LAST = {"values": "k", "indices": "k", "rows": "d"}


def lower(operation: Any, backend: _native.Backend, ctx: mlir.LoweringRuleContext, *operands: Any, n: Any) -> Any:
    """Lowers a product of sparse and dense matrices to the back end's FFI target."""
    indices: Any = ctx.avals_in[2]
    layout = Layout.of(operation, indices.ndim - 1)
    in_order = operation.name == "scatter_add" and backend.scatters_in_order
    params = {"operation": operation, "target": backend.target(operation.name), "n": n}

    def native(*operands: jax.Array) -> jax.Array:
        groups = grouped(operands[2].ravel(), n) if in_order else ()
        result: jax.Array = _native_p.bind(*operands, *groups, **params)
        return result

    call = custom_partitioning(native)
    call.def_partition(
        partition=partial(_partition, native, layout),
        infer_sharding_from_operands=partial(_infer, layout),
        sharding_rule=layout.rule(),
    )
    return mlir.lower_fun(call, multiple_results=False)(ctx, *operands)


# The custom call itself, on one device.
_native_p = Primitive("jax_rtopk_native")
_native_p.def_abstract_eval(lambda *operands, operation, target, n: operation.abstract(*operands[:3], n))
mlir.register_lowering(
    _native_p, lambda ctx, *operands, operation, target, n: jax.ffi.ffi_lowering(target)(ctx, *operands)
)


@cache
def needs_devices() -> Any:
    """A parameter for the primitives, of which JAX reads that their lowering is to be told the devices.

    It looks for custom_partitioning in a program, and in the programs that are parameters in it.
    """
    identity = custom_partitioning(lambda x: x)
    identity.def_partition(partition=lambda *_: None, sharding_rule="i -> i")
    return jax.make_jaxpr(identity)(jax.ShapeDtypeStruct((1,), np.float32))


class Layout:
    """What the axes of the operands and of the result are."""

    def __init__(self, operands: Sequence[str], result: str, batch_dims: int) -> None:
        self.operands = operands
        self.result = result
        self.batch = [f"b{i}" for i in range(batch_dims)]

    @classmethod
    def of(cls, operation: Any, batch_dims: int) -> Self:
        names = ("values", "rows", "weight")
        operands = [*(names[factor] for factor in operation.given()), "indices"]
        return cls(operands, names[operation.made], batch_dims)

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
                mesh_axes
                for name, shape in zip(self.operands, shapes, strict=True)
                for which, size, mesh_axes in zip(self.axes(name), shape.shape, _mesh_axes(shape), strict=True)
                if which == axis and size % math.prod(shape.sharding.mesh.shape[over] for over in mesh_axes) == 0
            ]
            sharded[axis] = tuple(mesh_axis for mesh_axis in max(found, key=len, default=()) if mesh_axis not in taken)
            taken.update(sharded[axis])
        return sharded

    def spec(self, name: str, sharded: dict[str, tuple[str, ...]]) -> PartitionSpec:
        return PartitionSpec(*(sharded.get(axis) or None for axis in self.axes(name)))

    def summed(self, sharded: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The mesh axes over which the parts of the result are to be added up."""
        kept = self.axes(self.result)
        return tuple(mesh_axis for axis, axes in sharded.items() if axis not in kept for mesh_axis in axes)


def _mesh_axes(shape: Any) -> list[tuple[str, ...]]:
    """Over which mesh axes each axis is sharded."""
    # JAX gives no spec where it knows no mesh, as outside jit: all is then gathered.
    entries = [*getattr(shape.sharding, "spec", ()), *[None] * len(shape.shape)][: len(shape.shape)]
    return [entry if isinstance(entry, tuple) else () if entry is None else (entry,) for entry in entries]


def _infer(layout: Layout, mesh: Any, shapes: Sequence[Any], _: Any) -> NamedSharding:
    return NamedSharding(mesh, layout.spec(layout.result, layout.sharded(shapes)))


def _partition(native: Any, layout: Layout, mesh: Any, shapes: Sequence[Any], _: Any) -> Any:
    sharded = layout.sharded(shapes)
    operands = tuple(NamedSharding(mesh, layout.spec(name, sharded)) for name in layout.operands)
    result = NamedSharding(mesh, layout.spec(layout.result, sharded))
    return mesh, _on_each_device(native, layout.summed(sharded)), result, operands


def _on_each_device(bind: Callable[..., jax.Array], summed: tuple[str, ...]) -> Callable[..., jax.Array]:
    """`bind` of what each device has, and then the sum of these parts over the mesh axes `summed`."""

    def parts(*operands: jax.Array) -> jax.Array:
        result = bind(*operands)
        return lax.psum(result, summed) if summed else result

    return parts


def call(bind: Callable[..., jax.Array], layout: Layout, *operands: jax.Array) -> jax.Array:
    """`bind(*operands)`, on each device for itself where the operands have an explicit sharding."""
    avals: Any = [jax.typeof(operand) for operand in operands]
    if not any(entry for aval in avals for entry in aval.sharding.spec):
        return bind(*operands)
    sharded = layout.sharded(avals)
    specs = tuple(layout.spec(name, sharded) for name in layout.operands)
    parts = (
        operand if aval.sharding.spec == spec else jax.sharding.reshard(operand, spec)
        for operand, aval, spec in zip(operands, avals, specs, strict=True)
    )
    explicit = {axis for aval in avals for axis in aval.sharding.mesh.explicit_axes}
    mapped = jax.shard_map(
        _on_each_device(bind, layout.summed(sharded)),
        in_specs=specs,
        out_specs=layout.spec(layout.result, sharded),
        axis_names=explicit,
    )
    result: jax.Array = mapped(*parts)
    return result


def check_mesh(name: str, implementation: str | None) -> str | None:
    """The implementation to use where the call is traced: in a shard_map over some of the mesh axes, pure JAX."""
    kinds = set(jax.sharding.get_abstract_mesh().axis_types)
    if len(kinds) == 1 or AxisType.Manual not in kinds:
        return implementation
    if implementation == "native":
        raise NotImplementedError(
            f'{name}: implementation="native" must not be called in a jax.shard_map over some of the mesh '
            "axes. Leave axis_names out, or pass implementation=None to use pure JAX there."
        )
    return "xla"
