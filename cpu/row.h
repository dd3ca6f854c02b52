// A row of the operand as vectors of keys, and the sweeps over it.
//
// Keys of 8 and 16 bits are processed in 32-bit words. Everything here is compiled once per instruction set. So that
// the linker never keeps code with the wrong instructions, it lies in a namespace of the instruction set's name; what
// it calls elsewhere is always inlined (native/) or is a template over a type of that namespace (std::vector); and
// cmake/Cpu.cmake links the smallest instruction set first.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cpu/simd/select.h"
#include "native/ordered_key.h"
#include "native/search.h"

namespace jax_rtopk::RTOPK_ISA {

inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
inline int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }
inline int popcount(uint32_t mask) { return __builtin_popcount(mask); }

template <class Bits>
class Row {
 public:
  using Word = std::conditional_t<sizeof(Bits) <= 4, uint32_t, uint64_t>;
  using V = Vec<Word>;
  using Reg = typename V::Reg;
  using Mask = typename V::Mask;
  static constexpr int kLanes = V::kLanes;
  static constexpr Mask kAll = Mask((1ULL << kLanes) - 1);
  static constexpr Word kLargestKey = KeyMap<Bits>::kOnes;

  Row(const KeyMap<Bits>& map, const Bits* bits, int32_t n)
      : map_(map),
        bits_(bits),
        n_(n),
        spread_(V::set1(Word(Word(map.spread) << kShift))),
        borrow_(V::set1(Word(Word(map.borrow) << kShift))),
        flip_(V::set1(Word(Word(map.flip) << kShift))),
        borrows_(map.borrow != 0) {}

  int32_t n() const { return n_; }
  void move_to(const Bits* bits) { bits_ = bits; }
  Row head(int32_t n) const {
    Row first = *this;
    first.n_ = n;
    return first;
  }

  Word key(int32_t i) const { return map_(bits_[i]); }
  // The keys of the kLanes elements from i, all inside the row.
  __attribute__((always_inline)) Reg keys(int32_t i) const { return keys_of(V::widen(bits_ + i)); }

  // Calls f(index of lane 0, keys, mask of the lanes inside the row) over [begin, end). Lanes outside hold key 0.
  template <class F>
  __attribute__((always_inline)) void sweep(int32_t begin, int32_t end, F f) const {
    int32_t i = begin;
    for (; i <= end - kLanes; i += kLanes) f(i, keys(i), kAll);
    if (i < end) f(i, tail_keys(i, end - i), Mask((1U << (end - i)) - 1));
  }

 private:
  // Narrow values are moved to the top of the word, where their sign is the word's, and the key back down.
  static constexpr int kShift = int(8 * (sizeof(Word) - sizeof(Bits)));

  __attribute__((always_inline)) Reg keys_of(Reg x) const {
    if constexpr (kShift > 0) x = V::template shift_left<kShift>(x);
    x = borrows_ ? V::key(x, spread_, borrow_, flip_) : V::key(x, spread_, flip_);
    if constexpr (kShift > 0) x = V::template shift_right<kShift>(x);
    return x;
  }

  __attribute__((always_inline)) Reg tail_keys(int32_t i, int count) const {
    return V::keep_first(keys_of(V::widen_first(bits_ + i, count)), count);
  }

  KeyMap<Bits> map_;
  const Bits* bits_;
  int32_t n_;
  Reg spread_, borrow_, flip_;
  bool borrows_;
};

template <class Row>
typename Row::Word largest_key(const Row& row) {
  using V = typename Row::V;
  auto top = V::set1(0);
  row.sweep(0, row.n(), [&](int32_t, auto keys, auto) { top = V::max(top, keys); });
  return V::reduce_max(top);
}

// How many keys are at or above each pivot. Pivots are positive, so lanes outside the row never count.
template <class Row>
void count(const Row& row, const Pivots<typename Row::Word>& pivots, int32_t& count_low, int32_t& count_high) {
  using V = typename Row::V;
  const auto low = V::set1(pivots.low), high = V::set1(pivots.high);
  auto lows = V::set1(0), highs = V::set1(0);
  row.sweep(0, row.n(), [&](int32_t, auto keys, auto) {
    lows = V::count_ge(lows, keys, low);
    highs = V::count_ge(highs, keys, high);
  });
  count_low = int32_t(V::sum(lows));
  count_high = int32_t(V::sum(highs));
}

}  // namespace jax_rtopk::RTOPK_ISA
