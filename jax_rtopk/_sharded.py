"""`sharded_topk`: rows that are split over devices, inside shard_map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from jax_rtopk import _xla
from jax_rtopk._checks import check_axis_name, check_flag, check_k_of_shards, check_operand, check_shard
from jax_rtopk._compat import all_gather_invariant
from jax_rtopk._primitive import topk_p
from jax_rtopk._result import TopK

# Up to so many devices a second round costs more than the bytes that it saves.
_ONE_ROUND = 8


def sharded_topk(
    operand: ArrayLike,
    k: int,
    axis_name: str | tuple[str, ...],
    *,
    largest: bool = True,
    sorted: bool = True,
) -> TopK:
    """The k largest elements of rows that are split over devices, and where they are; for use inside `jax.shard_map`.

    Exact: `topk` of the whole rows, bit for bit, without any device having seen one. Each device selects among its own
    elements, and only what it selected travels. The result is the same on every device of the mesh axes.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from jax.sharding import NamedSharding
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_rtopk import sharded_topk
    >>> mesh = jax.make_mesh((jax.device_count(),), ("vocabulary",))
    >>> @jax.jit
    ... @jax.shard_map(mesh=mesh, in_specs=P(None, "vocabulary"), out_specs=P())
    ... def select(logits):
    ...     return sharded_topk(logits, 2, "vocabulary")
    >>> x = jnp.arange(96.0).reshape(2, 48) % 23
    >>> values, indices = select(jax.device_put(x, NamedSharding(mesh, P(None, "vocabulary"))))
    >>> print(values)
    [[22. 22.]
     [22. 22.]]
    >>> print(indices)
    [[22 45]
     [20 43]]

    What is moved: along a mesh axis of P devices each receives P - 1 times `min(k, shard)` candidates, `shard` being
    the length of its part of the row. Over more than 8 devices there are two rounds where that is less, first among g
    neighbours, g a divisor of P: then it receives g - 1 times `min(k, shard)` candidates and P - 1 times the g-th part
    of k, about 2 sqrt(P) k in all. Over several mesh axes the last comes first, and hands on at most k candidates to
    the one before it. A candidate is a value and its index: 8 bytes for float32. With jax 0.8.2 to 0.9 about twice as
    much is moved.

    Forward and reverse mode to any order, and vmap, work as for `topk`: the cotangent of `values` goes to the selected
    positions, on the devices that hold them. Forward mode adds up k tangents over the devices.

    Arguments:
        operand: this device's part of the rows, an array of shape `(..., shard)` and of a dtype as of `topk`. The
            selection axis is the last, of which the device at position i along `axis_name` has the i-th part.
        k: how many elements to select of each whole row, a static int between 0 and the row's length; it may be more
            than one device has.
        axis_name: the mesh axis over which the rows are split, or a tuple of them, as in the `PartitionSpec` of the
            selection axis: the first varies slowest.
        largest: as of `topk`.
        sorted: as of `topk`.

    Returns:
        `TopK(values, indices)`, both of shape `(..., k)`; values of the operand's dtype, int32 indices into the whole
        row. Both are replicated over `axis_name`, with `check_vma` too.

    Raises:
        TypeError: as `topk`, or if `axis_name` is neither a name nor a tuple of names.
        ValueError: if the operand is complex or a scalar, of symbolic size, the whole row is longer than
            2**31 - 1, its parts are sharded further over explicit mesh axes, `k` is out of range, or `axis_name` has no
            axis, has one twice, or has one that no surrounding shard_map is manual over.
    """
    row = check_operand("sharded_topk", operand)
    names = check_axis_name("sharded_topk", axis_name)
    length = check_shard("sharded_topk", row, names)
    count = check_k_of_shards("sharded_topk", k, row, length)
    select = partial(_select, k=count, largest=check_flag("sharded_topk", "largest", largest))
    in_order = check_flag("sharded_topk", "sorted", sorted)

    # Candidates are always in ascending order of global index, so that the tie rule of a selection among them, the
    # lowest position first, is that of the whole row, the lowest index first. They are so at the start, as an unsorted
    # selection keeps the order of what it selects from; gathering puts side by side, in the order of the devices, parts
    # of the row that follow each other; and then an unsorted selection again. None of the row's k first is lost on the
    # way: it is among the k first of everything that it is in.
    values, indices = select(lax.stop_gradient(row), None, sorted=False)
    indices += lax.axis_index(names) * row.shape[-1]
    for name in reversed(names):
        group = _group(lax.axis_size(name), values.shape[-1], count)
        if group > 1:
            values, indices = select(*_gather_within(name, group, values, indices), sorted=False)
        values, indices = select(*_gather_between(name, group, values, indices), sorted=in_order and name == names[0])
    if jnp.issubdtype(row.dtype, np.floating):
        values = _with_tangent(names, row, values, indices)
    return TopK(values, indices)


def _select(
    values: jax.Array, indices: jax.Array | None, *, k: int, largest: bool, sorted: bool
) -> tuple[jax.Array, jax.Array]:
    """The k first candidates, or all if there are fewer; without `indices` they are the positions."""
    selected, positions = topk_p.bind(
        values, k=min(k, values.shape[-1]), largest=largest, sorted=sorted, max_iter=0, implementation=None
    )
    return selected, positions if indices is None else _xla.take_rows(indices, positions)


def _group(size: int, candidates: int, k: int) -> int:
    """How many neighbours along a mesh axis are to merge their candidates before all do: what moves least; 1: none."""
    if size <= _ONE_ROUND:
        return 1
    divisors = [group for group in range(1, size) if size % group == 0]
    return min(divisors, key=lambda g: (g - 1) * candidates + (size - 1) * -(-min(k, g * candidates) // g))


def _gather_within(name: str, group: int, values: jax.Array, indices: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The candidates of each group of neighbours."""
    groups = np.arange(lax.axis_size(name)).reshape(-1, group).tolist()
    last = values.ndim - 1
    gather = partial(lax.all_gather, axis_name=name, axis_index_groups=groups, axis=last, tiled=True)
    return _as_bits(gather, values), gather(indices)


