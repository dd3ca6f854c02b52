// Puts the indices of selected elements in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cpu/coarse_rank.h"
#include "cpu/policy.h"
#include "cpu/row.h"

namespace jax_rtopk::RTOPK_ISA {

class IndexOrder {
 public:
  // Of indices below n, at most `most` at a time.
  IndexOrder(int64_t n, int64_t most)
      : n_(int32_t(n)), words_(size_t((n + kBits - 1) / kBits)), drained_(size_t(most + kUnasked)) {}

  void sort(int32_t* indices, int32_t count) {
    if (count <= kMaxRankedK && sort_by_ranks(indices, count)) return;
    for (int32_t i = 0; i < count; ++i) insert(indices[i]);
    drain(indices, count);
  }

 private:
  using V = Vec<uint32_t>;
  static constexpr int32_t kBits = 64, kUnasked = 4;
  static constexpr int32_t kSlack = V::kLanes + kCoarseLanes;

  // Compares all pairs. Returns false where so many indices are close together that it is not worth it.
  bool sort_by_ranks(int32_t* indices, int32_t count) {
    alignas(64) V::Lane from_end[kMaxRankedK + kSlack], sorted[kMaxRankedK + kSlack];
    for (int32_t i = 0; i < count; ++i) from_end[i] = V::Lane(n_ - 1 - indices[i]);
    for (int i = 0; i < kCoarseLanes; i += V::kLanes) V::store(from_end + count + i, V::set1(0));
    ranks_.take(from_end, count, V::Lane(0), V::Lane(n_ - 1));
    ranks_.rank();
    for (int32_t i = 0; i < count; ++i) sorted[ranks_.ranks()[i]] = from_end[i];
    if (!settle<V>(count, sorted)) return false;
    for (int32_t i = 0; i < count; ++i) indices[i] = n_ - 1 - int32_t(sorted[i]);
    return true;
  }

  // A set of one bit for each element of the row.
  void insert(int32_t index) { words_[size_t(index / kBits)] |= uint64_t(1) << (index % kBits); }

  // Writes the set, and leaves it empty. Mostly without branches: how many are in a word cannot be foreseen.
  void drain(int32_t* indices, int32_t count) {
    int32_t* to = drained_.data();
    int64_t first = 0;
    for (uint64_t& word : words_) {
      int32_t* next = to + __builtin_popcountll(word);
      for (int i = 0; i < kUnasked; ++i) to[i] = lowest(first, word);
      for (to += kUnasked; to < next; ++to) *to = lowest(first, word);
      to = next;
      word = 0;
      first += kBits;
    }
    std::memcpy(indices, drained_.data(), size_t(count) * sizeof(int32_t));
  }

  // Takes the lowest bit away; what it is of none does not matter.
  static int32_t lowest(int64_t first, uint64_t& word) {
    const auto index = int32_t(first + __builtin_ctzll(word | uint64_t(1) << (kBits - 1)));
    word &= word - 1;
    return index;
  }

  const int32_t n_;
  CoarseRanks<int32_t(kMaxRankedK)> ranks_;
  std::vector<uint64_t> words_;
  std::vector<int32_t> drained_;
};

}  // namespace jax_rtopk::RTOPK_ISA
