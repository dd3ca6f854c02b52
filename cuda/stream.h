// The stream that a kernel is launched on.
#pragma once

#if defined(RTOPK_CUDA_EMULATOR)

namespace jax_rtopk::cuda {
struct Stream {};  // the emulator runs each launch to its end
}  // namespace jax_rtopk::cuda

#else

#include <cuda_runtime_api.h>

namespace jax_rtopk::cuda {
using Stream = cudaStream_t;
}

#endif
