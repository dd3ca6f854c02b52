// The maxima of a plan's groups, in order.
#pragma once

#include <cstdint>

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
  // most of the work. `ahead` as in Row::sweep().
  template <bool ahead = false>
  void sweep(const Row& row, const SearchPlan& plan) {
    const int32_t period = plan.chunk * plan.groups;
    const int32_t stride = max(plan.step / plan.chunk, 1);  // in periods, between those that are sampled
    row.template sweep<ahead>(0, period, [&](int32_t i, auto lanes, auto) { V::store(columns_ + i, lanes); });
    for (int64_t round = stride; round * period < row.n() && plan.samples(int32_t(round * plan.chunk));
         round += stride) {
      const auto begin = int32_t(round * period);
      const int32_t end = period < row.n() - begin ? begin + period : row.n();
      row.template sweep<ahead>(begin, end, [&](int32_t i, auto lanes, auto) {
        Lane* const at = columns_ + (i - begin);
        V::store(at, V::max(V::load(at), lanes));
      });
    }
  }

  // From the columns, of which `chunk` in turn are the places of a chunk, to the groups' maxima, one after the other.
  void join(const SearchPlan& plan) {
    switch (plan.chunk) {  // as constants, so that the vectors stay in registers
      case 16:
        return join_places<16>(plan);
      case 8:
        return join_places<8>(plan);
      case 4:
        return join_places<4>(plan);
      case 2:
        return join_places<2>(plan);
      default:
        return join_places<1>(plan);
    }
  }

  void measure(const SearchPlan& plan) {
    groups_ = plan.groups;
    for (int32_t i = groups_; i < kGroups; ++i) maxima_[i] = maxima_[0];
    Lane least;
    bounds<V>(maxima_, kGroups, least, greatest_);
    for (int32_t i = groups_; i < kGroups; ++i) maxima_[i] = least;  // behind all others
    coarse_.take(maxima_, kGroups, least, greatest_);
  }

  void rank() { coarse_.rank(); }

  // The i-th largest, counted from 0, where that is all that is asked.
  Word pick(int i) {
    const int16_t* const ranks = coarse_.ranks();
    const auto before = V::set1(Lane(i)), none = V::set1(Row::kNone);
    auto largest = none;
    for (int v = 0; v < kGroups; v += Row::kLanes) {
      const auto earlier = V::greater(before, V::widen(reinterpret_cast<const uint16_t*>(ranks + v)));
      largest = V::max(largest, V::choose(earlier, none, V::load(maxima_ + v)));
    }
    // The largest of those behind the first i is the right one if leading bits have told these apart from it.
    const Word key = Row::key_of(V::reduce_max(largest));
    if (count(maxima_, Row::lane_of(key - 1)) > i) return key;
    arrange();
    return at(i);
  }

  // Puts them in order.
  void arrange() {
    const int16_t* const ranks = coarse_.ranks();
#pragma GCC unroll 8
    for (int32_t i = 0; i < kGroups; ++i) sorted_[ranks[i]] = maxima_[i];
    // So few are worth it in any case.
    while (!settle<V>(kGroups, sorted_)) {
    }
    for (int32_t i = groups_; i < kGroups; ++i) sorted_[i] = Row::kNone;
  }

  // All steps, for a row that is alone.
  void make(const Row& row, const SearchPlan& plan) {
    sweep(row, plan);
    join(plan);
    measure(plan);
    rank();
    arrange();
  }

  Lane greatest() const { return greatest_; }

  // What the search asks, once they are in order.
  Word at(int i) const { return Row::key_of(sorted_[i]); }
  int above(Word key) const { return count(sorted_, Row::lane_of(key)); }
  int from(Word key) const { return count(sorted_, Row::lane_of(key - 1)); }  // asked of no key 0: no pivot is as low

 private:
  // Joins places 2 i and 2 i + 1 until there is one. The group of a chunk's place p is group_shift() * p further on,
  // which is kGroups columns: so an odd place belongs to the even one that far behind it, and, as half of the columns
  // are left each time, always just so far.
  template <int kChunk>
  __attribute__((always_inline)) void join_places(const SearchPlan& plan) {
    if constexpr (kChunk <= Row::kMaxChunk) {
      constexpr int kPeriod = kGroups / Row::kLanes;  // in vectors
      typename V::Reg column[kChunk * kPeriod];
      for (int v = 0; v < kChunk * kPeriod; ++v) column[v] = V::load(columns_ + v * Row::kLanes);
      const auto none = V::set1(Row::kNone);
      int stride = 1;  // in places of the chunk, between those that are left
#pragma GCC unroll 4
      for (int vectors = kChunk * kPeriod; vectors > kPeriod; vectors /= 2, stride *= 2) {
        const bool both = plan.samples(stride);
        typename V::Reg joined[kChunk * kPeriod / 2];
        for (int v = 0; v < vectors; v += 2) {
          const int behind = (v + vectors - kPeriod) % vectors;
          const typename V::Reg even[2] = {column[v], column[v + 1]};
          const typename V::Reg odd[2] = {both ? column[behind] : none, both ? column[behind + 1] : none};
          joined[v / 2] = V::max_of_pairs(even, odd);
        }
        for (int v = 0; v < vectors / 2; ++v) column[v] = joined[v];
      }
      for (int v = 0; v < kPeriod; ++v) V::store(maxima_ + v * Row::kLanes, column[v]);
    }
  }

  static int count(const Lane* maxima, Lane lane) {
    auto counts = V::set1(0);
    const auto other = V::set1(lane);
    for (int i = 0; i < kGroups; i += Row::kLanes) counts = V::count_gt(counts, V::load(maxima + i), other);
    return int(V::sum(counts));
  }

  static constexpr int kMaxPeriod = Row::kMaxChunk * kGroups;
  static constexpr int kRoom = kGroups + Row::kLanes;
  int32_t groups_;
  Lane greatest_;
  alignas(64) Lane columns_[kMaxPeriod + Row::kLanes];
  alignas(64) Lane maxima_[kRoom];
  alignas(64) Lane sorted_[kRoom];
  CoarseRanks<kGroups> coarse_;
};

}  // namespace jax_rtopk::RTOPK_ISA
