"""The public functions that work on what `topk` returns, a matrix of k entries a row: checks and docstrings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jax_rtopk._checks import check_implementation
from jax_rtopk._graph import CSRGraph, check_graph
from jax_rtopk._rows import Implementation
from jax_rtopk._sparse_checks import (
    check_count,
    check_floats,
    check_same_dtype,
    check_same_length,
    check_sampled_rows,
    check_sparse_rows,
)
from jax_rtopk._sparse_primitive import products_with_rows, sum_of_neighbors, sum_of_rows


def sparse_dense_matmul(
    values: ArrayLike, indices: ArrayLike, weight: ArrayLike, *, implementation: Implementation | None = None
) -> jax.Array:
    """The product of a matrix of k entries a row, as `topk` returns them, with a dense matrix.

    `out[r]` is the sum over t of `values[r, t] * weight[indices[r, t]]`. This is the decoder of a TopK autoencoder
    (k-sparse autoencoders, Makhzani and Frey, arXiv 1312.5663; Gao et al., arXiv 2406.04093): k of the n rows of
    `weight` are read for each row of the result, in place of a product with a matrix that is mostly zeros. Nothing of
    size rows times k times d is made, nor is it for the derivatives.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk import sparse_dense_matmul, topk
    >>> weight = jnp.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> values, indices = topk(jnp.array([[5.0, 1.0, 3.0]]), 2, sorted=False)
    >>> print(sparse_dense_matmul(values, indices, weight))
    [[11.  6.]]

    Differentiable in `values` and `weight`, in forward and reverse mode to any order; vmap, scan, checkpoint and the
    like all work. Rows that are sharded over devices stay where they are, without a collective; only derivatives are
    summed over the devices: that by a weight that all of them have, and where d is sharded that by `values`.

    The products are rounded, then added in ascending order of t, each element of the result for itself, so it does not
    depend on the number of threads. The derivative by `weight` is likewise added up in order of the rows. 16-bit floats
    are summed in float32, and rounded once. (The pure-JAX implementation may add in another order.)

    Arguments:
        values: `[..., k]`, of dtype float32, bfloat16, float16 or float64.
        indices: int32 `[..., k]`, in any order; an index that occurs twice in a row counts twice, and an entry whose
            index is not in `[0, n)` takes part in nothing.
        weight: `[n, d]`, of the dtype of `values`.
        implementation: None uses native code where this installation has it for the platform, else pure JAX;
            "native" insists on native code; "xla" insists on pure JAX.

    Returns:
        `[..., d]`, of the dtype of `values`.

    Raises:
        TypeError: if an argument is no array or of another dtype, or `implementation` is no str.
        ValueError: if shapes do not fit together, or `implementation` is none of these.
        NotImplementedError: if `implementation="native"` and there is no native code for the platform.
    """
    name = "sparse_dense_matmul"
    entries, places = check_sparse_rows(name, values, indices)
    dense = check_floats(name, "weight", weight, ("n", "d"))
    check_same_dtype(name, "weight", dense, "values", entries)
    check_implementation(name, implementation)
    return sum_of_rows(entries, dense, places, implementation=implementation)


def sampled_dense_matmul(
    x: ArrayLike, weight: ArrayLike, indices: ArrayLike, *, implementation: Implementation | None = None
) -> jax.Array:
    """Of the product of two dense matrices, `x @ weight.T`, k elements a row: those that the indices name.

    `out[r, t]` is the inner product of `x[r]` with `weight[indices[r, t]]`. This is the sampled dense-dense matrix
    multiplication (SDDMM; Gale et al., arXiv 2006.10901), and the counterpart of `sparse_dense_matmul`: each is a
    derivative of the other. It spares the encoder of a TopK autoencoder its dense gradients. Select from scores
    that no gradient goes through, then make the k that stay once more:

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from jax_rtopk import sampled_dense_matmul, topk
    >>> weight = jnp.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> x = jnp.array([[3.0, 1.0]])
    >>> indices = topk(jax.lax.stop_gradient(x @ weight.T), 2, sorted=False).indices
    >>> print(sampled_dense_matmul(x, weight, indices))
    [[3. 8.]]

    Differentiable in `x` and `weight`, in forward and reverse mode to any order; vmap, scan, checkpoint and the like
    all work. Nothing of size rows times n or rows times k times d is made, nor is it for the derivatives. Rows that are
    sharded over devices stay where they are, without a collective; where d is sharded the result is summed over the
    devices, and so is the derivative by a weight that all of them have.

    The products are rounded, then added in an order that d alone determines, each element of the result for itself, so
    it does not depend on the number of threads. The derivative by `weight` is added up in order of the rows. 16-bit
    floats are summed in float32, and rounded once. Of what is summed over devices that holds for each one's part. (The
    pure-JAX implementation may add in another order.)

    Arguments:
        x: `[..., d]`, of dtype float32, bfloat16, float16 or float64.
        weight: `[n, d]`, of the dtype of `x`.
        indices: int32 `[..., k]`, in any order; what an index asks for that is not in `[0, n)` is zero, and takes part
            in nothing.
        implementation: as of `sparse_dense_matmul`.

    Returns:
        `[..., k]`, of the dtype of `x`.

    Raises:
        TypeError: if an argument is no array or of another dtype, or `implementation` is no str.
        ValueError: if shapes do not fit together, or `implementation` is none of these.
        NotImplementedError: if `implementation="native"` and there is no native code for the platform.
    """
    name = "sampled_dense_matmul"
    rows, places = check_sampled_rows(name, x, indices)
    dense = check_floats(name, "weight", weight, ("n", "d"))
    check_same_dtype(name, "weight", dense, "x", rows)
    check_same_length(name, rows, dense)
    check_implementation(name, implementation)
    return products_with_rows(rows, dense, places, implementation=implementation)


def neighbor_sum(
    graph: CSRGraph, values: ArrayLike, indices: ArrayLike, n: int, *, implementation: Implementation | None = None
) -> jax.Array:
    """The sum over each node's neighbors of their sparse rows, as a dense matrix.

    `out[i, indices[j, t]]` is the sum over the edges from j to i, and over t, of the edge's weight times
    `values[j, t]`. This is the aggregation of MaxK-GNN (Peng et al., arXiv 2312.08656): of a node's n features k are
    kept, so that much less is read for each edge, and derivatives are made of these k alone.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk import CSRGraph, neighbor_sum
    >>> graph = CSRGraph.from_edges(jnp.array([1, 2, 0]), jnp.array([0, 0, 2]), 3)
    >>> values = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> indices = jnp.array([[0, 3], [1, 2], [0, 2]])
    >>> print(neighbor_sum(graph, values, indices, 4))
    [[ 5.  3. 10.  0.]
     [ 0.  0.  0.  0.]
     [ 1.  0.  0.  2.]]

    Differentiable in `values` and in the weights of the graph, in forward and reverse mode to any order; vmap, scan,
    checkpoint and the like all work. Under automatic sharding XLA gathers the operands, as an edge may lead anywhere.

    The products are rounded, then added in the order of the graph's edges, each element of the result for itself, so it
    does not depend on the number of threads. 16-bit floats are summed in float32, and rounded once. (The pure-JAX
    implementation may add in another order.)

    Arguments:
        graph: the edges, as `CSRGraph.from_edges` makes them, with `sources` nodes for them to come from and `targets`
            nodes for them to lead to; its weights, if it has some, of the dtype of `values`.
        values: `[sources, k]`, of dtype float32, bfloat16, float16 or float64.
        indices: int32 `[sources, k]`, as of `sparse_dense_matmul`.
        n: how long the dense rows are, a static int.
        implementation: as of `sparse_dense_matmul`.

    Returns:
        `[targets, n]`, of the dtype of `values`.

    Raises:
        TypeError: if an argument is no array or of another dtype, the graph no `CSRGraph`, `n` no static int, or
            `implementation` no str.
        ValueError: if shapes do not fit together, `n` is out of range, or `implementation` is none of these.
        NotImplementedError: if `implementation="native"` and there is no native code for the platform.
    """
    name = "neighbor_sum"
    edges = check_graph(name, graph)
    entries, places = check_sparse_rows(name, values, indices, ("sources", "k"))
    sources = edges.out_indptr.shape[0] - 1
    if entries.shape[0] != sources:
        raise ValueError(
            f"{name}: values must have a row for each node that edges may come from, {sources}, got shape "
            f"{entries.shape}. Make the graph with num_sources={entries.shape[0]}."
        )
    weights = jnp.ones(edges.neighbors.shape, entries.dtype) if edges.weights is None else edges.weights
    check_same_dtype(name, "graph.weights", weights, "values", entries)
    length = check_count(name, "n", n)
    check_implementation(name, implementation)
    arrays = (edges.indptr, edges.neighbors, edges.out_indptr, edges.out_neighbors, edges.out_edges)
    return sum_of_neighbors(weights, entries, places, *arrays, n=length, implementation=implementation)
