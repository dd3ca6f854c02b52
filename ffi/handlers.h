// The handlers that a back end offers to XLA, under the names that docs/architecture.md gives their targets.
#pragma once

#include "xla/ffi/api/c_api.h"

namespace jax_rtopk {

struct SparseHandlers {
  XLA_FFI_Handler* gather_sum;
  XLA_FFI_Handler* sampled_dot;
  XLA_FFI_Handler* scatter_add;
  XLA_FFI_Handler* neighbor_sum;
  XLA_FFI_Handler* neighbor_dot;
  XLA_FFI_Handler* edge_dot;
};

// Of long rows, where these need other calls; else nullptr.
struct LongRowHandlers {
  XLA_FFI_Handler* topk_in_parts;
  XLA_FFI_Handler* topk_by_digits;
  XLA_FFI_Handler* mask_by_digits;
  XLA_FFI_Handler* sparsify_by_digits;
};

struct Handlers {
  XLA_FFI_Handler* topk;
  XLA_FFI_Handler* bucketed;
  XLA_FFI_Handler* mask;
  XLA_FFI_Handler* sparsify;
  LongRowHandlers long_rows;
  SparseHandlers sparse;
};

// Each native module links exactly one back end, which defines these.
Handlers handlers();
SparseHandlers sparse_handlers();

}  // namespace jax_rtopk
