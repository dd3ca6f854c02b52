// Ranks of a few keys by their leading bits, from all pairs of them, many at a time and without a branch.
//
// Fifteen bits of the range that the keys span tell almost all of them apart, and their comparisons take half the
// instructions that whole keys would. Whoever uses the ranks checks what is left, which is cheap.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cpu/simd/coarse.h"

namespace jax_rtopk::RTOPK_ISA {

// kAfter.lane[i]: ones in the lanes after i.
struct After {
  alignas(32) int16_t lane[kCoarseLanes][kCoarseLanes];
};
inline constexpr After kAfter = [] {
  After table{};
  for (int i = 0; i < kCoarseLanes; ++i) {
    for (int lane = i + 1; lane < kCoarseLanes; ++lane) table.lane[i][lane] = 1;
  }
  return table;
}();

template <int32_t capacity>
class CoarseRanks {
 public:
  // Takes key[0] to key[count - 1]. None is below `least`, and few are above `greatest`. Up to key[end() - 1] there
  // must be something to read; what it is does not matter.
  template <class Lane>
  void take(const Lane* key, int32_t count, Lane least, Lane greatest) {
    using Word = std::make_unsigned_t<Lane>;
    const Word low = Word(least), range = Word(greatest) - low;
    const int shift = range >> kBits == 0 ? 0 : int(8 * sizeof(unsigned long long)) - __builtin_clzll(range) - kBits;
    low_ = low;
    shift_ = shift;
    end_ = (count + kCoarseLanes - 1) / kCoarseLanes * kCoarseLanes;
    // Odd, so that there is room between neighbours: a > b - 1 where a >= b.
    for (int32_t i = 0; i < end_; ++i) {
      const Word steps = (Word(key[i]) - low) >> shift;
      coarse_[i] = int16_t(2 * (steps < kMost ? steps : kMost) - kMost);
    }
    store_coarse(coarse_ + count, set_coarse(-int(kMost)));  // behind all others
  }

  // Ranks what was taken.
  void rank() {
    int32_t block = 0;
    if constexpr (kMostBlocks >= 4) {
      for (; block + 4 * kCoarseLanes <= end_; block += 4 * kCoarseLanes) rank_blocks<4>(block);
    }
    if constexpr (kMostBlocks >= 3) {
      if (end_ - block == 3 * kCoarseLanes) rank_blocks<3>(block);
    }
    if (end_ - block == 2 * kCoarseLanes) rank_blocks<2>(block);
    if (end_ - block == 1 * kCoarseLanes) rank_blocks<1>(block);
  }

  // The number of keys, rounded up to whole vectors. Those beyond the ones that were taken come last. Loops that end
  // here rather than at the exact number end where others have, which the CPU foresees.
  int32_t end() const { return end_; }

  // [i]: how many keys come before key[i]: those of larger leading bits, and of equal ones at lower positions.
  const int16_t* ranks() const { return rank_; }

  // Whether the first `k` by rank are the first by key too: their leading bits differ from those of the rest.
  bool separate(int32_t k) const {
    CoarseReg least_inverted = set_coarse(-32768), greatest = set_coarse(-32768);
    for (int32_t i = 0; i < end_; i += kCoarseLanes) {
      const CoarseReg keys = load_coarse(coarse_ + i), chosen = load_coarse(rank_ + i) < set_coarse(k);
      const CoarseReg in = (~keys & chosen) | (~chosen & -32768), out = (keys & ~chosen) | (chosen & -32768);
      least_inverted = in > least_inverted ? in : least_inverted;
      greatest = out > greatest ? out : greatest;
    }
    return ~largest_coarse(least_inverted) > largest_coarse(greatest);
  }

  // A key that is not above the one at a rank, and above few of the later ones.
  template <class Lane>
  Lane at_most(int32_t rank) const {
    CoarseReg greatest = set_coarse(-32768);
    for (int32_t i = 0; i < end_; i += kCoarseLanes) {
      const CoarseReg later = load_coarse(rank_ + i) >= set_coarse(rank);
      const CoarseReg keys = (load_coarse(coarse_ + i) & later) | (~later & -32768);
      greatest = keys > greatest ? keys : greatest;
    }
    using Word = std::make_unsigned_t<Lane>;
    return Lane(Word(low_) + (Word((largest_coarse(greatest) + int(kMost)) / 2) << shift_));
  }

