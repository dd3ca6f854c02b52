// All-pairs ranking of a few keys: selects and sorts at once, without a branch.
#pragma once

#include <cstdint>

#include "cpu/simd/select.h"

namespace jax_rtopk::RTOPK_ISA {

// rank[i] = how many keys come before key[i]: the larger ones, and equal ones at lower positions. Both arrays have room
// for kLanes more; those of `key` are overwritten.
template <class V, class Word>
void rank_all(Word* key, int32_t count, Word* rank) {
  constexpr int L = V::kLanes;
  V::store(key + count, V::set1(0));
  // Zeros come after everything, so that loops may run on to the end of the last block: their lengths then vary less
  // from row to row, and so are predicted better.
  const int32_t end = (count + L - 1) / L * L;
  for (int32_t block = 0; block < end; block += L) {
    const auto keys = V::load(key + block);
    auto before = V::set1(0), before2 = V::set1(0);
    for (int32_t j = 0; j < block; j += 2) {
      before = V::count_ge(before, V::set1(key[j]), keys);
      before2 = V::count_ge(before2, V::set1(key[j + 1]), keys);
    }
    for (int32_t j = block; j < block + L; ++j) before = V::count_before(before, V::set1(key[j]), keys, j - block);
    for (int32_t j = block + L; j < end; j += 2) {
      before = V::count_gt(before, V::set1(key[j]), keys);
      before2 = V::count_gt(before2, V::set1(key[j + 1]), keys);
    }
    V::store(rank + block, V::add(before, before2));
  }
}

}  // namespace jax_rtopk::RTOPK_ISA
