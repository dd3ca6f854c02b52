// The device as kernels see it: memory through accessors.
//
// Under nvcc an accessor is a raw pointer and costs nothing. Under g++ (tests/cuda_emulator, found as
// <cuda_emulator.h>) each access is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(RTOPK_CUDA_EMULATOR)
#include <cuda_emulator.h>
#else
#include <cuda_runtime.h>
#endif

#define RTOPK_DEVICE __device__ __forceinline__
// Of what is large and the same in many kernels, the emulator compiles one: g++ would take minutes.
#if defined(RTOPK_CUDA_EMULATOR)
#define RTOPK_DEVICE_LARGE __attribute__((noinline))
#else
#define RTOPK_DEVICE_LARGE RTOPK_DEVICE
#endif

namespace jax_rtopk::cuda {

// What a branch is mostly about to do.
RTOPK_DEVICE bool likely(bool condition) { return __builtin_expect(condition, true); }
RTOPK_DEVICE bool unlikely(bool condition) { return __builtin_expect(condition, false); }

// The value, of which the compiler does not know that it is the same: so that what is made of it is not prepared where
// it is seldom needed.
template <class Number>
RTOPK_DEVICE Number unforeseen(Number value) {
#if !defined(RTOPK_CUDA_EMULATOR)
  if constexpr (std::is_same_v<Number, float>) {
    asm volatile("" : "+f"(value));
  } else if constexpr (sizeof value == 8) {
    asm volatile("" : "+l"(value));
    // Else the compiler would not know any more that it is one of global memory.
    if constexpr (std::is_pointer_v<Number>) __builtin_assume(__isGlobal(value));
  } else {
    asm volatile("" : "+r"(value));
  }
#endif
  return value;
}

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullMask = 0xffffffffu;

#if !defined(RTOPK_CUDA_EMULATOR)

// What the emulator checks, a GPU does not.
template <class T>
struct GlobalWatch {
  __host__ __device__ GlobalWatch(const void*, size_t) {}
  RTOPK_DEVICE void contains(const void*, size_t) const {}
  RTOPK_DEVICE void read(const void*, size_t) const {}
  RTOPK_DEVICE void write(const void*, size_t) const {}
  RTOPK_DEVICE void change(const void*, size_t) const {}
};
enum class Access { kRead, kWrite, kAtomic };
template <class T>
struct SharedWatch {
  __device__ SharedWatch(const void*, size_t) {}
  RTOPK_DEVICE void touch(Access, const void*) const {}
};

extern __shared__ __align__(16) unsigned char jax_rtopk_dynamic_shared[];
RTOPK_DEVICE void* shared_bytes(size_t offset, size_t) { return jax_rtopk_dynamic_shared + offset; }

#else

using emulator::Access;
using emulator::GlobalWatch;
using emulator::SharedWatch;
inline void* shared_bytes(size_t offset, size_t size) { return emulator::running->shared(offset, size); }

#endif

// Elements that are moved at once: 1, 2, 4, 8 or 16 bytes.
template <class T, int count = 16 / sizeof(T)>
struct alignas(count * sizeof(T)) Pack {
  static constexpr int kCount = count;
  T at[kCount];
};

// The types that the device has instructions for.
template <size_t kBytes>
struct Move;
template <>
struct Move<1> {
  using Type = uint8_t;
};
template <>
struct Move<2> {
  using Type = uint16_t;
};
template <>
struct Move<4> {
  using Type = uint32_t;
};
template <>
struct Move<8> {
  using Type = uint64_t;
};
template <>
struct Move<16> {
  using Type = uint4;
};

// An array in global memory.
template <class T>
class Global : GlobalWatch<T> {
 public:
  using Value = std::remove_const_t<T>;

  __host__ __device__ Global(T* data, int64_t count) : GlobalWatch<T>(data, size_t(count) * sizeof(T)), data_(data) {}

  RTOPK_DEVICE T* address() const { return data_; }

  // The same `count` elements, of whose address the compiler does not know what it is made of: so the addresses of
  // these are additions to it, and not worked out anew from that.
  RTOPK_DEVICE Global hidden(int64_t count) const { return Global(unforeseen(data_), count); }

