"""The custom calls there are, and whether one is right: the tables of docs/architecture.md, for tests/hostile.py."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import oracle
import sparse_oracle

INT32 = np.dtype(np.int32)
SELECTIONS = {
    "topk": {"k": int, "largest": bool, "sorted": bool, "max_iter": int},
    "topk_in_parts": {"k": int, "parts": int, "largest": bool, "sorted": bool},
    "mask": {"k": int, "largest": bool, "by_magnitude": bool, "max_iter": int},
    "sparsify": {"k": int, "by_magnitude": bool, "max_iter": int},
    "topk_by_digits": {"k": int, "largest": bool, "sorted": bool},
    "mask_by_digits": {"k": int, "largest": bool, "by_magnitude": bool},
    "sparsify_by_digits": {"k": int, "by_magnitude": bool},
    "bucketed": {"k": int, "num_buckets": int, "bucket_k": int, "largest": bool, "sorted": bool},
}
# The names of what the sparse operations take and return, in order.
PRODUCTS = {
    "gather_sum": ("values", "weight", "indices", "rows"),
    "sampled_dot": ("rows", "weight", "indices", "values"),
    "scatter_add": ("values", "rows", "indices", "weight"),
}
GRAPH = ("indptr", "neighbors", "out_indptr", "out_neighbors", "out_edges")
NEIGHBORS = {
    "neighbor_sum": ("weights", "values", "indices", *GRAPH, "dense"),
    "neighbor_dot": ("weights", "dense", "indices", *GRAPH, "values"),
    "edge_dot": ("values", "dense", "indices", *GRAPH, "weights"),
}
GROUPED = ("order", "starts")
OPERATIONS = (*SELECTIONS, *PRODUCTS, *NEIGHBORS)


@dataclass
class Operand:
    """An operand or a result."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    data: np.ndarray | None = None  # that an operand holds, unless it was made another shape or dtype since
    alias: bool = False  # a result in the place of one of the operands

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def array(self, rng: np.random.Generator) -> np.ndarray:
        """What it holds."""
        if self.data is None or self.data.dtype != self.dtype or self.data.shape != self.shape:
            bits = rng.integers(0, 256, self.nbytes, np.uint8)
            self.data = (bits & 1 if self.dtype.kind == "b" else bits).view(self.dtype).reshape(self.shape)
        return self.data


@dataclass
class CustomCall:
    """A call of a handler."""

    operation: str
    args: list[Operand]
    rets: list[Operand]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        def text(operands: list[Operand]) -> str:
            return ", ".join(f"{o.name}: {o.dtype}{list(o.shape)}{' in place' * o.alias}" for o in operands)

        attributes = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"{self.operation}({text(self.args)}) -> {text(self.rets)}, {{{attributes}}}"


def has_workspace(operation: str, module: Any) -> bool:
    if operation == "bucketed":
        return hasattr(module, "bucketed_workspace")
    return operation.endswith(("_in_parts", "_by_digits"))


def workspace(operation: str, a: dict[str, int], dtype: np.dtype, module: Any) -> tuple[int, int]:
    """The bytes a row that it must have at least, and must have a multiple of."""
    if operation == "topk_in_parts":
        return module.topk_in_parts_workspace(a["parts"], a["k"], dtype.itemsize), 1
    if operation.endswith("_by_digits"):
        return module.by_digits_workspace(dtype.itemsize), 1
    candidates = a["num_buckets"] * a["bucket_k"]
    return module.bucketed_workspace(candidates, a["k"], dtype.itemsize), 16 if dtype.itemsize == 8 else 8


