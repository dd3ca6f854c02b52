"""Custom calls drawn at random: right ones, and mutations of these.

They change attributes, dtypes, shapes and pointers, and add and drop some; so what comes of a call may be right again.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import oracle
import sparse_oracle
from hostile_rules import (
    GROUPED,
    INT32,
    NEIGHBORS,
    PRODUCTS,
    SELECTIONS,
    CustomCall,
    Operand,
    are_right_parts,
    has_workspace,
    is_grouped,
    workspace,
)

NUMBERS = [-(2**63), -(2**62), -(2**31), -1, 0, 1, 2, 3, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62, 2**63 - 1]
OTHERS = [np.dtype(t) for t in (np.complex64, np.complex128, ml_dtypes.float8_e4m3fnuz)]


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
        values["parts"] = rng.choice([parts for parts in range(1, n + 2) if are_right_parts(parts, k, n, dtype)])
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
    if has_workspace(operation, module):
        needed, _ = workspace(operation, values, dtype, module)
        rets.append(Operand("workspace", np.dtype(np.uint8), (*batch, needed)))
    return CustomCall(operation, [operand], rets, attributes)


def _floats(rng: np.random.Generator, name: str, dtype: np.dtype, *shape: int) -> Operand:
    return Operand(name, dtype, shape, rng.standard_normal(shape).astype(dtype))


def _integers(rng: np.random.Generator, name: str, n: int, *shape: int) -> Operand:
    """Indices into n, a few of which are not, if any."""
    return Operand(name, INT32, shape, sparse_oracle.some_indices(rng, shape, n, rng.choice([0, 0.3])))


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
    if is_grouped(operation, module):
        groups = sparse_oracle.in_order(operands["indices"].data, n)
        call.args += [Operand(name, INT32, data.shape, data) for name, data in zip(GROUPED, groups, strict=True)]
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
