// What an emulated handler is given in place of XLA's CUDA stream.
#pragma once

#include <optional>

#include "cuda/stream.h"
#include "xla/ffi/api/ffi.h"

namespace emulator {
struct StreamContext {};
}  // namespace emulator

template <>
struct xla::ffi::CtxDecoding<emulator::StreamContext> {
  using Type = jax_rtopk::cuda::Stream;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*, DiagnosticEngine&) { return Type{}; }
};
