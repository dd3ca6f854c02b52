"""The graph that `neighbor_sum` sums over."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.export
from jax.typing import ArrayLike

from jax_rtopk._grouping import grouped
from jax_rtopk._sparse_checks import check_count, check_floats, check_integers


class CSRGraph(NamedTuple):
    """A directed graph as compressed sparse rows, by the nodes that edges lead to and by those that they come from.

    A named tuple of arrays, so a pytree: it can be passed through jit. Make it with `from_edges`.

    >>> import jax.numpy as jnp
    >>> from jax_rtopk import CSRGraph
    >>> graph = CSRGraph.from_edges(jnp.array([1, 2, 0]), jnp.array([0, 0, 2]), 3)
    >>> print(graph.indptr, graph.neighbors)
    [0 2 2 3] [1 2 0]

    The edges into node i are those numbered `indptr[i]` up to `indptr[i + 1]`. An edge whose neighbor is no node takes
    part in nothing.

    Attributes:
        indptr: int32[targets + 1], where each node's incoming edges begin, and where the last ones end.
        neighbors: int32[edges], the node that each edge comes from.
        weights: [edges], what each edge counts, or None: 1.
        out_indptr: int32[sources + 1], the same as `indptr` of outgoing edges.
        out_neighbors: int32[edges], the node that each outgoing edge leads to.
        out_edges: int32[edges], which of the incoming edges each of the outgoing ones is.
    """

    indptr: jax.Array
    neighbors: jax.Array
    weights: jax.Array | None
    out_indptr: jax.Array
    out_neighbors: jax.Array
    out_edges: jax.Array

    @classmethod
    def from_edges(
        cls,
        sources: ArrayLike,
        targets: ArrayLike,
        num_nodes: int,
        *,
        num_sources: int | None = None,
        weights: ArrayLike | None = None,
    ) -> CSRGraph:
        """The graph whose edge e leads from `sources[e]` to `targets[e]`.

        Edges into one node keep their order, and so do those out of one. Works inside jit; outside, it is done once
        for all the steps of a training. Weights are differentiable.

        Arguments:
            sources: int32[edges], the node that each edge comes from.
            targets: int32[edges], the node that each edge leads to.
            num_nodes: how many nodes there are, a static int.
            num_sources: how many nodes there are for edges to come from, if these are others than those that they lead
                to, as in a sampled neighborhood. None: `num_nodes`.
            weights: [edges], of a float dtype; None: 1.

        Returns:
            The graph. An edge from or to what is no node takes part in nothing.

        Raises:
            TypeError: if an argument is no array or of another dtype, or a number of nodes no static int.
            ValueError: if shapes do not fit together, or a number of nodes is out of range.
        """
        name = "CSRGraph.from_edges"
        source = check_integers(name, "sources", sources, ("edges",))
        target = check_integers(name, "targets", targets, ("edges",))
        num_targets = check_count(name, "num_nodes", num_nodes)
        num_sources = num_targets if num_sources is None else check_count(name, "num_sources", num_sources)
        weight = None if weights is None else check_floats(name, "weights", weights, ("edges",))
        lengths = [array.shape[0] for array in (source, target, weight) if array is not None]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"{name}: sources, targets and weights must be of the same length, one element an edge, got lengths "
                f"{', '.join(map(str, lengths))}. Leave weights out where each edge counts 1."
            )
        order, indptr = grouped(target, num_targets)
        neighbors = source[order]
        out_edges, out_indptr = grouped(neighbors, num_sources)
        return cls(
            indptr=indptr,
            neighbors=neighbors,
            weights=None if weight is None else weight[order],
            out_indptr=out_indptr,
            out_neighbors=target[order][out_edges],
            out_edges=out_edges,
        )


def check_graph(name: str, graph: Any) -> CSRGraph:
    """The graph, with arrays of the right kind."""
    if not isinstance(graph, CSRGraph):
        raise TypeError(
            f"{name}: graph must be a CSRGraph, got {type(graph).__name__}. Make it with CSRGraph.from_edges."
        )
    parts: dict[str, Any] = {
        field: check_integers(name, f"graph.{field}", getattr(graph, field), axes)
        for field, axes in (
            ("indptr", ("targets + 1",)),
            ("neighbors", ("edges",)),
            ("out_indptr", ("sources + 1",)),
            ("out_neighbors", ("edges",)),
            ("out_edges", ("edges",)),
        )
    }
    if graph.weights is not None:
        parts["weights"] = check_floats(name, "graph.weights", graph.weights, ("edges",))
    edges = {field: parts[field].shape[0] for field in parts if "indptr" not in field}
    if len(set(edges.values())) > 1 or 0 in (parts["indptr"].size, parts["out_indptr"].size):
        sizes = ", ".join(f"{field} {part.shape[0]}" for field, part in parts.items())
        raise ValueError(
            f"{name}: the arrays of a graph must have one element an edge, but indptr and out_indptr one a node and "
            f"one more, got lengths {sizes}. Make it with CSRGraph.from_edges."
        )
    return graph._replace(**parts)


# So that a program that takes one can be written to a file. The name is part of the file: it stays.
jax.export.register_namedtuple_serialization(CSRGraph, serialized_name="jax_rtopk.CSRGraph")
