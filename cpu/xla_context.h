// What the CPU's handlers have in common: XLA's thread pool, exceptions, fresh pages.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "cpu/huge_pages.h"
#include "cpu/parallel.h"
#include "ffi/decode.h"

namespace jax_rtopk {

inline Parallel parallel_over(ffi::ThreadPool& pool) {
  return Parallel(pool.num_threads(), [&pool](std::function<void()> work) { pool.Schedule(std::move(work)); });
}

inline void prefer_huge_pages_for(ffi::AnyBuffer& result) {
  prefer_huge_pages(result.untyped_data(), result.size_bytes());
}

// No exception may reach XLA, which is compiled without them. The kernels throw none but for memory that cannot be had.
template <class F>
ffi::Error guarded(F&& run) {
  try {
    run();
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted,
                      std::string("jax_rtopk: out of memory for the kernel's own buffers (") + error.what() +
                          "): free some, or choose a smaller k or num_buckets, by which they grow");
  }
}

inline auto context() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>(); }

}  // namespace jax_rtopk
