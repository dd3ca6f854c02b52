// What nvcc and <cuda_runtime.h> offer a kernel, for g++: keywords, built-in variables, intrinsics, and the checks
// behind the accessors of cuda/device.cuh.
//
// A kernel that uses what is not here doesn't compile.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

namespace emulator {

struct Index {
  unsigned (Machine::*read)() const;
  operator unsigned() const { return (running->*read)(); }
};
struct Dimension {
  Index x;
};

template <class T>
std::uint64_t to_word(T value) {
  static_assert(std::is_integral_v<T> && sizeof(T) >= 4, "as on the GPU, collectives take 32 or 64 bits");
  return std::uint64_t(std::make_unsigned_t<T>(value));
}

template <class T>
T collect(Op op, unsigned mask, T value, unsigned lane_or_distance, unsigned width, Where where) {
  return T(running->collective({op, mask, to_word(value), lane_or_distance, width, where}));
}

// The piece of memory that an accessor may touch.
class Extent {
 public:
  Extent(const char* name, const void* begin, std::size_t bytes)
      : name_(name), begin_(static_cast<const char*>(begin)), bytes_(bytes) {}

  void contains(const void* address, std::size_t size) const {
    if (offset(address) > bytes_ || size > bytes_ - offset(address))
      running->fault("out of bounds: " + describe(address, size), {});
  }
  void accessible(const void* address, std::size_t size) const {
    contains(address, size);
    if (reinterpret_cast<std::uintptr_t>(address) % size) running->fault("misaligned: " + describe(address, size), {});
  }

 private:
  std::size_t offset(const void* address) const { return std::size_t(static_cast<const char*>(address) - begin_); }
  std::string describe(const void* address, std::size_t size) const {
    return std::to_string(size) + " bytes at byte " + std::to_string(std::ptrdiff_t(offset(address))) + " of a " +
           name_ + " array of " + std::to_string(bytes_) + " bytes";
  }

  const char *name_, *begin_;
  std::size_t bytes_;
};

// The checks behind Global<T>: bounds, alignment, and races within a block over what kernels write.
template <class T>
class GlobalWatch : Extent {
 public:
  GlobalWatch(const void* begin, std::size_t bytes) : Extent("global", begin, bytes) {}
  using Extent::contains;
  void read(const void* address, std::size_t size) const {
    accessible(address, size);
    if (!std::is_const_v<T>) running->touch_global(Access::kRead, address, size, sizeof(T));
  }
  void write(const void* address, std::size_t size) const {
    accessible(address, size);
    running->touch_global(Access::kWrite, address, size, sizeof(T));
  }
  void change(const void* address, std::size_t size) const {
    accessible(address, size);
    running->touch_global(Access::kAtomic, address, size, sizeof(T));
  }
};

// The checks behind Shared<T>: bounds, alignment, races, reads of what nobody wrote.
template <class T>
class SharedWatch : Extent {
 public:
  SharedWatch(const void* begin, std::size_t bytes) : Extent("shared", begin, bytes) {}
  void touch(Access access, const void* address) const {
    accessible(address, sizeof(T));
    running->touch_shared(access, address, sizeof(T), sizeof(T));
  }
};

// Calls the kernel once a thread. Returns "" or what a thread did wrong.
template <class... Parameters, class... Arguments>
std::string launch(const char* name, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                   std::size_t shared_bytes, const Arguments&... arguments) {
  return this_threads_machine().run(name, blocks, threads, shared_bytes, [&] { kernel(arguments...); });
}

}  // namespace emulator

inline constexpr emulator::Dimension threadIdx{{&emulator::Machine::thread}}, blockDim{{&emulator::Machine::threads}},
    blockIdx{{&emulator::Machine::block}}, gridDim{{&emulator::Machine::blocks}};

// The default arguments are evaluated where the kernel calls.
#define RTOPK_WHERE emulator::Where where = emulator::Where::current()

inline void __syncwarp(unsigned mask = ~0u, RTOPK_WHERE) {
  emulator::collect(emulator::Op::kSyncWarp, mask, 0u, 0, 0, where);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kBallot, mask, unsigned(predicate), 0, 0, where);
}
inline bool __any_sync(unsigned mask, bool predicate, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kAny, mask, unsigned(predicate), 0, 0, where);
}
inline bool __all_sync(unsigned mask, bool predicate, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kAll, mask, unsigned(predicate), 0, 0, where);
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, RTOPK_WHERE) {
  return unsigned(emulator::collect(emulator::Op::kMatchAny, mask, emulator::to_word(value), 0, 0, where));
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kShuffle, mask, value, unsigned(lane), unsigned(width), where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kShuffleUp, mask, value, distance, unsigned(width), where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kShuffleDown, mask, value, distance, unsigned(width), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kShuffleXor, mask, value, unsigned(lanes), unsigned(width), where);
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kAdd, mask, value, 0, 0, where);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kMin, mask, value, 0, 0, where);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kMax, mask, value, 0, 0, where);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, RTOPK_WHERE) {
  return emulator::collect(emulator::Op::kOr, mask, value, 0, 0, where);
}

inline void __syncthreads(RTOPK_WHERE) { emulator::running->barrier(false, where); }
inline int __syncthreads_or(int predicate, RTOPK_WHERE) {
  return emulator::running->barrier(predicate != 0, where) != 0;
}
inline int __syncthreads_count(int predicate, RTOPK_WHERE) {
  return int(emulator::running->barrier(predicate != 0, where));
}

#undef RTOPK_WHERE

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

// Loads and stores of what the caches need not keep.
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}

// Fibers take turns at rendezvous only, so nothing comes between the load and the store.
template <class T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = T(before + value);
  return before;
}

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(unsigned(bits)); }
inline int __ffs(int bits) { return bits ? std::countr_zero(unsigned(bits)) + 1 : 0; }
