"""What `topk` returns, as Python and JAX see it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.export
from jax.tree_util import GetAttrKey


class TopK(NamedTuple):
    """What was selected of each row; unpacks as `values, indices`, like the result of `jax.lax.top_k`."""

    values: jax.Array
    indices: jax.Array


def _flatten(result: TopK) -> tuple[tuple[Any, ...], Any]:
    return tuple(result), TopK


def _flatten_with_keys(result: TopK) -> tuple[tuple[Any, ...], Any]:
    return tuple((GetAttrKey(field), leaf) for field, leaf in zip(result._fields, result, strict=True)), TopK


# JAX knows what to do with a named tuple, but makes one by calling its class, which costs each call of a jitted
# function some .4 microseconds, as much as the selection of a few short rows. With the class as auxiliary data
# `tuple.__new__(TopK, children)` makes one without running any Python.
jax.tree_util.register_pytree_with_keys(TopK, _flatten_with_keys, tuple.__new__, _flatten)

# So that a program that returns it can be written to a file. The name is part of the file: it stays.
jax.export.register_pytree_node_serialization(
    TopK,
    serialized_name="jax_rtopk.TopK",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: TopK,
)
