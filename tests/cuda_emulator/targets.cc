// The emulated back end's handlers, under names that build.py finds in the library.
#include "ffi/handlers.h"

#define RTOPK_EMULATED_TARGET(name)                                                           \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* jax_rtopk_emulated_##name( \
      XLA_FFI_CallFrame* frame) {                                                             \
    return jax_rtopk::handlers().name(frame);                                                 \
  }

RTOPK_EMULATED_TARGET(topk)
RTOPK_EMULATED_TARGET(mask)
RTOPK_EMULATED_TARGET(sparsify)
