// The exact top-k of rows of which few elements are selected: compress each row to a few survivors, and select from
// these.
//
// A threshold is guessed from maxima of the row's first block and one sweep keeps what reaches it; the rest of a long
// row is streamed past the k-th largest key so far, which few elements exceed. A bad guess costs another sweep, never
// the answer.
#pragma once

#include <cstdint>

#include "cpu/batch.h"
#include "cpu/coarse_rank.h"
#include "cpu/policy.h"
#include "cpu/row.h"
#include "cpu/row_search.h"
#include "cpu/survivors.h"

namespace jax_rtopk::RTOPK_ISA {

inline constexpr int32_t kStreamBlock = 1024;

// Maxima of kGroups groups of a block that are strided by vectors: cheaper than the plan's, whose grouping only early
// stopping needs.
template <class Row>
class StridedMaxima {
 public:
  using V = typename Row::V;
  using Lane = typename Row::Lane;

  void take(const Row& block, const SearchPlan& plan) {
    const int32_t end = plan.sampled >= block.n() ? block.n() : plan.sampled * plan.groups;
    typename V::Reg largest[kVectors];
    for (auto& x : largest) x = V::set1(Row::kNone);
    int32_t i = 0;
    for (; i <= end - kGroups; i += kGroups) {
      for (int v = 0; v < kVectors; ++v) largest[v] = V::max(largest[v], block.lanes(i + v * Row::kLanes));
    }
    block.sweep(i, end, [&](int32_t, auto lanes, auto) { largest[0] = V::max(largest[0], lanes); });
    alignas(64) Lane maxima[kGroups];
    auto greatest = largest[0], least_inverted = typename V::Reg(~greatest);
    for (int v = 0; v < kVectors; ++v) {
      V::store(maxima + v * Row::kLanes, largest[v]);
      greatest = V::max(greatest, largest[v]);
      least_inverted = V::max(least_inverted, ~largest[v]);
    }
    greatest_ = V::reduce_max(greatest);
    coarse_.take(maxima, kGroups, Lane(~V::reduce_max(least_inverted)), greatest_);
  }
  void rank() { coarse_.rank(); }

  Lane greatest() const { return greatest_; }
  // At most the maximum at `rank` in descending order, counted from 0.
  Lane at_most(int rank) const { return coarse_.at_most<Lane>(min(rank, kGroups - 1)); }

 private:
  static constexpr int kVectors = kGroups / Row::kLanes;
  CoarseRanks<kGroups> coarse_;
  Lane greatest_;
};

// Where the k-th largest element is likely to be among the maxima, or a little behind.
inline int likely_rank(const SearchPlan& plan) { return int(plan.rank + plan.deviation * 1.35F) + 1; }

// Whether a row is so short that all of it is kept; it then is its own first block.
inline bool all_survive(const SearchPlan& plan) { return plan.n <= max(plan.k + plan.k / 2, kGroups); }

// Fills `survivors` with the elements of a block that reach a threshold. Says whether its top-k are among them. `ahead`
// as in Row::sweep().
template <bool ahead, class Row>
__attribute__((always_inline)) inline bool reach(const Row& block, int32_t k, typename Row::Lane threshold,
                                                 Survivors<Row>& survivors) {
  const int32_t capacity = survivors.capacity();
  constexpr int32_t kLeastRoom = 256;  // for the sweep not to advance in ever smaller pieces
  survivors.clear();
  if (threshold <= Row::kLeast) return false;  // there is no threshold - 1, and all would reach it
  const int32_t n = block.n();
  int32_t begin = 0;
  while (begin < n && capacity - survivors.count() >= kLeastRoom) {
    const int32_t end = min(n, begin + capacity - survivors.count());
    survivors.template append_above<ahead>(block, begin, end, threshold - 1);
    begin = end;
  }
  return begin == n && survivors.count() >= k;
}

// The same after one threshold has failed.
template <class Row>
void retry(const Row& block, const SearchPlan& plan, const StridedMaxima<Row>& maxima, Survivors<Row>& survivors) {
  auto failed = maxima.at_most(likely_rank(plan));
  for (int rank = likely_rank(plan) + 4; survivors.count() < plan.k && rank < kGroups; rank += 4) {
    const auto threshold = maxima.at_most(rank);
    if (threshold == failed) continue;
    if (reach<false>(block, plan.k, threshold, survivors)) return;
    failed = threshold;
  }
  survivors.clear();
  emit(block, exact_emission(block, plan), [&](const int32_t* selected, int32_t count) {
    for (int32_t i = 0; i < count; ++i) survivors.push(block.lane(selected[i]), selected[i]);
  });
}

// Adds to the survivors of a row's first block what the rest of the row needs.
template <class Row>
void stream_rest(const Row& row, const SearchPlan& plan, Survivors<Row>& survivors) {
  typename Row::Lane threshold = Row::kLeast;
  for (int64_t block = plan.n; block < row.n(); block += kStreamBlock) {
    const auto begin = int32_t(block);
    if (begin == plan.n || survivors.count() > survivors.capacity() - kStreamBlock) {
      Batch alone(1);
      Survivors<Row>::reduce(&survivors, alone, 1, plan.k);
      survivors.forget_bounds();
      threshold = survivors.least();  // later elements must be larger to be selected
      if (threshold == Row::kGreatest) return;
    }
    const int32_t end = row.n() - begin > kStreamBlock ? begin + kStreamBlock : row.n();
    survivors.append_rare_above(row, begin, end, threshold);
  }
}

// Fills the survivors of each row of a batch with elements that include the row's top-k. row(i) is the i-th one; `plan`
// is for its first block.
template <class Row, class RowAt>
void collect(Batch& batch, RowAt row, const SearchPlan& plan, StridedMaxima<Row>* maxima, Survivors<Row>* survivors) {
  if (all_survive(plan)) {
    batch.each([&](int i) { survivors[i].take(row(i)); });
    return;
  }
  const auto block = [&](int i) { return row(i).head(plan.n); };
  batch.each([&](int i) { maxima[i].take(block(i), plan); });
  batch.each([&](int i) { maxima[i].rank(); });
  batch.each([&](int i) {
    const typename Row::Lane threshold = maxima[i].at_most(likely_rank(plan));
    const bool enough = batch.fetched() ? reach<false>(block(i), plan.k, threshold, survivors[i])
                                        : reach<true>(block(i), plan.k, threshold, survivors[i]);
    if (enough) {
      survivors[i].expect(threshold, maxima[i].greatest());
    } else {
      retry(block(i), plan, maxima[i], survivors[i]);
    }
    stream_rest(row(i), plan, survivors[i]);
  });
}

}  // namespace jax_rtopk::RTOPK_ISA
