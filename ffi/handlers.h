// The handlers that a back end offers to XLA, under the names that docs/architecture.md gives their targets.
#pragma once

#include "xla/ffi/api/c_api.h"

namespace jax_rtopk {

struct Handlers {
  XLA_FFI_Handler* topk;
  XLA_FFI_Handler* bucketed;
  XLA_FFI_Handler* mask;
  XLA_FFI_Handler* sparsify;
};

// Each native module links exactly one back end, which defines this.
Handlers handlers();

}  // namespace jax_rtopk
