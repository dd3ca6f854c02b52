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

// count + (a >= b ? kUnit : 0).
template <unsigned kUnit>
RTOPK_DEVICE unsigned add_if_at_least(unsigned count, int32_t a, int32_t b) {
#if defined(RTOPK_CUDA_EMULATOR)
  return count + (a >= b ? kUnit : 0);
#else
  asm("{\n\t.reg .pred reached;\n\tsetp.ge.s32 reached, %1, %2;\n\t@reached add.u32 %0, %0, %3;\n\t}"
      : "+r"(count)
      : "r"(a), "r"(b), "n"(kUnit));
  return count;
#endif
}

// If a < b, asks for the line of the L2 cache that element i is in, wherever that lies.
template <class T>
RTOPK_DEVICE void prefetch_if_less([[maybe_unused]] int64_t a, [[maybe_unused]] int64_t b,
                                   [[maybe_unused]] const Global<T>& array, [[maybe_unused]] int64_t i) {
#if !defined(RTOPK_CUDA_EMULATOR)  // which has no cache
  asm volatile("{\n\t.reg .pred less;\n\tsetp.lt.s64 less, %0, %1;\n\t@less prefetch.global.L2 [%2];\n\t}" ::"l"(a),
               "l"(b), "l"(array.address() + i));
#endif
}

// Elements i.., or where these do not lie before `end`, ones in all of their bits.
template <class T>
RTOPK_DEVICE Pack<std::remove_const_t<T>> load_pack_or_ones(const Global<T>& array, size_t i, unsigned end) {
#if defined(RTOPK_CUDA_EMULATOR)
  Pack<std::remove_const_t<T>> pack;
  memset(&pack, 0xff, sizeof pack);
  return i < end ? array.load_pack(i) : pack;
#else
  uint32_t words[4];
  asm volatile(
      "{\n\t.reg .pred there;\n\tmov.b32 %0, -1;\n\tmov.b32 %1, -1;\n\tmov.b32 %2, -1;\n\tmov.b32 %3, -1;\n\t"
      "setp.lt.u32 there, %5, %6;\n\t@there ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
      : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
      : "l"(array.address() + i), "r"(unsigned(i)), "r"(end));
  Pack<std::remove_const_t<T>> pack;
  memcpy(&pack, words, sizeof pack);
  return pack;
#endif
}

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

// bits ^ (sign | 0x80000000), sign being as above: the key of a float where the largest come first.
RTOPK_DEVICE uint32_t key_of_float(uint32_t bits) {
  const auto sign = uint32_t(int32_t(bits) >> 31);
#if defined(RTOPK_CUDA_EMULATOR)
  return bits ^ (sign | 0x80000000u);
#else
  uint32_t key;
  asm("lop3.b32 %0, %1, %2, 0x80000000, 0x1e;" : "=r"(key) : "r"(bits), "r"(sign));
  return key;
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

// A half of `halves` above the same half of `lower`.
template <int kHalf>
RTOPK_DEVICE uint32_t join_halves(uint32_t halves, uint32_t lower) {
#if defined(RTOPK_CUDA_EMULATOR)
  return kHalf == 0 ? halves << 16 | (lower & 0xffffu) : (halves & 0xffff0000u) | lower >> 16;
#else
  uint32_t joined;  // the compiler would move the constant into a register
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(joined) : "r"(halves), "r"(lower), "n"(kHalf == 0 ? 0x1054 : 0x3276));
  return joined;
#endif
}

