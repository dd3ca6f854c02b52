// The one way to a kernel, for the GPU and for the emulator.
#pragma once

#include <string>

#include "device.cuh"

namespace jax_rtopk::cuda {

#if defined(__CUDACC__)

using Stream = cudaStream_t;

// Returns "" or what CUDA says against the launch.
template <class... Parameters, class... Arguments>
std::string launch(const char* name, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                   size_t shared_bytes, Stream stream, const Arguments&... arguments) {
  kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return "";
  return std::string("kernel ") + name + ": " + cudaGetErrorString(error);
}

#else

struct Stream {};

template <class... Parameters, class... Arguments>
std::string launch(const char* name, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                   size_t shared_bytes, Stream, const Arguments&... arguments) {
  return emulator::launch(name, kernel, blocks, threads, shared_bytes, arguments...);
}

#endif

}  // namespace jax_rtopk::cuda
