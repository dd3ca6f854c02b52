"""Custom calls that are right or wrong in ways drawn at random, and whether a handler must refuse them.

A call begins as a right one; mutations then change its attributes, dtypes, shapes and pointers, or add and drop some.
`Rules` says, by the tables of docs/architecture.md and nothing else, whether what came of it is still a call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import oracle
import search_spec
import sparse_oracle
from ffi_host import XLA_TYPES

INT32 = np.dtype(np.int32)
NUMBERS = [-(2**63), -(2**62), -(2**31), -1, 0, 1, 2, 3, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62, 2**63 - 1]
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
GROUPED = ("order", "starts")  # that scatter_add also takes on CUDA
OPERATIONS = (*SELECTIONS, *PRODUCTS, *NEIGHBORS)
OTHERS = [np.dtype(t) for t in (np.complex64, np.complex128, ml_dtypes.float8_e4m3fnuz)]


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


# ---- right calls ---------------------------------------------------------------------------------------------------


def right_call(rng: np.random.Generator, operation: str, module: Any) -> CustomCall:
    """One that must be answered. `module` is the native one, which says what its back end needs besides."""
    if operation in SELECTIONS:
        return _selection(rng, operation, module)
    return _product(rng, operation, module) if operation in PRODUCTS else _neighbors(rng, operation)


def _small(rng: np.random.Generator, most: int) -> int:
    return int(rng.integers(0, most + 1))


def _selection(rng: np.random.Generator, operation: str, module: Any) -> CustomCall:
    dtype = oracle.DTYPES[rng.integers(len(oracle.DTYPES))]
    batch = tuple(_small(rng, 4) for _ in range(rng.integers(0, 3)))
    n = int(rng.choice([_small(rng, 3), _small(rng, 40), _small(rng, 300)]))
    k = _small(rng, n)
    kind = oracle.KINDS[rng.integers(len(oracle.KINDS))]
    operand = Operand("operand", dtype, (*batch, n), oracle.operand(rng, dtype, (*batch, n), kind))
    values: dict[str, Any] = {"k": k, "max_iter": int(rng.choice([0, 0, 1, 2, 5, 2**40]))}
    if operation == "topk_in_parts":
        most = next(count for count in range(_packs(n, dtype), 0, -1) if _shortest_part(n, count, dtype) >= k)
        values["parts"] = int(rng.integers(1, most + 1))
        if _shortest_part(n, values["parts"], dtype) < k:
            values["parts"] = most
    if operation == "bucketed":
        values["num_buckets"] = int(rng.integers(1, max(n, 1) + 1))
        values["bucket_k"] = max(1, min(-(-k // values["num_buckets"]), n // values["num_buckets"]))
    attributes = {
        name: np.bool_(rng.integers(2)) if of is bool else np.int64(values[name])
        for name, of in SELECTIONS[operation].items()
    }
    if operation.startswith("mask"):
        rets = [Operand("mask", np.dtype(bool), operand.shape)]
    elif operation.startswith("sparsify"):
        rets = [Operand("dense", dtype, operand.shape)]
    else:
        rets = [Operand("values", dtype, (*batch, k)), Operand("indices", INT32, (*batch, k))]
    if _has_workspace(operation, module):
        needed, _ = _workspace(operation, values, dtype, module)
        rets.append(Operand("workspace", np.dtype(np.uint8), (*batch, needed)))
    return CustomCall(operation, [operand], rets, attributes)


def _has_workspace(operation: str, module: Any) -> bool:
    if operation == "bucketed":
        return hasattr(module, "bucketed_workspace")
    return operation.endswith(("_in_parts", "_by_digits"))


def _workspace(operation: str, a: dict[str, int], dtype: np.dtype, module: Any) -> tuple[int, int]:
    """The bytes a row that it must have at least, and must have a multiple of."""
    if operation == "topk_in_parts":
        return module.topk_in_parts_workspace(a["parts"], a["k"], dtype.itemsize), 1
    if operation.endswith("_by_digits"):
        return module.by_digits_workspace(dtype.itemsize), 1
    candidates = a["num_buckets"] * a["bucket_k"]
    return module.bucketed_workspace(candidates, a["k"], dtype.itemsize), 16 if dtype.itemsize == 8 else 8


def _packs(n: int, dtype: np.dtype) -> int:
    """Of 16 bytes of a row, between which parts of it may begin."""
    return max(1, -(-n * dtype.itemsize // 16))


def _shortest_part(n: int, count: int, dtype: np.dtype) -> int:
    pack, packs = 16 // dtype.itemsize, _packs(n, dtype)
    begins = [packs * part // count * pack for part in (1, count - 1)]
    return n if count == 1 else min(begins[0], n - begins[1])


def _floats(rng: np.random.Generator, name: str, dtype: np.dtype, *shape: int) -> Operand:
    return Operand(name, dtype, shape, rng.standard_normal(shape).astype(dtype))


def _integers(rng: np.random.Generator, name: str, n: int, *shape: int) -> Operand:
    """Indices into n, a few of which are not, if any: some of the numbers that are next to it, or far off."""
    far = np.array([-(2**31), -1, n, n + 1, 2**31 - 1], np.int64)
    inside = rng.integers(0, max(n, 1), shape)
    return Operand(
        name,
        INT32,
        shape,
        np.where(rng.random(shape) < rng.choice([0, 0.3]), rng.choice(far, shape), inside).astype(INT32),
    )


def _split(operation: str, operands: dict[str, Operand], names: tuple[str, ...]) -> CustomCall:
    made = operands[names[-1]]
    made.data = None
    return CustomCall(operation, [operands[name] for name in names[:-1]], [made])


def _product(rng: np.random.Generator, operation: str, module: Any) -> CustomCall:
    dtype = sparse_oracle.FLOATS[rng.integers(len(sparse_oracle.FLOATS))]
    batch = tuple(_small(rng, 4) for _ in range(rng.integers(0, 3)))
    k, n, d = _small(rng, 5), _small(rng, 8), _small(rng, 70)
    operands = {
        "values": _floats(rng, "values", dtype, *batch, k),
        "rows": _floats(rng, "rows", dtype, *batch, d),
        "weight": _floats(rng, "weight", dtype, n, d),
        "indices": _integers(rng, "indices", n, *batch, k),
    }
    call = _split(operation, operands, PRODUCTS[operation])
    if operation == "scatter_add" and getattr(module, "SCATTERS_IN_ORDER", False):
        keys = operands["indices"].data.ravel()
        clipped = np.where(sparse_oracle.inside(keys, n), keys, n)
        order = np.argsort(clipped, kind="stable").astype(INT32)
        starts = np.searchsorted(clipped[order], np.arange(n + 1)).astype(INT32)
        call.args += [Operand("order", INT32, order.shape, order), Operand("starts", INT32, starts.shape, starts)]
    return call


def _neighbors(rng: np.random.Generator, operation: str) -> CustomCall:
    """Of a graph that is one, or of arrays that are none."""
    dtype = sparse_oracle.FLOATS[rng.integers(len(sparse_oracle.FLOATS))]
    targets, sources, edges, k, n = (_small(rng, most) for most in (5, 5, 12, 4, 20))
    operands = {
        "weights": _floats(rng, "weights", dtype, edges),
        "values": _floats(rng, "values", dtype, sources, k),
        "dense": _floats(rng, "dense", dtype, targets, n),
        "indices": _integers(rng, "indices", n, sources, k),
        "neighbors": _integers(rng, "neighbors", sources, edges),
        "out_neighbors": _integers(rng, "out_neighbors", targets, edges),
        "out_edges": _integers(rng, "out_edges", edges, edges),
        "indptr": _integers(rng, "indptr", edges + 1, targets + 1),
        "out_indptr": _integers(rng, "out_indptr", edges + 1, sources + 1),
    }
    if rng.random() < 0.6:
        for name in ("indptr", "out_indptr"):
            operands[name].data.sort()
    return _split(operation, operands, NEIGHBORS[operation])


# ---- mutations -----------------------------------------------------------------------------------------------------


def mutate(rng: np.random.Generator, call: CustomCall) -> None:
    """Changes something, perhaps into what it was."""
    # A handler without attributes may be given any: some of XLA's releases look at their number and some do not.
    of_attributes = (_attribute, _attribute, _add_attribute, _drop_attribute) if call.attributes else ()
    of_operands = (_resize, _resize, _resize, _rerank, _retype, _drop, _repeat, _in_place, _scramble, _scramble)
    choices = (*of_attributes, *of_operands)
    choices[rng.integers(len(choices))](rng, call)


def _attribute(rng: np.random.Generator, call: CustomCall) -> None:
    name = str(rng.choice(list(call.attributes)))
    if rng.random() < 0.25:  # of another type
        others = [np.int32(1), np.float64(1), np.uint64(1), np.ones(1, np.int64), np.zeros(0, np.int64), "1", ""]
        call.attributes[name] = others[rng.integers(len(others))]
    elif isinstance(call.attributes[name], np.bool_):
        call.attributes[name] = np.bool_(rng.integers(2))
    else:
        near = call.attributes[name] if isinstance(call.attributes[name], np.int64) else np.int64(0)
        numbers = [*NUMBERS, int(near) + 1, int(near) - 1, *(call.args[0].shape if call.args else ())]
        call.attributes[name] = np.int64(max(min(numbers[rng.integers(len(numbers))], 2**63 - 1), -(2**63)))


def _add_attribute(rng: np.random.Generator, call: CustomCall) -> None:
    call.attributes[str(rng.choice(["", "K", "k ", "zzz", "sorted"]))] = np.int64(rng.integers(5))


def _drop_attribute(rng: np.random.Generator, call: CustomCall) -> None:
    del call.attributes[str(rng.choice(list(call.attributes)))]


def _any(rng: np.random.Generator, call: CustomCall) -> Operand | None:
    operands = call.args + call.rets
    return operands[rng.integers(len(operands))] if operands else None


def _resize(rng: np.random.Generator, call: CustomCall) -> None:
    """One dimension of one operand, or all that are as long, or by one longer or shorter, as pointers are."""
    operand = _any(rng, call)
    if operand is None or not operand.shape:
        return
    axis = int(rng.integers(len(operand.shape)))
    old = operand.shape[axis]
    sizes = [number for number in NUMBERS if number >= 0] + [old + 1, max(old - 1, 0), 2 * old]
    new = sizes[rng.integers(len(sizes))]
    everywhere = rng.random() < 0.5
    for other in call.args + call.rets if everywhere else [operand]:
        other.shape = tuple(
            max(size - old + new, 0) if (abs(size - old) <= 1 if everywhere else i == axis) else size
            for i, size in enumerate(other.shape)
        )


def _rerank(rng: np.random.Generator, call: CustomCall) -> None:
    operand = _any(rng, call)
    if operand is not None:
        place = int(rng.integers(len(operand.shape) + 1))
        kept = operand.shape[:place]
        operand.shape = (*kept, 1, *operand.shape[place:]) if rng.random() < 0.5 else kept


def _retype(rng: np.random.Generator, call: CustomCall) -> None:
    dtypes = [*oracle.DTYPES, *OTHERS]
    dtype, operand = dtypes[rng.integers(len(dtypes))], _any(rng, call)
    if operand is None:
        return
    for other in call.args + call.rets if rng.random() < 0.3 else [operand]:
        if other.dtype == operand.dtype and other is not operand:
            other.dtype = dtype
    operand.dtype = dtype


def _drop(rng: np.random.Generator, call: CustomCall) -> None:
    operands = (call.args, call.rets)[rng.integers(2)]
    if operands:
        del operands[rng.integers(len(operands))]


def _repeat(rng: np.random.Generator, call: CustomCall) -> None:
    operands = (call.args, call.rets)[rng.integers(2)]
    if operands:
        copied = operands[rng.integers(len(operands))]
        operands.append(Operand(copied.name, copied.dtype, copied.shape))


def _in_place(rng: np.random.Generator, call: CustomCall) -> None:
    if call.rets and call.args:
        call.rets[rng.integers(len(call.rets))].alias = True


def _scramble(rng: np.random.Generator, call: CustomCall) -> None:
    """Other integers, as far off as they can be, among the indices or whatever an operand holds of these."""
    operands = [arg for arg in call.args if arg.data is not None and arg.dtype == arg.data.dtype == INT32]
    if operands:
        operand = operands[rng.integers(len(operands))]
        numbers = np.array([-(2**31), -(2**31) + 1, -1, 0, 1, 7, 2**30, 2**31 - 2, 2**31 - 1], INT32)
        changed = rng.random(operand.data.shape) < rng.choice([0.2, 1])
        operand.data = np.where(changed, rng.choice(numbers, operand.data.shape), operand.data)


# ---- whether they must be refused ----------------------------------------------------------------------------------


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
    with_workspace = _has_workspace(call.operation, module)
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
    if call.operation == "topk_in_parts" and not _are_right_parts(a, n, operand.dtype):
        return False
    if call.operation == "bucketed" and not _are_right_buckets(a, n):
        return False
    if not with_workspace:
        return True
    dtype, shape = rets[-1]
    needed, unit = _workspace(call.operation, a, operand.dtype, module)
    if dtype != np.uint8 or len(shape) != len(operand.shape) or shape[:-1] != tuple(batch):
        return False
    return shape[-1] >= needed and shape[-1] % unit == 0


def _are_right_parts(a: dict[str, int], n: int, dtype: np.dtype) -> bool:
    """A block must be able to hold each part; the rows here are far shorter than the longest such, or far longer."""
    parts = a["parts"]
    return 1 <= parts <= _packs(n, dtype) and _shortest_part(n, parts, dtype) >= a["k"] and n // parts < 2**15


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
    grouped = call.operation == "scatter_add" and getattr(module, "SCATTERS_IN_ORDER", False)
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


# ---- and what they must return -------------------------------------------------------------------------------------


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
        return [*(result.reshape(*operand.shape[:-1], k) for result in results), *[None] * (len(call.rets) - 2)]
    if a.get("max_iter"):
        mask = search_spec.select(oracle.keys(x, **order), k, a["max_iter"], x.dtype.itemsize)
    else:
        mask = oracle.mask(x, k, **order)
    nothing = [None] * sum(ret.name == "workspace" for ret in call.rets)
    if call.operation.startswith("mask"):
        return [mask.reshape(operand.shape), *nothing]
    if call.operation.startswith("sparsify"):
        return [np.where(mask.reshape(operand.shape), operand, np.zeros((), x.dtype)), *nothing]
    indices = np.nonzero(mask)[1].reshape(len(x), k)
    if a["sorted"]:
        keys = np.take_along_axis(oracle.keys(x, **order), indices, 1)
        indices = np.take_along_axis(indices, np.argsort(~keys, axis=1, kind="stable"), 1)
    results = np.take_along_axis(x, indices, 1), indices.astype(INT32)
    return [*(result.reshape(*operand.shape[:-1], k) for result in results), *[None] * (len(call.rets) - 2)]


def _summed(call: CustomCall, arrays: list[np.ndarray]) -> list[np.ndarray | None]:
    first, second, indices, *groups = arrays
    if call.operation == "gather_sum":
        return [sparse_oracle.gather_sum(first, indices, second)]
    if call.operation == "sampled_dot":
        return [sparse_oracle.sampled_dot(first, indices, second)]
    n = call.rets[0].shape[0]
    if groups:  # which are right only as long as what they were made of is
        keys = np.where(sparse_oracle.inside(indices.ravel(), n), indices.ravel(), n)
        order, starts = groups
        right = np.argsort(keys, kind="stable"), np.searchsorted(np.sort(keys), np.arange(n + 1))
        if not all(np.array_equal(got, want) for got, want in zip((order, starts), right, strict=True)):
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


assert set(oracle.DTYPES + OTHERS) <= set(XLA_TYPES)