// kMask & ~word.
template <uint32_t kMask>
RTOPK_DEVICE uint32_t complement_in(uint32_t word) {
#if defined(RTOPK_CUDA_EMULATOR)
  return kMask & ~word;
#else
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, 0, 0x0c;" : "=r"(result) : "r"(word), "n"(kMask));
  return result;
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

// What the last of the run of kLanes lanes holds.
template <int kLanes>
RTOPK_DEVICE unsigned from_last_lane(unsigned value) {
#if defined(RTOPK_CUDA_EMULATOR)
  return __shfl_sync(kFullMask, value, kLanes - 1, kLanes);
#else
  unsigned received;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, %3, 0xffffffff;"
               : "=r"(received)
               : "r"(value), "n"(kLanes - 1), "n"((kWarp - kLanes) << 8 | (kWarp - 1)));
  return received;
#endif
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

// Stores array[i] where word >= least: without a branch.
template <class Word>
RTOPK_DEVICE void store_if_at_least(int32_t word, int32_t least, const Shared<Selected<Word>>& array, unsigned i,
                                    const Selected<Word>& item) {
#if !defined(RTOPK_CUDA_EMULATOR)
  if constexpr (sizeof(Word) == 4) {
    asm volatile(
        "{\n\t.reg .pred chosen;\n\tsetp.ge.s32 chosen, %0, %1;\n\t@chosen st.shared.v2.u32 [%2], {%3, %4};\n\t}" ::"r"(
            word),
        "r"(least), "r"(array.address(int(i))), "r"(item.key), "r"(item.index)
        : "memory");
    return;
  }
#endif
  if (word >= least) array.store(int(i), item);
}

// count, and how many of array[kFirst .. kFirst + kCount - 1] have a key above `key`; kCount is even.
template <int kFirst, int kCount>
RTOPK_DEVICE unsigned add_those_above(unsigned count, const Shared<Selected<uint32_t>>& array, uint32_t key) {
  if constexpr (kCount > 2) {
    count = add_those_above<kFirst, 2>(count, array, key);
    return add_those_above<kFirst + 2, kCount - 2>(count, array, key);
  } else {
#if defined(RTOPK_CUDA_EMULATOR)
    return count + (array.load(kFirst).key > key) + (array.load(kFirst + 1).key > key);
#else
    asm volatile(
        "{\n\t.reg .u32 a, b, unused;\n\t.reg .pred above;\n\tld.shared.v4.u32 {a, unused, b, unused}, [%1 + %3];\n\t"
        "setp.gt.u32 above, a, %2;\n\t@above add.u32 %0, %0, 1;\n\t"
        "setp.gt.u32 above, b, %2;\n\t@above add.u32 %0, %0, 1;\n\t}"
        : "+&r"(count)
        : "r"(array.address(0)), "r"(key), "n"(kFirst * 8)
        : "memory");
    return count;
#endif
  }
}

// Which lanes of the warp hold a word that is not below `least`, a bit each.
RTOPK_DEVICE unsigned lanes_from(int32_t word, int32_t least) {
#if defined(RTOPK_CUDA_EMULATOR)
  return __ballot_sync(kFullMask, word >= least);
#else
  unsigned lanes;  // the compiler would move the mask into a register
  asm volatile("{\n\t.reg .pred from;\n\tsetp.ge.s32 from, %1, %2;\n\tvote.sync.ballot.b32 %0, from, 0xffffffff;\n\t}"
               : "=r"(lanes)
               : "r"(word), "r"(least));
  return lanes;
#endif
}

// How many of `lanes`, a bit each, come before this one.
RTOPK_DEVICE int lanes_before_this(unsigned lanes) {
#if defined(RTOPK_CUDA_EMULATOR)
  return __popc(lanes & ((1u << threadIdx.x % kWarp) - 1));
#else
  unsigned before;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
  return __popc(lanes & before);
#endif
}

// The largest of the words that the lanes of a warp hold.
RTOPK_DEVICE uint32_t largest_of_warp(uint32_t word) {
#if defined(RTOPK_CUDA_EMULATOR)
  return __reduce_max_sync(kFullMask, word);
#else
  uint32_t largest;  // the compiler would move the mask into a register
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(word));
  return largest;
#endif
}

RTOPK_DEVICE unsigned sum_of_warp(unsigned word) {
#if defined(RTOPK_CUDA_EMULATOR)
  return __reduce_add_sync(kFullMask, word);
#else
  unsigned sum;
  asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"(word));
  return sum;
#endif
}

