// What the handlers for CUDA have in common: XLA's stream, errors, traits.
#pragma once

#include <string>

#include "cuda/stream.h"
#include "ffi/decode.h"

#if defined(RTOPK_CUDA_EMULATOR)
#include <cuda_emulator_context.h>
#endif

namespace jax_rtopk {

inline ffi::Error error_of(const std::string& message) {
  return message.empty() ? ffi::Error::Success() : ffi::Error::Internal("jax_rtopk: " + message);
}

#if defined(RTOPK_CUDA_EMULATOR)
inline auto context() { return ffi::Ffi::Bind().Ctx<emulator::StreamContext>(); }
#else
inline auto context() { return ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cuda::Stream> >(); }
#endif

// The handlers only launch on the stream, so XLA may record them into a graph of commands.
inline constexpr auto kTraits = {ffi::Traits::kCmdBufferCompatible};

}  // namespace jax_rtopk
