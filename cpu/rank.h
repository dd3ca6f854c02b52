// All-pairs ranking of a few keys: selects and sorts at once, without a branch.
#pragma once

#include <cstdint>

#include "cpu/simd/select.h"

namespace jax_rtopk::RTOPK_ISA {

namespace internal {

// The ranks of kBlocks vectors of keys from `block` on, among all keys of [0, end).
template <int kBlocks, class V, class Word>
__attribute__((always_inline)) inline void rank_blocks(const Word* key, int32_t block, int32_t end, Word* rank) {
  constexpr int L = V::kLanes;
  typename V::Reg keys[kBlocks], before[kBlocks];
  // Of the keys at lower positions those come before that are not smaller; of the others those that are larger.
  for (int b = 0; b < kBlocks; ++b) {
    keys[b] = V::load(key + block + b * L);
    before[b] = V::set1(Word(block + b * L));
  }
  for (int32_t j = 0; j < block; ++j) {
    const auto other = V::set1(key[j]);
    for (int b = 0; b < kBlocks; ++b) before[b] = V::uncount_greater(before[b], keys[b], other);
  }
  for (int from = 0; from < kBlocks; ++from) {
    for (int lane = 0; lane < L; ++lane) {
      const auto other = V::set1(key[block + from * L + lane]);
      for (int b = 0; b < kBlocks; ++b) {
        before[b] = b < from    ? V::count_greater(before[b], other, keys[b])
                    : b == from ? V::count_before(before[b], other, keys[b], lane)
                                : V::uncount_greater(before[b], keys[b], other);
      }
    }
  }
  for (int32_t j = block + kBlocks * L; j < end; ++j) {
    const auto other = V::set1(key[j]);
    for (int b = 0; b < kBlocks; ++b) before[b] = V::count_greater(before[b], other, keys[b]);
  }
  for (int b = 0; b < kBlocks; ++b) V::store(rank + block + b * L, before[b]);
}

}  // namespace internal

// rank[i] = how many keys come before key[i]: the larger ones, and equal ones at lower positions. Both arrays have room
// for kLanes more than `count`; what `key` holds there is overwritten.
template <class V, class Word>
void rank_all(Word* key, int32_t count, Word* rank) {
  constexpr int L = V::kLanes;
  V::store(key + count, V::set1(0));
  // Zeros come after everything, so loops may run on to the end of the last block: their lengths then vary less from
  // row to row, and so are predicted better.
  const int32_t end = (count + L - 1) / L * L;
  for (int32_t i = 0; i < end; i += L) V::store(key + i, V::to_ordered(V::load(key + i)));
  int32_t block = 0;
  for (; block + 2 * L <= end; block += 2 * L) internal::rank_blocks<2, V>(key, block, end, rank);
  if (block < end) internal::rank_blocks<1, V>(key, block, end, rank);
  for (int32_t i = 0; i < end; i += L) V::store(key + i, V::to_ordered(V::load(key + i)));
}

}  // namespace jax_rtopk::RTOPK_ISA
