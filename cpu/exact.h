// The exact top-k of one row when k is small: compress the row to a few survivors, which are then ranked.
//
// A threshold is guessed from maxima of the row's first block and one sweep keeps what reaches it; the rest of a long
// row is streamed past the k-th largest key so far, which few elements exceed. A bad guess costs another sweep, never
// the answer.
#pragma once

#include <cstdint>

#include "cpu/rank.h"
#include "cpu/row.h"
#include "cpu/row_search.h"
#include "cpu/survivors.h"

namespace jax_rtopk::RTOPK_ISA {

inline constexpr int32_t kStreamBlock = 1024;

// Maxima of kGroups groups that are strided by vectors: cheaper than the plan's, whose grouping only early stopping
// needs.
template <class Row>
class StridedMaxima {
 public:
  using V = typename Row::V;
  using Word = typename Row::Word;

  StridedMaxima(const Row& row, int32_t end) {
    typename V::Reg largest[kVectors];
    for (auto& x : largest) x = V::set1(0);
    int32_t i = 0;
    for (; i <= end - kGroups; i += kGroups) {
      for (int v = 0; v < kVectors; ++v) largest[v] = V::max(largest[v], row.keys(i + v * Row::kLanes));
    }
    row.sweep(i, end, [&](int32_t, auto keys, auto) { largest[0] = V::max(largest[0], keys); });
    for (int v = 0; v < kVectors; ++v) V::store(maxima_ + v * Row::kLanes, largest[v]);
    rank_all<V>(maxima_, kGroups, ranks_);
  }

  // The maximum at `rank` in descending order, counted from 0: the largest of those at that rank or behind.
  Word at(int rank) const {
    const auto first = V::set1(Word(rank));
    auto largest = V::set1(0);
    for (int i = 0; i < kGroups; i += Row::kLanes) {
      largest = V::max(largest, V::where_ge(V::load(maxima_ + i), V::load(ranks_ + i), first));
    }
    return V::reduce_max(largest);
  }

 private:
  static constexpr int kVectors = kGroups / Row::kLanes;
  alignas(64) Word maxima_[kGroups + Row::kLanes];
  alignas(64) Word ranks_[kGroups + Row::kLanes];
};

// Fills `survivors` with elements of the first block that include its top-k.
template <class Row>
void collect_block(const Row& block, const SearchPlan& plan, Survivors<typename Row::Word>& survivors) {
  using Word = typename Row::Word;
  constexpr int32_t kCapacity = Survivors<Word>::kCapacity;
  const int32_t n = block.n(), k = plan.k;
  survivors.clear();
  if (n <= most(k + k / 2, kGroups)) return survivors.append(block, 0, n, 0);

  const StridedMaxima<Row> maxima(block, plan.sampled >= n ? n : plan.sampled * plan.groups);
  const int guess = int(plan.rank + plan.spread * 1.5F) + 1;
  for (int rank = least(guess, kGroups - 1); rank < kGroups; rank += 4) {
    const Word threshold = maxima.at(rank);
    survivors.clear();
    int32_t begin = 0;
    while (begin < n && survivors.count() < kCapacity) {
      const int32_t end = least(n, begin + kCapacity - survivors.count());
      survivors.append(block, begin, end, threshold);
      begin = end;
    }
    if (begin < n) break;  // too many
    if (survivors.count() >= k) return;
  }
  survivors.clear();
  emit(block, search(block, plan, 0), [&](const int32_t* selected, int32_t batch) {
    for (int32_t i = 0; i < batch; ++i) survivors.push(block.key(selected[i]), selected[i]);
  });
}

// Fills `survivors` with elements that include the row's top-k. `plan` is for the first block: min(n, kFirstBlock)
// elements.
template <class Row>
void collect(const Row& row, const SearchPlan& plan, Survivors<typename Row::Word>& survivors) {
  using Word = typename Row::Word;
  collect_block(row.head(plan.n), plan, survivors);
  Word threshold = 0;
  for (int64_t block = plan.n; block < row.n(); block += kStreamBlock) {
    const auto begin = int32_t(block);
    if (begin == plan.n || survivors.count() > Survivors<Word>::kCapacity - kStreamBlock) {
      survivors.reduce_to(plan.k);
      if (survivors.least_key() == Row::kLargestKey) return;
      threshold = survivors.least_key() + 1;  // later elements must be larger to be selected
    }
    const int32_t end = row.n() - begin > kStreamBlock ? begin + int32_t(kStreamBlock) : row.n();
    survivors.append_rare(row, begin, end, threshold);
  }
}

}  // namespace jax_rtopk::RTOPK_ISA
