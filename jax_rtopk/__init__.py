"""Row-wise top-k for JAX as native XLA custom calls: exact or approximate, on CPU and CUDA."""

from importlib import metadata as _metadata

from jax_rtopk import _compat

with _compat.explained():
    from jax_rtopk._accelerate import accelerate
    from jax_rtopk._approx import approx_topk
    from jax_rtopk._early_stop import expected_recall_early_stop
    from jax_rtopk._graph import CSRGraph
    from jax_rtopk._plan import BucketPlan, plan_buckets
    from jax_rtopk._recall import expected_recall, recall_variance
    from jax_rtopk._result import TopK
    from jax_rtopk._sharded import sharded_topk
    from jax_rtopk._sparse import neighbor_sum, sampled_dense_matmul, sparse_dense_matmul
    from jax_rtopk._topk import export_disabled_checks, topk, topk_mask, topk_sparsify

__all__ = [
    "BucketPlan",
    "CSRGraph",
    "TopK",
    "accelerate",
    "approx_topk",
    "expected_recall",
    "expected_recall_early_stop",
    "export_disabled_checks",
    "neighbor_sum",
    "plan_buckets",
    "recall_variance",
    "sampled_dense_matmul",
    "sharded_topk",
    "sparse_dense_matmul",
    "topk",
    "topk_mask",
    "topk_sparsify",
]

try:
    __version__ = _metadata.version("jax_rtopk")
except _metadata.PackageNotFoundError:  # a checkout that was never installed
    __version__ = "unknown"
