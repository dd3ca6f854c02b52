// Single instructions, or pairs of them, that C++ has no words for and the compiler does not find. For the emulator
// each is said in C++.
#pragma once

#include "cuda/device.cuh"

namespace jax_rtopk::cuda {

// count + (a >= b): a subtraction for its carry, and an addition of the carry.
RTOPK_DEVICE unsigned add_if_at_least(unsigned count, uint32_t a, uint32_t b) {
#if defined(RTOPK_CUDA_EMULATOR)
  return count + (a >= b);
#else
  asm("{\n\t.reg .u32 unused;\n\tsub.cc.u32 unused, %1, %2;\n\taddc.u32 %0, %0, 0;\n\t}"
      : "+r"(count)
      : "r"(a), "r"(b));
  return count;
#endif
}
RTOPK_DEVICE unsigned add_if_at_least(unsigned count, uint64_t a, uint64_t b) { return count + unsigned(a >= b); }

// bits ^ (sign & spread), sign being all ones if the sign bit is set, else 0.
RTOPK_DEVICE uint32_t spread_sign(uint32_t bits, uint32_t spread) {
  const auto sign = uint32_t(int32_t(bits) >> 31);
#if defined(RTOPK_CUDA_EMULATOR)
  return bits ^ (sign & spread);
#else
  uint32_t spreaded;
  asm("lop3.b32 %0, %1, %2, %3, 0x78;" : "=r"(spreaded) : "r"(bits), "r"(sign), "r"(spread));
  return spreaded;
#endif
}

// In each half of a word all ones if its sign bit is set, else 0.
RTOPK_DEVICE uint32_t signs_of_halves(uint32_t halves) {
#if defined(RTOPK_CUDA_EMULATOR)
  return (halves >> 15 & 0x10001u) * 0xffffu;
#else
  uint32_t signs;  // copies of the sign of byte 3, and of byte 1; __byte_perm cannot: it ignores what asks for signs
  asm("prmt.b32 %0, %1, %1, 0xbb99;" : "=r"(signs) : "r"(halves));
  return signs;
#endif
}

// Three-way exclusive or.
RTOPK_DEVICE uint32_t xor3(uint32_t a, uint32_t b, uint32_t c) {
#if defined(RTOPK_CUDA_EMULATOR)
  return a ^ b ^ c;
#else
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
#endif
}

// What `lane` of the run of kLanes lanes holds.
template <int kLanes, class Word>
RTOPK_DEVICE Word from_lane(Word value, int lane) {
#if !defined(RTOPK_CUDA_EMULATOR)
  if constexpr (sizeof(Word) == 4) {  // the compiler would move the constants into registers
    Word received;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, %3, 0xffffffff;"
                 : "=r"(received)
                 : "r"(value), "r"(lane), "n"((kWarp - kLanes) << 8 | (kWarp - 1)));
    return received;
  }
#endif
  return __shfl_sync(kFullMask, value, lane, kLanes);
}

// What the lane holds whose number differs in the bits of `distance`, a constant less than kLanes.
template <int kLanes, int kDistance, class Word>
RTOPK_DEVICE Word from_partner(Word value) {
#if !defined(RTOPK_CUDA_EMULATOR)
  if constexpr (sizeof(Word) == 4) {
    Word received;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, %3, 0xffffffff;"
                 : "=r"(received)
                 : "r"(value), "n"(kDistance), "n"((kWarp - kLanes) << 8 | (kWarp - 1)));
    return received;
  }
#endif
  return __shfl_xor_sync(kFullMask, value, kDistance, kLanes);
}

// value, and what the lane kDistance before holds added if that is in the same run of kLanes lanes.
template <int kLanes, int kDistance>
RTOPK_DEVICE unsigned add_from_before(unsigned value) {
#if defined(RTOPK_CUDA_EMULATOR)
  const unsigned other = __shfl_up_sync(kFullMask, value, unsigned(kDistance), kLanes);
  return int(threadIdx.x % kLanes) >= kDistance ? value + other : value;
#else
  asm volatile(
      "{\n\t.reg .u32 other;\n\t.reg .pred inside;\n\tshfl.sync.up.b32 other|inside, %0, %1, %2, 0xffffffff;\n\t"
      "@inside add.u32 %0, %0, other;\n\t}"
      : "+r"(value)
      : "n"(kDistance), "n"((kWarp - kLanes) << 8));
  return value;
#endif
}

// A selected element, in memory as one piece.
template <class Word>
struct alignas(2 * sizeof(Word)) Selected {
  Word key;
  int32_t index;

  RTOPK_DEVICE bool before(const Selected& other) const {
    return key > other.key || (key == other.key && index < other.index);
  }
};

// Appends a thread's choice to an array in shared memory, without a branch.
template <class Item>
class Appender {
 public:
  RTOPK_DEVICE Appender(const Shared<Item>& array, int place) : array_(array), place_(place) {
#if !defined(RTOPK_CUDA_EMULATOR)
    address_ = array.address(place);
#endif
  }

  // A key from lo to last.
  template <class Word>
  RTOPK_DEVICE void append_if_between(Word key, Word lo, Word last) {
#if !defined(RTOPK_CUDA_EMULATOR)
    if constexpr (sizeof(Word) == 4) {
      asm volatile(
          "{\n\t.reg .pred chosen;\n\tsetp.ge.u32 chosen, %1, %2;\n\tsetp.le.and.u32 chosen, %1, %3, chosen;\n\t"
          "@chosen st.shared.u32 [%0], %1;\n\t@chosen add.u32 %0, %0, 4;\n\t}"
          : "+r"(address_)
          : "r"(key), "r"(lo), "r"(last)
          : "memory");
      return;
    }
#endif
    if (key >= lo && key <= last) array_.store(place_++, key);
  }

  // An element whose key is not below lo.
  template <class Word>
  RTOPK_DEVICE void append_if_at_least(const Selected<Word>& item, Word lo) {
#if !defined(RTOPK_CUDA_EMULATOR)
    if constexpr (sizeof(Word) == 4) {
      asm volatile(
          "{\n\t.reg .pred chosen;\n\tsetp.ge.u32 chosen, %1, %3;\n\t@chosen st.shared.v2.u32 [%0], {%1, %2};\n\t"
          "@chosen add.u32 %0, %0, 8;\n\t}"
          : "+r"(address_)
          : "r"(item.key), "r"(item.index), "r"(lo)
          : "memory");
      return;
    }
#endif
    if (item.key >= lo) array_.store(place_++, item);
  }

 private:
  Shared<Item> array_;
  int place_;
  unsigned address_ = 0;  // of array_[place_], where the instructions above are used
};

}  // namespace jax_rtopk::cuda