def are_right_parts(parts: int, k: int, n: int, dtype: np.dtype) -> bool:
    """Whether each has k elements, and a block can hold it: rows here are far shorter than that, or far longer."""
    pack = 16 // dtype.itemsize
    packs = max(1, -(-n // pack))
    if not 1 <= parts <= packs:
        return False
    first = n if parts == 1 else packs // parts * pack
    last = n - packs * (parts - 1) // parts * pack
    return min(first, last) >= k and n // parts < 2**15


def is_grouped(operation: str, module: Any) -> bool:
    """Whether it also takes GROUPED, the entries in the order of their indices."""
    return operation == "scatter_add" and getattr(module, "SCATTERS_IN_ORDER", False)


def is_right(call: CustomCall, module: Any) -> bool:
    """Whether the handler must answer."""
    if call.operation in SELECTIONS:
        return _is_right_selection(call, module)
    return _is_right_product(call, module) if call.operation in PRODUCTS else _is_right_neighbors(call)


def _aliases(call: CustomCall) -> bool:
    return any(ret.alias and ret.nbytes for ret in call.rets)


def _is_right_selection(call: CustomCall, module: Any) -> bool:
    types = SELECTIONS[call.operation]
    scalars = {int: np.int64, bool: np.bool_}
    if call.attributes.keys() != types.keys():
        return False
    if not all(isinstance(call.attributes[name], scalars[of]) for name, of in types.items()):
        return False
    a = {name: int(value) for name, value in call.attributes.items()}
    with_workspace = has_workspace(call.operation, module)
    dense = call.operation.startswith(("mask", "sparsify"))
    if len(call.args) != 1 or len(call.rets) != (1 if dense else 2) + with_workspace:
        return False
    operand, rets = call.args[0], [(ret.dtype, ret.shape) for ret in call.rets]
    if operand.dtype not in oracle.DTYPES or not operand.shape or _aliases(call):
        return False
    *batch, n = operand.shape
    if n >= 2**31 or not 0 <= a["k"] <= n or a.get("max_iter", 0) < 0:
        return False
    selected = (*batch, a["k"])
    if dense:
        wanted = [(np.dtype(bool) if call.operation.startswith("mask") else operand.dtype, operand.shape)]
    else:
        wanted = [(operand.dtype, selected), (INT32, selected)]
    if rets[: len(wanted)] != wanted:
        return False
    if call.operation == "topk_in_parts" and not are_right_parts(a["parts"], a["k"], n, operand.dtype):
        return False
    if call.operation == "bucketed" and not _are_right_buckets(a, n):
        return False
    if not with_workspace:
        return True
    dtype, shape = rets[-1]
    needed, unit = workspace(call.operation, a, operand.dtype, module)
    if dtype != np.uint8 or len(shape) != len(operand.shape) or shape[:-1] != tuple(batch):
        return False
    return shape[-1] >= needed and shape[-1] % unit == 0


def _are_right_buckets(a: dict[str, int], n: int) -> bool:
    b, j = a["num_buckets"], a["bucket_k"]
    return 1 <= b <= n and 1 <= j <= n // b and b * j >= a["k"]


def _named(call: CustomCall, names: tuple[str, ...]) -> dict[str, Operand] | None:
    if len(call.rets) != 1 or len(call.args) != len(names) - 1:
        return None
    return dict(zip(names, [*call.args, *call.rets], strict=True))


def _are_alike(operands: dict[str, Operand], floats: tuple[str, ...]) -> bool:
    dtypes = {operands[name].dtype for name in floats}
    return dtypes <= set(sparse_oracle.FLOATS) and len(dtypes) == 1


def _is_right_product(call: CustomCall, module: Any) -> bool:
    names = PRODUCTS[call.operation]
    grouped = is_grouped(call.operation, module)
    named = _named(call, (*names[:-1], *GROUPED, names[-1]) if grouped else names)
    if named is None or _aliases(call) or not _are_alike(named, ("values", "rows", "weight")):
        return False
    indices, weight = named["indices"], named["weight"]
    if indices.dtype != INT32 or not indices.shape or len(weight.shape) != 2 or weight.shape[0] >= 2**31:
        return False
    *batch, _ = indices.shape
    if named["values"].shape != indices.shape or named["rows"].shape != (*batch, weight.shape[1]):
        return False
    if not grouped:
        return True
    entries, n = math.prod(indices.shape), weight.shape[0]
    return (
        {named[name].dtype for name in GROUPED} == {INT32}
        and entries < 2**31
        and named["order"].shape == (entries,)
        and named["starts"].shape == (n + 1,)
    )


def _is_right_neighbors(call: CustomCall) -> bool:
    named = _named(call, NEIGHBORS[call.operation])
    if named is None or _aliases(call) or not _are_alike(named, ("weights", "values", "dense")):
        return False
    if {named[name].dtype for name in ("indices", *GRAPH)} != {INT32}:
        return False
    ranks = {"indices": 2, "values": 2, "dense": 2}
    if any(len(operand.shape) != ranks.get(name, 1) for name, operand in named.items()):
        return False
    (edges,), (targets, n), (sources, _) = (named[name].shape for name in ("weights", "dense", "indices"))
    lengths = (targets + 1, edges, sources + 1, edges, edges)
    return (
        named["values"].shape == named["indices"].shape
        and max(n, targets, sources, edges) < 2**31
        and [named[name].shape for name in GRAPH] == [(length,) for length in lengths]
    )
