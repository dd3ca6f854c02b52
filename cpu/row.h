// A row of the operand as vectors of keys, and the sweeps over it.
//
// Keys of 8 and 16 bits are processed in 32-bit words. A *lane* is a key in the form in which the vectors compare it,
// signed or unsigned; everything here works on lanes, and only the search (native/) on keys. Everything here is
// compiled once per instruction set. So that the linker never keeps code with the wrong instructions, it lies in a
// namespace of the instruction set's name; what it calls elsewhere is always inlined (native/) or is a template over a
// type of that namespace (std::vector); and cmake/Cpu.cmake links the smallest instruction set first.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cpu/simd/select.h"
#include "native/ordered_key.h"
#include "native/search.h"

namespace jax_rtopk::RTOPK_ISA {

constexpr int32_t min(int32_t a, int32_t b) { return a < b ? a : b; }
constexpr int32_t max(int32_t a, int32_t b) { return a > b ? a : b; }
// Of a mask of lanes: at most four, where there is no instruction for it.
inline int popcount(uint32_t mask) {
#if defined(__POPCNT__)
  return __builtin_popcount(mask);
#else
  return int(0x4332322132212110 >> 4 * mask & 7);
#endif
}

template <class Bits>
class Row {
 public:
  using Word = std::conditional_t<sizeof(Bits) <= 4, uint32_t, uint64_t>;
  using V = Vec<Word>;
  using Lane = typename V::Lane;
  using Reg = typename V::Reg;
  using Mask = typename V::Mask;
  static constexpr int kLanes = V::kLanes;
  static constexpr int64_t kItemBytes = sizeof(Bits);
  static constexpr Mask kAll = Mask((1ULL << kLanes) - 1);
  static constexpr int kMaxChunk = 16 / int(sizeof(Bits));         // of a search plan
  static constexpr Lane kNone = std::numeric_limits<Lane>::min();  // in lanes outside the row: no key is less

  static constexpr Lane lane_of(Word key) { return Lane(key ^ kBias); }
  static constexpr Word key_of(Lane lane) { return Word(lane) ^ kBias; }
  static constexpr Lane kLeast = lane_of(0), kGreatest = lane_of(KeyMap<Bits>::kOnes);

  Row(const KeyMap<Bits>& map, const Bits* bits, int32_t n)
      : map_(map),
        bits_(bits),
        n_(n),
        spread_(V::set1(Lane(Word(map.spread) << kShift))),
        borrow_(V::set1(Lane(Word(map.borrow) << kShift))),
        flip_(V::set1(Lane((Word(map.flip) << kShift) ^ kBias))),
        borrows_(map.borrow != 0) {}

  int32_t n() const { return n_; }
  Row at(const Bits* bits) const {
    Row other = *this;
    other.bits_ = bits;
    return other;
  }
  Row head(int32_t n) const {
    Row first = *this;
    first.n_ = n;
    return first;
  }

  Bits bits(int32_t i) const { return bits_[i]; }
  // The bits of elements that are only known as lanes, if the map tells them.
  void bits_of(const Lane* lanes, int32_t count, Bits* bits) const {
    const KeyMap<Bits> map = map_;
    for (int32_t i = 0; i < count; ++i) bits[i] = map.bits(Bits(key_of(lanes[i])));
  }
  Lane lane(int32_t i) const { return lane_of(map_(bits_[i])); }
  // The kLanes elements from i, all inside the row.
  __attribute__((always_inline)) Reg lanes(int32_t i) const { return lanes_of(V::widen(bits_ + i)); }

  // What is fetched may lie behind the row. Always inlined: GCC leaves out calls of what only fetches, as without
  // effect.
  __attribute__((always_inline)) void prefetch(int64_t i) const {
    __builtin_prefetch(reinterpret_cast<const char*>(bits_) + i * int64_t(sizeof(Bits)));
  }

  // For a sweep that is at element i and the first over all of a row: fetches what it will come to, and at the end what
  // lies behind the row, since the CPU by itself does not look beyond the end of a page, of 4 KB. Not into the
  // innermost cache: that has few places to wait for memory in, and each would be taken all the way.
  __attribute__((always_inline)) void fetch_ahead(int32_t i) const {
    constexpr int64_t kAheadBytes = 1 << 13;
    __builtin_prefetch(reinterpret_cast<const char*>(bits_ + i) + kAheadBytes, /*rw=*/0, /*locality=*/2);
  }

  // Calls f(index of the first element, lanes, which of them are inside the row) over [begin, end). `ahead`: and
  // fetches ahead.
  template <bool ahead = false, class F>
  __attribute__((always_inline)) void sweep(int32_t begin, int32_t end, F f) const {
    const Row row = *this;  // which no store in f can change, so it stays in registers
    int32_t i = begin;
    for (; i <= end - kLanes; i += kLanes) {
      if constexpr (ahead) row.fetch_ahead(i);
      f(i, row.lanes(i), kAll);
    }
    if (i < end) f(i, row.tail_lanes(i, end - i), Mask((1U << (end - i)) - 1));
  }

 private:
  // Narrow values are moved to the top of the word, where their sign is the word's, and the key back down.
  static constexpr int kShift = int(8 * (sizeof(Word) - sizeof(Bits)));
  static constexpr Word kBias =
      kShift == 0 && std::is_signed_v<Lane> ? Word(Word(1) << (8 * sizeof(Word) - 1)) : Word(0);

  __attribute__((always_inline)) Reg lanes_of(Reg x) const {
    if constexpr (kShift > 0) x = V::template shift_left<kShift>(x);
    x = borrows_ ? V::key(x, spread_, borrow_, flip_) : V::key(x, spread_, flip_);
    if constexpr (kShift > 0) x = V::template shift_right<kShift>(x);
    return x;
  }

  __attribute__((always_inline)) Reg tail_lanes(int32_t i, int count) const {
    return V::keep_first(lanes_of(V::widen_first(bits_ + i, count)), count, V::set1(kNone));
  }

  KeyMap<Bits> map_;
  const Bits* bits_;
  int32_t n_;
  Reg spread_, borrow_, flip_;
  bool borrows_;
};

template <class Row>
typename Row::Lane largest_lane(const Row& row) {
  using V = typename Row::V;
  auto top = V::set1(Row::kNone);
  row.sweep(0, row.n(), [&](int32_t, auto lanes, auto) { top = V::max(top, lanes); });
  return V::reduce_max(top);
}

struct Counts {
  int32_t low, high;
};

// How many lanes are above each of two.
template <class Row, class Lane = typename Row::Lane>
Counts count_above(const Row& row, Lane low, Lane high) {
  using V = typename Row::V;
  const auto above_low = V::set1(low), above_high = V::set1(high);
  auto lows = V::set1(0), highs = V::set1(0);
  row.sweep(0, row.n(), [&](int32_t, auto lanes, auto) {
    lows = V::count_gt(lows, lanes, above_low);
    highs = V::count_gt(highs, lanes, above_high);
  });
  return {int32_t(V::sum(lows)), int32_t(V::sum(highs))};
}

}  // namespace jax_rtopk::RTOPK_ISA
