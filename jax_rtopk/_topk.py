"""The public functions: argument checking, axis handling, docstrings."""

from __future__ import annotations

import jax
import jax.export
from jax.typing import ArrayLike

from jax_rtopk import _native
from jax_rtopk._checks import check_flag, check_max_iter
from jax_rtopk._primitive import mask_p, sparsify_p, topk_p
from jax_rtopk._result import TopK
from jax_rtopk._rows import Implementation, move, prepare


def topk(
    operand: ArrayLike,
    k: int,
    *,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
    max_iter: int | None = None,
    implementation: Implementation | None = None,
) -> TopK:
    """The k largest elements along an axis, and where they are.

    Exact by default: the indices are those of `jax.lax.top_k`, and the values are the operand's own bits at those
    indices. Floats are in IEEE 754 total order, +NaN > +inf > ... > +0 > -0 > ... > -inf > -NaN, and ties go to the
    lowest index. With `max_iter` the search of each row stops early, as RTop-K does (arXiv 2409.00822): most of
    the true top k are found, for less work per row. That is meant for GPUs; on CPUs the exact answer is nearly
    always faster.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk import topk
    >>> values, indices = topk(jnp.array([[3.0, 1.0, 4.0, 1.0, 5.0], [9.0, 2.0, 6.0, 5.0, 3.0]]), 2)
    >>> print(values)
    [[5. 4.]
     [9. 6.]]
    >>> print(indices)
    [[4 2]
     [0 2]]

    The tangent of `values` is the operand's tangent at `indices`, so in reverse mode the cotangent goes to the
    selected positions; `indices` have no tangent. Forward and reverse mode to any order, vmap, scan, checkpoint and
    the like all work. A sharded batch stays sharded, without a collective, where `jax.lax.top_k` gathers it.

    Differs from `jax.lax.top_k` in having `largest`, `sorted` and `max_iter`, and `axis` on every JAX release, and in
    that NaNs keep their payloads, and are ordered by them, in every dtype.

    Arguments:
        operand: an array of shape `(..., n, ...)` with `n` at `axis`, and of dtype float32, bfloat16, float16, float64,
            float8_e4m3fn, float8_e5m2, int8 to int64, uint8 to uint64, or bool. Of 64-bit numpy arrays JAX makes 32-bit
            ones, unless it has 64-bit types enabled (`jax_enable_x64`).
        k: how many elements to select of each row, a static int between 0 and `n`.
        axis: the selection axis.
        largest: False selects the smallest instead, smallest first, ties to the lowest index.
        sorted: False returns the same selection in ascending order of index, which is less work per row.
        max_iter: how many passes over a row may be spent on counting. None: as many as the exact answer needs. Many
            rows are exact after one pass, nearly all after two. An early stop still gives k distinct indices with their
            values and the row maximum among them (minimum, if not `largest`); the answer depends on nothing but the
            row, and is the same on CPU and CUDA. The pure-JAX implementation ignores `max_iter` and answers exactly.
        implementation: None uses native code where this installation has it for the platform, else pure JAX;
            "native" insists on native code; "xla" insists on pure JAX.

    Returns:
        `TopK(values, indices)`, both of the operand's shape with `k` in place of `n`; values of the operand's dtype,
        indices int32.

    Raises:
        TypeError: if the operand is no array or of another dtype, `k`, `axis` or `max_iter` is no static int, a flag is
            no bool, or `implementation` is no str.
        ValueError: if the operand is complex or a scalar, the selection axis is longer than 2**31 - 1 or sharded over
            explicit mesh axes, `k`, `axis`, `max_iter` or `implementation` is out of range, or `k` may be more than a
            symbolic size.
        NotImplementedError: if `implementation="native"` and there is no native code for the platform.
    """
    rows, axis, params = prepare("topk", operand, k, axis, implementation)
    results = topk_p.bind(
        rows,
        largest=check_flag("topk", "largest", largest),
        sorted=check_flag("topk", "sorted", sorted),
        max_iter=check_max_iter("topk", max_iter),
        **params,
    )
    return TopK(*(move(result, rows.ndim - 1, axis) for result in results))


