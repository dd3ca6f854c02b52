// The threshold search over a row in memory, and the emission that follows it.
#pragma once

#include <cstdint>

#include "cpu/rank.h"
#include "cpu/row.h"

namespace jax_rtopk::RTOPK_ISA {

// The plan's group maxima, largest first.
template <class Word>
class GroupMaxima {
 public:
  template <class Row>
  GroupMaxima(const Row& row, const SearchPlan& plan) : groups_(plan.groups) {
    using V = typename Row::V;
    // Column i holds the maximum of elements i, i + period, ...: one vectorised sweep does most of the work.
    const int32_t period = plan.chunk * plan.groups;
    const int32_t stride = most(plan.step / plan.chunk, 1);  // in periods, between those that are sampled
    alignas(64) Word column[kMaxPeriod + Row::kLanes];
    for (int32_t i = 0; i < period; i += Row::kLanes) V::store(column + i, V::set1(0));
    for (int64_t round = 0; round * period < row.n() && plan.samples(int32_t(round * plan.chunk)); round += stride) {
      const auto begin = int32_t(round * period);
      row.sweep(begin, period < row.n() - begin ? begin + period : row.n(), [&](int32_t i, auto keys, auto) {
        Word* const at = column + (i - begin);
        V::store(at, V::max(V::load(at), keys));
      });
    }
    alignas(64) Word unsorted[kGroups + Row::kLanes] = {};
    for (int32_t place = 0; place < plan.chunk && plan.samples(place); place += plan.step) {
      for (int32_t chunk = 0; chunk < plan.groups; ++chunk) {
        Word& largest = unsorted[(chunk + plan.group_shift() * place) % plan.groups];
        const Word key = column[chunk * plan.chunk + place];
        largest = key > largest ? key : largest;
      }
    }
    alignas(64) Word rank[kGroups + Row::kLanes];
    rank_all<V>(unsorted, plan.groups, rank);
    for (int group = 0; group < plan.groups; ++group) sorted_[rank[group]] = unsorted[group];
  }

  Word at(int i) const { return sorted_[i]; }
  int above(Word key) const {
    int count = 0;
    for (int i = 0; i < groups_; ++i) count += sorted_[i] > key;
    return count;
  }
  int from(Word key) const {
    int count = 0;
    for (int i = 0; i < groups_; ++i) count += sorted_[i] >= key;
    return count;
  }

 private:
  static constexpr int32_t kMaxPeriod = 16 * kGroups;
  Word sorted_[kGroups];
  int groups_;
};

// What to select: every key above `above`, and of those from `lo` to `above` the first `quota` by index.
template <class Word>
struct Emission {
  Word above;
  Word lo;
  int32_t quota;
};

// Runs the search, for at most `max_iter` passes (0: until it is exact).
template <class Row>
Emission<typename Row::Word> search(const Row& row, const SearchPlan& plan, int64_t max_iter) {
  using Word = typename Row::Word;
  if (plan.k == row.n()) return {0, 0, row.n()};
  const GroupMaxima<Word> maxima(row, plan);
  const Word top = plan.sampled >= row.n() ? maxima.at(0) : largest_key(row);
  Search<Word> search(plan, top);
  while (!search.done() && (max_iter == 0 || search.passes() < max_iter)) {
    const Pivots<Word> pivots = search.pivots(maxima);
    int32_t count_low, count_high;
    count(row, pivots, count_low, count_high);
    search.observe(pivots, count_low, count_high);
  }
  const Word above = search.certain_above();
  if (above == search.last()) return {above, search.lo(), plan.k - search.count_last()};
  // The row's maximum is certain, but how often it occurs has not been counted.
  int32_t maximal, same;
  count(row, {top, top}, maximal, same);
  if (maximal >= plan.k) return {top, top, plan.k};
  return {above, search.lo(), plan.k - maximal};
}

inline uint32_t lowest_bits(uint32_t mask, int count) {
  uint32_t kept = 0;
  for (; count > 0; --count) {
    kept |= mask & -mask;
    mask &= mask - 1;
  }
  return kept;
}

// Calls sink(indices, count) with the selected indices in ascending order, some at a time. `indices` may be overwritten
// afterwards.
template <class Row, class Sink>
void emit(const Row& row, Emission<typename Row::Word> emission, Sink sink) {
  using V = typename Row::V;
  constexpr int32_t kBatch = 1024;
  alignas(64) int32_t batch[kBatch + Row::kLanes];
  int32_t count = 0;
  const auto above = V::set1(emission.above), lo = V::set1(emission.lo);
  int32_t quota = emission.quota;
  row.sweep(0, row.n(), [&](int32_t i, auto keys, auto inside) {
    const auto certain = V::gt(keys, above);
    auto maybe = V::ge(keys, lo) & ~certain & inside;
    if (popcount(maybe) > quota) maybe = lowest_bits(maybe, quota);
    quota -= popcount(maybe);
    const auto selected = certain | maybe;
    V::compress_index(batch + count, i, selected);
    count += popcount(selected);
    if (count >= kBatch) {
      sink(batch, count);
      count = 0;
    }
  });
  sink(batch, count);
}

}  // namespace jax_rtopk::RTOPK_ISA
