// The device as kernels see it: memory through accessors, and the instructions that C++ has no name for.
//
// Under nvcc an accessor is a raw pointer and costs nothing. Under g++ (tests/cuda_emulator, found as
// <cuda_emulator.h>) each access is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include <cuda_emulator.h>
#endif

#define RTOPK_DEVICE __device__ __forceinline__

namespace jax_rtopk::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullMask = 0xffffffffu;

#if defined(__CUDACC__)

// What the emulator checks, a GPU does not.
struct GlobalWatch {
  __host__ __device__ GlobalWatch(const void*, size_t) {}
  RTOPK_DEVICE void contains(const void*, size_t) const {}
  RTOPK_DEVICE void read(const void*, size_t, bool) const {}
  RTOPK_DEVICE void write(const void*, size_t) const {}
};
enum class Access { kRead, kWrite, kAtomic };
struct SharedWatch {
  __device__ SharedWatch(const void*, size_t) {}
  RTOPK_DEVICE void touch(Access, const void*, size_t) const {}
};

extern __shared__ __align__(16) unsigned char jax_rtopk_dynamic_shared[];
RTOPK_DEVICE void* shared_bytes(size_t offset, size_t) { return jax_rtopk_dynamic_shared + offset; }

#else

using emulator::Access;
using emulator::GlobalWatch;
using emulator::SharedWatch;
inline void* shared_bytes(size_t offset, size_t size) { return emulator::running->shared(offset, size); }

#endif

// Sixteen bytes that are moved at once.
template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T at[kCount];
};

// An array in global memory.
template <class T>
class Global : GlobalWatch {
 public:
  using Value = std::remove_const_t<T>;

  __host__ __device__ Global(T* data, int64_t count) : GlobalWatch(data, size_t(count) * sizeof(T)), data_(data) {}

  RTOPK_DEVICE T* address() const { return data_; }

  // The `count` elements from `first` on.
  RTOPK_DEVICE Global part(int64_t first, int64_t count) const {
    this->contains(data_ + first, size_t(count) * sizeof(T));
    return Global(data_ + first, count);
  }

  template <class I>
  RTOPK_DEVICE Value load(I i) const {
    this->read(data_ + i, sizeof(T), std::is_const_v<T>);
    return data_[i];
  }
  template <class I>
  RTOPK_DEVICE void store(I i, Value value) const {
    this->write(data_ + i, sizeof(T));
    data_[i] = value;
  }
  // Elements i.., i a multiple of the pack's size in an array that starts on sixteen bytes. They are read once: don't
  // keep them in the caches.
  template <class I>
  RTOPK_DEVICE Pack<Value> load_pack(I i) const {
    static_assert(std::is_const_v<T>);
    this->read(data_ + i, 16, true);
#if defined(__CUDACC__)
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(data_ + i));
    return reinterpret_cast<const Pack<Value>&>(bits);
#else
    return *reinterpret_cast<const Pack<Value>*>(data_ + i);
#endif
  }
  template <class I>
  RTOPK_DEVICE void store_pack(I i, const Pack<Value>& pack) const {
    this->write(data_ + i, 16);
#if defined(__CUDACC__)
    __stcs(reinterpret_cast<uint4*>(data_ + i), reinterpret_cast<const uint4&>(pack));
#else
    *reinterpret_cast<Pack<Value>*>(data_ + i) = pack;
#endif
  }

 private:
  T* data_;
};

// An array in the block's shared memory: `count` elements at byte `offset`.
template <class T>
class Shared : SharedWatch {
 public:
  RTOPK_DEVICE Shared(size_t offset, int count)
      : Shared(shared_bytes(offset, size_t(count) * sizeof(T)), size_t(count) * sizeof(T)) {}

  RTOPK_DEVICE T load(int i) const {
    this->touch(Access::kRead, data_ + i, sizeof(T));
    return data_[i];
  }
  RTOPK_DEVICE void store(int i, T value) const {
    this->touch(Access::kWrite, data_ + i, sizeof(T));
    data_[i] = value;
  }

 private:
  RTOPK_DEVICE Shared(void* data, size_t bytes) : SharedWatch(data, bytes), data_(static_cast<T*>(data)) {}

  T* data_;
};

// count + (a >= b): two instructions (a subtraction for its carry, an addition of the carry), which the compiler does
// not find.
RTOPK_DEVICE unsigned add_if_at_least(unsigned count, uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  asm("{\n\t.reg .u32 unused;\n\tsub.cc.u32 unused, %1, %2;\n\taddc.u32 %0, %0, 0;\n\t}"
      : "+r"(count)
      : "r"(a), "r"(b));
  return count;
#else
  return count + (a >= b);
#endif
}

}  // namespace jax_rtopk::cuda