def _gather_between(name: str, group: int, values: jax.Array, indices: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The candidates of all groups, each of whose members has all of its group's and sends a part of them."""
    *batch, count = values.shape
    last, size = len(batch), lax.axis_size(name)
    width = -(-count // group)

    def gather(x: jax.Array) -> jax.Array:
        if group > 1:
            x = jnp.pad(x, [(0, 0)] * last + [(0, group * width - count)])
            x = lax.dynamic_slice_in_dim(x, lax.axis_index(name) % group * width, width, axis=last)
        x = all_gather_invariant(x, name, axis=last).reshape(*batch, size * width)
        if group * width > count:  # by slices: no reshape does it to rows that are sharded over explicit mesh axes
            starts = range(0, size * width, group * width)
            x = lax.concatenate([lax.slice_in_dim(x, start, start + count, axis=last) for start in starts], last)
        return x

    return _as_bits(gather, values), gather(indices)


def _as_bits(move: Callable[[jax.Array], jax.Array], values: jax.Array) -> jax.Array:
    """As integers: who moves bytes need not know of every kind of float, nor may it change NaNs."""
    return _xla.from_bits(move(_xla.to_bits(values)), values.dtype)


# The derivative has to be said, as what travels are bits.
@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_tangent(names: tuple[str, ...], row: Any, values: Any, indices: Any) -> Any:
    return values


@_with_tangent.defjvp
def _with_tangent_jvp(names: tuple[str, ...], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    row, values, indices = primals
    tangent = lax.convert_element_type(tangents[0], row.dtype)  # no result is weakly typed
    here = indices - lax.axis_index(names) * row.shape[-1]
    values = _with_tangent(names, row, values, indices)  # which has derivatives of its own
    return values, lax.psum(_xla.take_rows(tangent, here, zero_outside=True), names)
