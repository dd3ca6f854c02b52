// The maxima of a plan's groups, in order.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/coarse_rank.h"
#include "cpu/row.h"

namespace jax_rtopk::RTOPK_ISA {

// Made in steps, in the order in which they stand here. Each reads what the one before has stored in other pieces, for
// which the CPU waits: so let other rows take the same step in between.
template <class Row>
class GroupMaxima {
 public:
  using V = typename Row::V;
  using Word = typename Row::Word;
  using Lane = typename Row::Lane;

  // Column i holds the maximum of elements i, i + period, ..., as far as they are sampled: one vectorised sweep does
  // most of the work.
  void sweep(const Row& row, const SearchPlan& plan) {
    const int32_t period = plan.chunk * plan.groups;
    const int32_t stride = max(plan.step / plan.chunk, 1);  // in periods, between those that are sampled
    Lane* const column = columns_ + period;
    row.sweep(0, period, [&](int32_t i, auto lanes, auto) { V::store(column + i, lanes); });
    for (int64_t round = stride; round * period < row.n() && plan.samples(int32_t(round * plan.chunk));
         round += stride) {
      const auto begin = int32_t(round * period);
      row.sweep(begin, period < row.n() - begin ? begin + period : row.n(), [&](int32_t i, auto lanes, auto) {
        Lane* const at = column + (i - begin);
        V::store(at, V::max(V::load(at), lanes));
      });
    }
  }

  // Place p of group g is in column chunk * (g - shift * p) + p: for all groups at once, that is so many columns back,
  // around the end.
  void join(const SearchPlan& plan) {
    const int32_t period = plan.chunk * plan.groups;
    std::memcpy(columns_, columns_ + period, size_t(period) * sizeof(Lane));
    int32_t places = 1;
    while (places * plan.step < plan.chunk && plan.samples(places * plan.step)) ++places;
    switch (places) {  // the usual numbers as constants
      case 1:
        return join_places<1>(plan, places);
      case 2:
        return join_places<2>(plan, places);
      case 4:
        return join_places<4>(plan, places);
      default:
        return join_places<0>(plan, places);
    }
  }

  void measure(const SearchPlan& plan) {
    groups_ = plan.groups;
    for (int32_t i = groups_; i < kGroups; ++i) maxima_[i] = maxima_[0];
    Lane least, greatest;
    bounds<V>(maxima_, kGroups, least, greatest);
    for (int32_t i = groups_; i < kGroups; ++i) maxima_[i] = least;  // behind all others
    coarse_.take(maxima_, kGroups, least, greatest);
  }

  void rank() { coarse_.rank(); }

  void order() {
    const int16_t* const ranks = coarse_.ranks();
#pragma GCC unroll 8
    for (int32_t i = 0; i < kGroups; ++i) sorted_[ranks[i]] = maxima_[i];
  }

  void settle() {
    // So few are worth it in any case.
    while (!RTOPK_ISA::settle<V>(kGroups, sorted_)) {
    }
    for (int32_t i = groups_; i < kGroups; ++i) sorted_[i] = Row::kNone;
  }

  // All of them, for a row that is alone.
  void make(const Row& row, const SearchPlan& plan) {
    sweep(row, plan);
    join(plan);
    measure(plan);
    rank();
    order();
    settle();
  }

  // What the search asks.
  Word at(int i) const { return Row::key_of(sorted_[i]); }
  int above(Word key) const { return count(Row::lane_of(key)); }
  int from(Word key) const { return count(Row::lane_of(key - 1)); }  // asked of no key 0: no pivot is as low

 private:
  // The largest of each group's places: of the given number, which is a constant unless that is 0.
  template <int kPlaces>
  void join_places(const SearchPlan& plan, int32_t number) {
    const int32_t places = kPlaces > 0 ? kPlaces : number;
    const int32_t period = plan.chunk * plan.groups, back = plan.step * (plan.chunk * plan.group_shift() - 1);
    // Of every `chunk` columns the first is a group's.
    typename Row::Mask firsts = 0;
    for (int lane = 0; lane < Row::kLanes; lane += plan.chunk) firsts |= typename Row::Mask(1) << lane;
    const int32_t step = max(plan.chunk, Row::kLanes), found = popcount(firsts);
    const Lane* const column = columns_ + period;
    Lane* to = maxima_;
    for (int32_t i = 0; i < period; i += step, to += found) {
      auto largest = V::load(column + i);
      for (int32_t place = 1; place < places; ++place) largest = V::max(largest, V::load(column + i - place * back));
      V::compress(to, largest, firsts);
    }
  }

  int count(Lane lane) const {
    auto counts = V::set1(0);
    const auto other = V::set1(lane);
    for (int i = 0; i < kGroups; i += Row::kLanes) counts = V::count_gt(counts, V::load(sorted_ + i), other);
    return int(V::sum(counts));
  }

  static constexpr int kMaxPeriod = Row::kMaxChunk * kGroups;
  static constexpr int kRoom = kGroups + Row::kLanes;
  int32_t groups_;
  alignas(64) Lane columns_[2 * kMaxPeriod + Row::kLanes];
  alignas(64) Lane maxima_[kRoom];
  alignas(64) Lane sorted_[kRoom];
  CoarseRanks<kGroups> coarse_;
};

}  // namespace jax_rtopk::RTOPK_ISA