  // The `count` elements from `first` on.
  RTOPK_DEVICE Global part(int64_t first, int64_t count) const {
    this->contains(data_ + first, size_t(count) * sizeof(T));
    return Global(data_ + first, count);
  }

  template <class I>
  RTOPK_DEVICE Value load(I i) const {
    this->read(data_ + i, sizeof(T));
    return data_[i];
  }
  template <class I>
  RTOPK_DEVICE void store(I i, Value value) const {
    this->write(data_ + i, sizeof(T));
    data_[i] = value;
  }
  // Element i += value, whoever else adds to it.
  template <class I>
  RTOPK_DEVICE void add(I i, Value value) const {
    this->change(data_ + i, sizeof(T));
    atomicAdd(data_ + i, value);
  }
  // Elements i.., whose address is a multiple of the pack's size. They are read or written once: no cache need keep
  // them.
  template <int kCount = Pack<Value>::kCount, class I>
  RTOPK_DEVICE Pack<Value, kCount> load_pack(I i) const {
    static_assert(std::is_const_v<T>);
    Pack<Value, kCount> pack;
    using Moved = typename Move<sizeof pack>::Type;
    this->read(data_ + i, sizeof pack);
    const Moved moved = __ldcs(reinterpret_cast<const Moved*>(data_ + i));
    memcpy(&pack, &moved, sizeof pack);
    return pack;
  }
  // The same of elements that others read, too.
  template <int kCount, class I>
  RTOPK_DEVICE Pack<Value, kCount> load_kept_pack(I i) const {
    Pack<Value, kCount> pack;
    using Moved = typename Move<sizeof pack>::Type;
    this->read(data_ + i, sizeof pack);
    const Moved moved = *reinterpret_cast<const Moved*>(data_ + i);
    memcpy(&pack, &moved, sizeof pack);
    return pack;
  }
  template <class I, int kCount>
  RTOPK_DEVICE void store_pack(I i, const Pack<Value, kCount>& pack) const {
    using Moved = typename Move<sizeof pack>::Type;
    this->write(data_ + i, sizeof pack);
    Moved moved;
    memcpy(&moved, &pack, sizeof pack);
    __stcs(reinterpret_cast<Moved*>(data_ + i), moved);
  }

 private:
  T* data_;
};

// An array in the block's shared memory: `count` elements at byte `offset`.
template <class T>
class Shared : SharedWatch<T> {
 public:
  RTOPK_DEVICE Shared(size_t offset, int count)
      : Shared(shared_bytes(offset, size_t(count) * sizeof(T)), size_t(count) * sizeof(T)) {}

  RTOPK_DEVICE T load(int i) const {
    this->touch(Access::kRead, data_ + i);
    return data_[i];
  }
  RTOPK_DEVICE void store(int i, T value) const {
    this->touch(Access::kWrite, data_ + i);
    data_[i] = value;
  }
  // Element i += value, whoever else adds to it.
  RTOPK_DEVICE void add(int i, T value) const {
    this->touch(Access::kAtomic, data_ + i);
    atomicAdd(data_ + i, value);
  }
#if !defined(RTOPK_CUDA_EMULATOR)
  // As the instructions for shared memory want it.
  RTOPK_DEVICE unsigned address(int i) const { return unsigned(__cvta_generic_to_shared(data_ + i)); }
#endif

 private:
  RTOPK_DEVICE Shared(void* data, size_t bytes) : SharedWatch<T>(data, bytes), data_(static_cast<T*>(data)) {}

  T* data_;
};

// Those elements of a pack that lie before `end`; `packed`: the array starts and ends on a pack.
template <class T, int kCount>
RTOPK_DEVICE void store_run(const Global<T>& out, unsigned first, unsigned end, bool packed,
                            const Pack<T, kCount>& pack) {
  if (packed) {
    if (first < end) out.store_pack(first, pack);
  } else {
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      if (first + j < end) out.store(first + j, pack.at[j]);
  }
}

}  // namespace jax_rtopk::cuda