// Stores values[i] and indices[i] where word >= least: without a branch.
template <class Bits>
RTOPK_DEVICE void store_if_at_least(int32_t word, int32_t least, const Global<Bits>& values, uint32_t value,
                                    const Global<int32_t>& indices, int32_t index, unsigned i) {
#if defined(RTOPK_CUDA_EMULATOR)
  if (word < least) return;
  values.store(i, Bits(value));
  indices.store(i, index);
#else
  if constexpr (sizeof(Bits) == 4) {
    asm volatile(
        "{\n\t.reg .pred chosen;\n\t.reg .u64 place;\n\tsetp.ge.s32 chosen, %0, %1;\n\t"
        "mad.wide.u32 place, %6, 4, %2;\n\t@chosen st.global.u32 [place], %3;\n\t"
        "mad.wide.u32 place, %6, 4, %4;\n\t@chosen st.global.u32 [place], %5;\n\t}" ::"r"(word),
        "r"(least), "l"(values.address()), "r"(value), "l"(indices.address()), "r"(index), "r"(i)
        : "memory");
  } else {
    asm volatile(
        "{\n\t.reg .pred chosen;\n\t.reg .u64 place;\n\tsetp.ge.s32 chosen, %0, %1;\n\t"
        "mad.wide.u32 place, %6, 2, %2;\n\t@chosen st.global.u16 [place], %3;\n\t"
        "mad.wide.u32 place, %6, 4, %4;\n\t@chosen st.global.u32 [place], %5;\n\t}" ::"r"(word),
        "r"(least), "l"(values.address()), "r"(uint32_t(value)), "l"(indices.address()), "r"(index), "r"(i)
        : "memory");
  }
#endif
}

// A word and what belongs to it.
struct alignas(8) WordItem {
  int32_t word, index;
};

// array[i + kOffset] if that is before `end`, else the least word: without a branch.
template <int kOffset>
RTOPK_DEVICE WordItem load_before(const Shared<WordItem>& array, int i, int end) {
#if defined(RTOPK_CUDA_EMULATOR)
  return i + kOffset < end ? array.load(i + kOffset) : WordItem{INT32_MIN, 0};
#else
  WordItem item;
  asm volatile(
      "{\n\t.reg .pred inside;\n\tsetp.lt.s32 inside, %3, %4;\n\tmov.b32 %0, 0x80000000;\n\t"
      "@inside ld.shared.v2.u32 {%0, %1}, [%2 + %5];\n\t}"
      : "=&r"(item.word), "=&r"(item.index)
      : "r"(array.address(i)), "r"(i + kOffset), "r"(end), "n"(kOffset * 8)
      : "memory");
  return item;
#endif
}
template <int kOffset>
RTOPK_DEVICE int32_t load_before(const Shared<int32_t>& array, int i, int end) {
#if defined(RTOPK_CUDA_EMULATOR)
  return i + kOffset < end ? array.load(i + kOffset) : INT32_MIN;
#else
  int32_t word;
  asm volatile(
      "{\n\t.reg .pred inside;\n\tsetp.lt.s32 inside, %2, %3;\n\tmov.b32 %0, 0x80000000;\n\t"
      "@inside ld.shared.u32 %0, [%1 + %4];\n\t}"
      : "=&r"(word)
      : "r"(array.address(i)), "r"(i + kOffset), "r"(end), "n"(kOffset * 4)
      : "memory");
  return word;
#endif
}

// Appends a thread's choice to an array in shared memory, without a branch.
template <class Item>
class Appender {
 public:
  RTOPK_DEVICE Appender(const Shared<Item>& array, int place) : array_(array), place_(place) {
#if !defined(RTOPK_CUDA_EMULATOR)
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(address_) : "r"(place), "n"(sizeof(Item)), "r"(array.address(0)));
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

  // A word that is not below `least`, with its index or by itself.
  RTOPK_DEVICE void append_if_at_least(int32_t word, int32_t index, int32_t least) {
#if defined(RTOPK_CUDA_EMULATOR)
    if (word >= least) array_.store(place_++, Item{word, index});
#else
    asm volatile(
        "{\n\t.reg .pred chosen;\n\tsetp.ge.s32 chosen, %1, %3;\n\t@chosen st.shared.v2.u32 [%0], {%1, %2};\n\t"
        "@chosen add.u32 %0, %0, 8;\n\t}"
        : "+r"(address_)
        : "r"(word), "r"(index), "r"(least)
        : "memory");
#endif
  }
  RTOPK_DEVICE void append_if_at_least(int32_t word, int32_t least) {
#if defined(RTOPK_CUDA_EMULATOR)
    if (word >= least) array_.store(place_++, word);
#else
    asm volatile(
        "{\n\t.reg .pred chosen;\n\tsetp.ge.s32 chosen, %1, %2;\n\t@chosen st.shared.u32 [%0], %1;\n\t"
        "@chosen add.u32 %0, %0, 4;\n\t}"
        : "+r"(address_)
        : "r"(word), "r"(least)
        : "memory");
#endif
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