 private:
  static constexpr int kMostBlocks = (capacity + kCoarseLanes - 1) / kCoarseLanes;
  static constexpr int kBits = 15;
  static constexpr unsigned kMost = (1U << kBits) - 1;

  // The ranks of kBlocks vectors of keys from `block` on, among all.
  template <int kBlocks>
  __attribute__((always_inline)) void rank_blocks(int32_t block) {
    CoarseReg keys[kBlocks], less[kBlocks], before[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      keys[b] = load_coarse(coarse_ + block + b * kCoarseLanes);
      less[b] = keys[b] - 1;
      before[b] = CoarseReg{};
    }
    // Of the keys at lower positions those come before that are not smaller; of the others those that are larger.
    for (int32_t j = 0; j < block; ++j) {
      const CoarseReg other = set_coarse(coarse_[j]);
      for (int b = 0; b < kBlocks; ++b) before[b] -= CoarseReg(other > less[b]);
    }
#pragma GCC unroll 4
    for (int from = 0; from < kBlocks; ++from) {
#pragma GCC unroll(kCoarseLanes == 8 ? 8 : 4)  // all of eight are worth 4 %, of sixteen they cost as much
      for (int lane = 0; lane < kCoarseLanes; ++lane) {
        const CoarseReg other = set_coarse(coarse_[block + from * kCoarseLanes + lane]);
        for (int b = 0; b < kBlocks; ++b) {
          const CoarseReg than = b < from ? keys[b] : b == from ? keys[b] - load_coarse(kAfter.lane[lane]) : less[b];
          before[b] -= CoarseReg(other > than);
        }
      }
    }
    for (int32_t j = block + kBlocks * kCoarseLanes; j < end_; ++j) {
      const CoarseReg other = set_coarse(coarse_[j]);
      for (int b = 0; b < kBlocks; ++b) before[b] -= CoarseReg(other > keys[b]);
    }
    for (int b = 0; b < kBlocks; ++b) store_coarse(rank_ + block + b * kCoarseLanes, before[b]);
  }

  uint64_t low_ = 0;
  int shift_ = 0;
  int32_t end_ = 0;
  alignas(32) int16_t coarse_[capacity + kCoarseLanes];
  alignas(32) int16_t rank_[capacity + kCoarseLanes];
};

// The least and the greatest of some keys, at least one. The vector behind them is overwritten.
template <class V, class Lane>
void bounds(Lane* key, int32_t count, Lane& least, Lane& greatest) {
  V::store(key + count, V::set1(key[0]));
  auto most = V::load(key), least_inverted = decltype(most)(~most);
  for (int32_t i = V::kLanes; i < count; i += V::kLanes) {
    const auto keys = V::load(key + i);
    most = V::max(most, keys);
    least_inverted = V::max(least_inverted, ~keys);
  }
  least = Lane(~V::reduce_max(least_inverted));
  greatest = V::reduce_max(most);
}

// Sorts elements that leading bits have put in order, but for those that these did not tell apart: larger keys first,
// equal ones stay by position. The vector of keys behind them is overwritten. Returns false, and leaves them in any
// order, if they are so many that it is not worth it: one key far from all others makes the leading bits of these the
// same.
template <class V, class Lane, class... Payload>
bool settle(int32_t count, Lane* key, Payload*... payload) {
  constexpr Lane kNone = std::numeric_limits<Lane>::min();
  V::store(key + count, V::set1(kNone));
  auto rising = V::gt(V::set1(0), V::set1(0));
  for (int32_t i = 0; i < count; i += V::kLanes) rising |= V::gt(V::load(key + i + 1), V::load(key + i));
  if (rising == 0) return true;
  const auto swap = [](auto* item) {
    const auto other = item[0];
    item[0] = item[-1];
    item[-1] = other;
  };
  int32_t swaps_left = count / 2;
  for (int32_t i = 1; i < count; ++i) {
    for (int32_t to = i; to > 0 && key[to - 1] < key[to]; --to) {
      if (swaps_left-- == 0) return false;
      swap(key + to);
      (swap(payload + to), ...);
    }
  }
  return true;
}

}  // namespace jax_rtopk::RTOPK_ISA
