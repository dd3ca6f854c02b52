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
  GroupMaxima(const Row& row, const SearchPlan& plan) {
    using V = typename Row::V;
    // Column i holds the maximum of elements i, i + period, ...: one vectorised sweep does most of the work.
    const int32_t period = plan.chunk * plan.groups;
    const int32_t stride = most(plan.step / plan.chunk, 1);  // in periods, between those that are sampled
    alignas(64) Word columns[2 * kMaxPeriod + Row::kLanes];
    Word* const column = columns + period;
    for (int32_t i = 0; i < period; i += Row::kLanes) V::store(column + i, V::set1(0));
    for (int64_t round = 0; round * period < row.n() && plan.samples(int32_t(round * plan.chunk)); round += stride) {
      const auto begin = int32_t(round * period);
      row.sweep(begin, period < row.n() - begin ? begin + period : row.n(), [&](int32_t i, auto keys, auto) {
        Word* const at = column + (i - begin);
        V::store(at, V::max(V::load(at), keys));
      });
    }
    // Place p of group g is in column chunk * (g - shift * p) + p: for all groups at once, that is so many columns
    // back, around the end.
    copy(columns, column, period);
    const int32_t back = plan.chunk * plan.group_shift() - 1;
    alignas(64) Word group[kMaxPeriod + Row::kLanes];
    for (int32_t i = 0; i < period; i += Row::kLanes) {
      auto largest = V::load(column + i);
      for (int32_t place = plan.step; place < plan.chunk && plan.samples(place); place += plan.step) {
        largest = V::max(largest, V::load(column + i - place * back));
      }
      V::store(group + i, largest);
    }
    alignas(64) Word unsorted[kGroups + Row::kLanes];
    for (int32_t i = 0; i < plan.groups; ++i) unsorted[i] = group[i * plan.chunk];
    alignas(64) Word rank[kGroups + Row::kLanes];
    rank_all<V>(unsorted, plan.groups, rank);
    for (int32_t i = 0; i < plan.groups; ++i) sorted_[rank[i]] = unsorted[i];
  }

  Word at(int i) const { return sorted_[i]; }
  // Zeros beyond the groups are above nothing, and are not asked about key 0: no pivot is as low.
  int above(Word key) const {
    Word count = 0;
    for (int i = 0; i < kGroups; ++i) count += Word(sorted_[i] > key);
    return int(count);
  }
  int from(Word key) const {
    Word count = 0;
    for (int i = 0; i < kGroups; ++i) count += Word(sorted_[i] >= key);
    return int(count);
  }

 private:
  static constexpr int32_t kMaxPeriod = 16 * kGroups;

  static void copy(Word* to, const Word* from, int32_t count) {
    for (int32_t i = 0; i < count; ++i) to[i] = from[i];
  }

  alignas(64) Word sorted_[kGroups] = {};
};

// What to select: every key above `above`, and of those from `lo` to `above` the first `quota` by index. With `single`
// only the first of those above `above`, the others being like those from `lo` on.
template <class Word>
struct Emission {
  Word above;
  Word lo;
  int32_t quota;
  bool single = false;
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
  if (search.maximum_is_last() && search.lo() < top) return {top - 1, search.lo(), plan.k - 1, true};
  return {search.last(), search.lo(), plan.k - search.count_last()};
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
  auto above = V::set1(emission.above);
  const auto lo = V::set1(emission.lo);
  int32_t quota = emission.quota;
  bool single = emission.single;
  row.sweep(0, row.n(), [&](int32_t i, auto keys, auto inside) {
    auto certain = V::gt(keys, above);
    if (single && certain != 0) {
      certain = lowest_bits(certain, 1);
      above = V::set1(Row::kLargestKey);  // no other
      single = false;
    }
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
