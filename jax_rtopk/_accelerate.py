"""accelerate: programs that call JAX's own top-k get the one of this package."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.typing import ArrayLike

from jax_rtopk._approx import approx_topk
from jax_rtopk._topk import topk


@contextmanager
def accelerate() -> Iterator[None]:
    """A context in which `jax.lax.top_k`, `approx_max_k` and `approx_min_k` are `topk` and `approx_topk`.

    So libraries that call them gain without an edit. It is what is traced inside that counts: a jitted function is
    traced anew for inside, and what it was outside it is again afterwards. It is a decorator, too, can be nested, and
    concerns its own thread alone.

    >>> import jax
    >>> from jax_rtopk import accelerate
    >>> x = jax.random.normal(jax.random.key(0), (4, 100))
    >>> program = jax.jit(lambda x: jax.lax.top_k(x, 5))
    >>> with accelerate():
    ...     values, indices = program(x)
    >>> indices.shape
    (4, 5)

    The results have the types that JAX's have, and errors are JAX's own: whatever this package would refuse is left to
    JAX, and so are `aggregate_to_topk=False`, `reduction_input_size_override` and, on TPUs, `approx_max_k` and
    `approx_min_k`. These keep their `recall_target` as `approx_topk` does, and so may miss elements where JAX's own,
    but for TPUs, are exact. What differs of `top_k` is what differs of `topk`, and that is so of NaNs for all three;
    weakly typed operands are left to JAX; `jax.export` wants `export_disabled_checks` here, too.

    Only calls by those names, as `jax.lax.top_k(x, k)`, are found: not those of who has taken the function out of the
    module beforehand (`from jax.lax import top_k`), nor those within JAX, as of `jax.numpy.top_k`. From the first time
    on the names in `jax.lax` stand for functions that pass every call on to JAX's own, but inside. Operations that are
    traced inside carry a mark in their XLA metadata, by which JAX tells their programs from others. In kernels of
    Pallas, which drops such marks, none of the three may be called inside.

    As JAX's own contexts it belongs to a thread: do not `yield` or `await` inside, nor decorate what does.
    """
    _install()
    depth = _depth()
    _thread.depth = depth + 1
    try:
        with set_xla_metadata(jax_rtopk="accelerate"):  # a part of what JAX finds traced programs by
            yield
    finally:
        _thread.depth = depth


_thread = threading.local()


def _depth() -> int:
    depth: int = getattr(_thread, "depth", 0)
    return depth


def _install() -> None:
    for name, ours in _OURS.items():
        found = getattr(lax, name)
        if found not in _INSTALLED:
            either = _choosing(name, found, ours)
            _INSTALLED.add(either)
            setattr(lax, name, either)


def _choosing(name: str, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @cache
    def container() -> Any:  # a list or a tuple, by the release of JAX
        return type(jax.eval_shape(partial(original, k=1), jax.ShapeDtypeStruct((1,), np.float32)))

    @wraps(original)
    def either(*args: Any, **kwargs: Any) -> Any:
        if _depth() == 0:
            return original(*args, **kwargs)
        with suppress(TypeError, ValueError, NotImplementedError):  # JAX does it, or says why not
            return container()(ours(*args, **kwargs))
        with set_xla_metadata(jax_rtopk=None):  # jax 0.7 cannot compile approx_max_k with a mark
            return original(*args, **kwargs)

    either.__module__, either.__qualname__ = lax.__name__, name  # where pickle finds it
    return either


def _top_k(operand: ArrayLike, k: int, *, axis: int = -1, is_stable: bool = True) -> Any:
    if jax.typeof(operand).weak_type:  # as JAX's result then is, and none of this package
        raise NotImplementedError
    return topk(operand, k, axis=axis)


def _approximate(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    *,
    largest: bool,
) -> Any:
    if reduction_input_size_override != -1 or not aggregate_to_topk or jax.default_backend() == "tpu":
        raise NotImplementedError
    aval: Any = jax.typeof(operand)
    if aval.weak_type or not jnp.issubdtype(aval.dtype, jnp.floating) or k < 1:  # the latter two JAX refuses
        raise NotImplementedError
    return approx_topk(operand, k, axis=reduction_dimension, recall_target=recall_target, largest=largest)


_OURS: dict[str, Callable[..., Any]] = {
    "top_k": _top_k,
    "approx_max_k": partial(_approximate, largest=True),
    "approx_min_k": partial(_approximate, largest=False),
}
_INSTALLED: set[Callable[..., Any]] = set()