def topk_mask(
    operand: ArrayLike,
    k: int,
    *,
    axis: int = -1,
    largest: bool = True,
    max_iter: int | None = None,
    implementation: Implementation | None = None,
) -> jax.Array:
    """True at the k largest elements along an axis, the elements that `topk` selects.

    Exactly k elements of each row are True, under ties too. The result has no tangent.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk import topk_mask
    >>> print(topk_mask(jnp.array([3, 5, 4, 5, 5]), 2))
    [False  True False  True False]

    Arguments:
        operand: as of `topk`.
        k: as of `topk`.
        axis: as of `topk`.
        largest: as of `topk`.
        max_iter: as of `topk`.
        implementation: as of `topk`.

    Returns:
        A bool array of the operand's shape.

    Raises:
        TypeError: as `topk`.
        ValueError: as `topk`.
        NotImplementedError: as `topk`.
    """
    rows, axis, params = prepare("topk_mask", operand, k, axis, implementation)
    (mask,) = mask_p.bind(
        rows,
        largest=check_flag("topk_mask", "largest", largest),
        by_magnitude=False,
        max_iter=check_max_iter("topk_mask", max_iter),
        **params,
    )
    return move(mask, rows.ndim - 1, axis)


def topk_sparsify(
    operand: ArrayLike,
    k: int,
    *,
    axis: int = -1,
    by_magnitude: bool = False,
    straight_through: bool = False,
    max_iter: int | None = None,
    implementation: Implementation | None = None,
) -> jax.Array:
    """The operand with all but its k largest elements along an axis set to zero.

    Exactly k elements of each row are kept, under ties too: those that `topk` selects, or with `by_magnitude` those of
    the largest absolute values (NaNs of either sign first, ties to the lowest index).

    >>> import jax.numpy as jnp
    >>> from jax_rtopk import topk_sparsify
    >>> x = jnp.array([3.0, -5.0, 4.0, 1.0])
    >>> print(topk_sparsify(x, 2))
    [3. 0. 4. 0.]
    >>> print(topk_sparsify(x, 2, by_magnitude=True))
    [ 0. -5.  4.  0.]

    Arguments:
        operand: as of `topk`.
        k: how many elements of each row to keep, a static int between 0 and the size of the axis.
        axis: as of `topk`.
        by_magnitude: keep the elements of the largest absolute values.
        straight_through: the tangent of the result is the operand's whole tangent, as if nothing had been set to zero.
            By default it is the tangent of the kept elements, and zero elsewhere.
        max_iter: as of `topk`.
        implementation: as of `topk`.

    Returns:
        An array of the operand's shape and dtype.

    Raises:
        TypeError: as `topk`.
        ValueError: as `topk`.
        NotImplementedError: as `topk`.
    """
    rows, axis, params = prepare("topk_sparsify", operand, k, axis, implementation)
    (dense,) = sparsify_p.bind(
        rows,
        by_magnitude=check_flag("topk_sparsify", "by_magnitude", by_magnitude),
        straight_through=check_flag("topk_sparsify", "straight_through", straight_through),
        max_iter=check_max_iter("topk_sparsify", max_iter),
        **params,
    )
    return move(dense, rows.ndim - 1, axis)


def export_disabled_checks() -> list[jax.export.DisabledSafetyCheck]:
    """What to pass to `jax.export.export` as `disabled_checks`, for programs that use this package.

    JAX refuses to export custom calls that it does not know to be stable. The targets of this package are: a program
    exported now runs under later releases of it. (JAX's `serialize` needs the package flatbuffers.)

    >>> import jax
    >>> import jax.export
    >>> import jax_rtopk
    >>> function = jax.jit(lambda x: jax_rtopk.topk(x, 2))
    >>> operand = jax.ShapeDtypeStruct((8, 16), "float32")
    >>> exported = jax.export.export(function, disabled_checks=jax_rtopk.export_disabled_checks())(operand)
    >>> data = exported.serialize()
    >>> jax.export.deserialize(data).out_avals[0].shape
    (8, 2)

    Returns:
        One check for each FFI target of the package.
    """
    return [jax.export.DisabledSafetyCheck.custom_call(_native.PREFIX + name) for name in _native.OPERATIONS]
