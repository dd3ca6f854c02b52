// What the emulated back end offers, under names that build.py finds in the library.
#include "cuda/digits.h"
#include "cuda/parts.h"
#include "cuda/workspace.h"
#include "ffi/handlers.h"

#define RTOPK_EMULATED extern "C" __attribute__((visibility("default")))
#define RTOPK_EMULATED_TARGET(name) RTOPK_EMULATED_TARGET_OF(jax_rtopk::handlers(), name)
#define RTOPK_EMULATED_OF_LONG_ROWS(name) RTOPK_EMULATED_TARGET_OF(jax_rtopk::handlers().long_rows, name)
#define RTOPK_EMULATED_SPARSE(name) RTOPK_EMULATED_TARGET_OF(jax_rtopk::sparse_handlers(), name)
#define RTOPK_EMULATED_TARGET_OF(all, name) \
  RTOPK_EMULATED XLA_FFI_Error* jax_rtopk_emulated_##name(XLA_FFI_CallFrame* frame) { return all.name(frame); }

RTOPK_EMULATED_TARGET(topk)
RTOPK_EMULATED_TARGET(bucketed)
RTOPK_EMULATED_TARGET(mask)
RTOPK_EMULATED_TARGET(sparsify)
RTOPK_EMULATED_OF_LONG_ROWS(topk_in_parts)
RTOPK_EMULATED_OF_LONG_ROWS(topk_by_digits)
RTOPK_EMULATED_OF_LONG_ROWS(mask_by_digits)
RTOPK_EMULATED_OF_LONG_ROWS(sparsify_by_digits)
RTOPK_EMULATED_SPARSE(gather_sum)
RTOPK_EMULATED_SPARSE(sampled_dot)
RTOPK_EMULATED_SPARSE(scatter_add)
RTOPK_EMULATED_SPARSE(neighbor_sum)
RTOPK_EMULATED_SPARSE(neighbor_dot)
RTOPK_EMULATED_SPARSE(edge_dot)

RTOPK_EMULATED int64_t jax_rtopk_topk_parts(int64_t rows, int64_t n, int64_t k, int item_bytes) {
  return jax_rtopk::cuda::policy::parts(rows, n, k, item_bytes);
}

RTOPK_EMULATED int64_t jax_rtopk_topk_in_parts_workspace(int64_t parts, int64_t k, int item_bytes) {
  return jax_rtopk::cuda::parts_workspace_bytes(parts, k, item_bytes);
}

RTOPK_EMULATED int64_t jax_rtopk_by_digits(int64_t rows, int64_t n, int item_bytes) {
  return jax_rtopk::cuda::policy::by_digits(rows, n, item_bytes);
}

RTOPK_EMULATED int64_t jax_rtopk_by_digits_workspace(int item_bytes) {
  return jax_rtopk::cuda::digits_workspace_bytes(item_bytes);
}

RTOPK_EMULATED int64_t jax_rtopk_bucketed_workspace(int64_t candidates, int64_t k, int item_bytes) {
  return jax_rtopk::cuda::workspace_bytes(candidates, k, item_bytes);
}
