"""What `topk` returns, as Python and JAX see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import jax
import jax.export

from jax_rtopk import _native


class _Fields(NamedTuple):
    values: jax.Array
    indices: jax.Array


class _AnyTuple:
    """In place of `_cpu.Pair` where there is no native code."""

    __slots__ = ()


# JAX makes a TopK for each call of a jitted function that returns one. `Pair` makes it without running any Python,
# which takes some .3 microseconds from a call that selects from a few short rows.
_Pair: Any = _native.BACKENDS["cpu"].module.Pair if "cpu" in _native.BACKENDS else _AnyTuple


class TopK(_Pair, _Fields):  # type: ignore[misc]
    """What was selected of each row; a named tuple: unpacks as `values, indices`, like `jax.lax.top_k`'s result."""

    __slots__ = ()

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]
        return cls(*iterable)  # a named tuple's own would go around Pair, which Python forbids


# So that a program that returns it can be written to a file. The name is part of the file: it stays.
jax.export.register_namedtuple_serialization(TopK, serialized_name="jax_rtopk.TopK")
