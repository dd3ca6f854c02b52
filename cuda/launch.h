// The one way to a kernel, for the GPU and for the emulator.
#pragma once

#include <string>

#include "cuda/device.cuh"
#include "cuda/stream.h"

namespace jax_rtopk::cuda {

#if defined(RTOPK_CUDA_EMULATOR)

template <class... Parameters, class... Arguments>
std::string launch(const char* name, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                   size_t shared_bytes, Stream, const Arguments&... arguments) {
  return emulator::launch(name, kernel, blocks, threads, shared_bytes, arguments...);
}

inline int multiprocessors() { return 1; }

inline std::string fill_with_zeros(void* data, size_t bytes, Stream) {
  std::memset(data, 0, bytes);
  return "";
}

#else

inline std::string result_of(const char* what, cudaError_t error) {
  return error == cudaSuccess ? "" : std::string(what) + ": " + cudaGetErrorString(error);
}

// Returns "" or what CUDA says against the launch.
template <class... Parameters, class... Arguments>
std::string launch(const char* name, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                   size_t shared_bytes, Stream stream, const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, arguments...);
  return result_of(name, cudaGetLastError());
}

// Of the current device; 0 if there is none.
inline int multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
  return count;
}

inline std::string fill_with_zeros(void* data, size_t bytes, Stream stream) {
  return result_of("cudaMemsetAsync", cudaMemsetAsync(data, 0, bytes, stream));
}

#endif

}  // namespace jax_rtopk::cuda
