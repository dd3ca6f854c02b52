// The threshold search over a row in memory, and the emission that follows it.
#pragma once

#include <cstdint>

#include "cpu/group_maxima.h"
#include "cpu/row.h"

namespace jax_rtopk::RTOPK_ISA {

// What to select, in lanes: all above `above`, and of those from `lo` to `above` the first `quota` by index. With
// `single` only the first of those above `above`, the others being like those from `lo` on.
template <class Row>
struct Emission {
  typename Row::Lane above;
  typename Row::Lane lo;
  int32_t quota;
  bool single = false;
};

// All of a row.
template <class Row>
Emission<Row> whole(const Row& row) {
  return {Row::kGreatest, Row::kLeast, row.n()};
}

// A search over a row: repeat { p = pivots(); observe(p, count_from(row, p)); } until it is done.
template <class Row>
class RowSearch {
 public:
  using Word = typename Row::Word;
  using Lane = typename Row::Lane;

  RowSearch(const Row& row, const SearchPlan& plan, const GroupMaxima<Row>& maxima)
      : maxima_(maxima),
        k_(plan.k),
        top_(plan.sampled >= row.n() ? maxima.at(0) : Row::key_of(largest_lane(row))),
        search_(plan, top_) {}

  bool done() const { return search_.done(); }
  bool resolved() const { return search_.resolved(); }
  bool goes_on(int max_iter) const { return search_.goes_on(max_iter); }

  Pivots<Word> pivots() const { return search_.pivots(maxima_); }
  void observe(const Pivots<Word>& pivots, const Counts& counts) { search_.observe(pivots, counts.low, counts.high); }

  Emission<Row> emission() const {
    const auto bracket = search_.bracket();
    const Lane lo = Row::lane_of(bracket.lo);
    if (bracket.maximum_is_last() && bracket.lo < top_) return {Row::lane_of(top_ - 1), lo, k_ - 1, true};
    return {Row::lane_of(bracket.last), lo, k_ - bracket.count_last};
  }

 private:
  const GroupMaxima<Row>& maxima_;
  const int32_t k_;
  const Word top_;
  Search<Word> search_;
};

// How many elements are at or above each of two pivots.
template <class Row>
Counts count_from(const Row& row, const Pivots<typename Row::Word>& pivots) {
  return count_above(row, Row::lane_of(pivots.low - 1), Row::lane_of(pivots.high - 1));
}

// The exact top-k of a row, by search alone.
template <class Row>
Emission<Row> exact_emission(const Row& row, const SearchPlan& plan) {
  if (plan.k == row.n()) return whole(row);
  GroupMaxima<Row> maxima;
  maxima.make(row, plan);
  RowSearch<Row> search(row, plan, maxima);
  while (!search.done()) {
    const auto pivots = search.pivots();
    search.observe(pivots, count_from(row, pivots));
  }
  return search.emission();
}

// The lowest `count` of the bits that are set.
inline uint32_t lowest_bits(uint32_t mask, int count) {
#if defined(__BMI2__)
  return _pdep_u32((1U << min(count, 31)) - 1, mask);
#else
  if (popcount(mask) <= count) return mask;
  uint32_t kept = 0;
  for (; count > 0; --count) {
    kept |= mask & -mask;
    mask &= mask - 1;
  }
  return kept;
#endif
}

// Decides vector by vector which elements an emission selects.
template <class Row>
class Chooser {
 public:
  using V = typename Row::V;
  using Mask = typename Row::Mask;

  explicit Chooser(const Emission<Row>& emission)
      : above_(V::set1(emission.above)), lo_(V::set1(emission.lo)), quota_(emission.quota), single_(emission.single) {}

  __attribute__((always_inline)) Mask operator()(typename Row::Reg lanes, Mask inside) {
    Mask certain = V::gt(lanes, above_);
    if (single_ && certain != 0) {
      certain = lowest_bits(certain, 1);
      above_ = V::set1(Row::kGreatest);  // no other
      single_ = false;
    }
    Mask maybe = ~V::gt(lo_, lanes) & ~certain & inside;
    maybe = lowest_bits(maybe, quota_);
    quota_ -= popcount(maybe);
    return certain | maybe;
  }

 private:
  typename Row::Reg above_;
  const typename Row::Reg lo_;
  int32_t quota_;
  bool single_;
};

// Calls sink(indices, count) with the selected indices in ascending order, some at a time. `indices` may be overwritten
// afterwards.
template <class Row, class Sink>
void emit(const Row& row, const Emission<Row>& emission, Sink sink) {
  using V = typename Row::V;
  constexpr int32_t kFull = 1024;
  alignas(64) int32_t indices[kFull + Row::kLanes];
  int32_t count = 0;
  Chooser<Row> choose(emission);
  row.sweep(0, row.n(), [&](int32_t i, auto lanes, auto inside) {
    const auto selected = choose(lanes, inside);
    V::compress_index(indices + count, V::index(i), selected);
    count += popcount(selected);
    if (count >= kFull) {
      sink(indices, count);
      count = 0;
    }
  });
  sink(indices, count);
}

}  // namespace jax_rtopk::RTOPK_ISA
