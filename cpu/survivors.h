// A buffer of elements that may belong to a row's top-k, by ascending index.
#pragma once

#include <cstdint>

#include "cpu/batch.h"
#include "cpu/coarse_rank.h"
#include "cpu/policy.h"
#include "cpu/radix_sort.h"
#include "cpu/row.h"
#include "cpu/row_search.h"

namespace jax_rtopk::RTOPK_ISA {

template <class Row>
class Survivors {
 public:
  using V = typename Row::V;
  using Word = typename Row::Word;
  using Lane = typename Row::Lane;
  static constexpr int32_t kCapacity = 2048;

  int32_t count() const { return count_; }
  const Lane* lanes() const { return lanes_; }
  const int32_t* indices() const { return indices_; }
  void clear() {
    count_ = 0;
    forget_bounds();
  }
  void push(Lane lane, int32_t index) {
    lanes_[count_] = lane;
    indices_[count_] = index;
    ++count_;
  }
  // Says beforehand that none are below `least` and few above `greatest`, which otherwise is to be found out.
  void expect(Lane least, Lane greatest) {
    least_ = least;
    greatest_ = greatest;
  }
  void forget_bounds() { expect(0, 0); }

  // Fills with all elements of a row. There must be room for them, here and below.
  void take(const Row& row) {
    auto greatest = V::set1(Row::kNone), least_inverted = greatest;
    row.sweep(0, row.n(), [&](int32_t i, auto lanes, auto inside) {
      V::store(lanes_ + i, lanes);
      V::compress_index(indices_ + i, V::index(i), Row::kAll);
      greatest = V::max(greatest, lanes);
      const typename V::Reg inverted = ~lanes;
      least_inverted = V::max(
          least_inverted, inside == Row::kAll ? inverted : V::keep_first(inverted, popcount(inside), least_inverted));
    });
    count_ = row.n();
    expect(Lane(~V::reduce_max(least_inverted)), V::reduce_max(greatest));
  }

  // Appends those that are above a lane. `ahead` as in Row::sweep().
  template <bool ahead = false>
  void append_above(const Row& row, int32_t begin, int32_t end, Lane lane) {
    const auto above = V::set1(lane);
    int32_t size = count_;
    auto index = V::index(begin);
    row.template sweep<ahead>(begin, end, [&](int32_t, auto lanes, auto) {
      const auto kept = V::gt(lanes, above);
      V::compress(lanes_ + size, lanes, kept);
      V::compress_index(indices_ + size, index, kept);
      index = V::next(index);
      size += popcount(kept);
    });
    count_ = size;
  }

  // The same where such elements are rare and the row is long: fetches ahead, and asks vectors for them together that
  // come from no more than a cache line.
  void append_rare_above(const Row& from, int32_t begin, int32_t end, Lane lane) {
    constexpr int kVectors = 64 / int(sizeof(typename V::Reg));
    const Row row = from;  // which no store can change, so it stays in registers
    const auto above = V::set1(lane);
    int32_t i = begin;
    for (; i <= end - kVectors * Row::kLanes; i += kVectors * Row::kLanes) {
      row.fetch_ahead(i);
      typename V::Reg lanes[kVectors];
      for (int v = 0; v < kVectors; ++v) lanes[v] = row.lanes(i + v * Row::kLanes);
      auto largest = lanes[0];
      for (int v = 1; v < kVectors; ++v) largest = V::max(largest, lanes[v]);
      if (V::gt(largest, above) == 0) continue;
      for (int v = 0; v < kVectors; ++v) {
        const auto kept = V::gt(lanes[v], above);
        V::compress(lanes_ + count_, lanes[v], kept);
        V::compress_index(indices_ + count_, V::index(i + v * Row::kLanes), kept);
        count_ += popcount(kept);
      }
    }
    append_above(row, i, end, lane);
  }

  Counts count_from(const Pivots<Word>& pivots) const {
    return count_above(as_row(), Row::lane_of(pivots.low - 1), Row::lane_of(pivots.high - 1));
  }

  // Keeps what an emission from the row selects, which must all be here.
  void keep(const Emission<Row>& emission) {
    Chooser<Row> choose(emission);
    keep_if(count_, [&](int32_t, auto lanes, auto inside) { return choose(lanes, inside); });
  }

  // Keeps the k that are selected first, still by ascending index. Of the batch's rows those whose bits are set, which
  // have at least k.
  static void reduce(Survivors* rows, Batch& batch, uint32_t which, int32_t k) {
    const auto each = [&](auto step) { for_each(rows, batch, which, step); };
    each([&](Survivors& row) { row.take_for_ranks(k); });
    each([&](Survivors& row) { row.coarse_.rank(); });
    each([&](Survivors& row) { row.keep_first(k); });
  }

  // Puts them in order of selection: larger keys first, equal keys by index. The rest is lost.
  static void sort(Survivors* rows, Batch& batch, uint32_t which, int32_t k, RadixSort<Word>& sorter) {
    const auto each = [&](auto step) { for_each(rows, batch, which, step); };
    each([&](Survivors& row) {
      if (!row.worth_ranking(k)) row.keep_first(k);
      row.take_for_ranks(k);
    });
    each([&](Survivors& row) { row.coarse_.rank(); });
    each([&](Survivors& row) { row.scatter(); });
    each([&](Survivors& row) {
      if (!row.settled()) row.sort_again(k, sorter);
    });
  }

  const Lane* sorted_lanes() const { return sorted_lanes_; }
  const int32_t* sorted_indices() const { return sorted_indices_; }

  Lane least() const {
    Lane least = lanes_[0];
    for (int32_t i = 1; i < count_; ++i) least = lanes_[i] < least ? lanes_[i] : least;
    return least;
  }

 private:
  template <class Step>
  static void for_each(Survivors* rows, Batch& batch, uint32_t which, Step&& step) {
    batch.each([&](int i) {
      if (which >> i & 1) step(rows[i]);
    });
  }

  bool worth_ranking(int32_t k) const { return count_ <= most_ranked(k); }

  using Stored = RTOPK_ISA::Row<Word>;
  Stored as_row() const {
    return {KeyMap<Word>{0, Stored::key_of(0), 0}, reinterpret_cast<const Word*>(lanes_), count_};
  }

  void take_for_ranks(int32_t k) {
    if (!worth_ranking(k)) return;
    if (least_ >= greatest_) bounds<V>(lanes_, count_, least_, greatest_);
    coarse_.take(lanes_, count_, least_, greatest_);
    // Ranks beyond those of the survivors are given to elements that are less than any.
    for (int i = 0; i < kCoarseLanes; i += V::kLanes) V::store(lanes_ + count_ + i, V::set1(Row::kNone));
  }

  void keep_first(int32_t k) {
    if (count_ <= k) return;
    if (worth_ranking(k) && coarse_.separate(k)) {
      const auto end = V::set1(Lane(k));
      const auto* const ranks = reinterpret_cast<const uint16_t*>(coarse_.ranks());
      keep_if(coarse_.end(), [&](int32_t i, auto, auto) { return V::gt(end, V::widen(ranks + i)); });
      return;
    }
    const Stored row = as_row();
    const Emission<Stored> found = exact_emission(row, sampling_plan(count_, k));
    keep({found.above, found.lo, found.quota, found.single});
  }

  void scatter() {
    const int16_t* const ranks = coarse_.ranks();
    const int32_t end = coarse_.end();
#pragma GCC unroll 4
    for (int32_t i = 0; i < end; ++i) {
      sorted_lanes_[ranks[i]] = lanes_[i];
      sorted_indices_[ranks[i]] = indices_[i];
    }
  }

  bool settled() { return settle<V>(coarse_.end(), sorted_lanes_, sorted_indices_); }

  void sort_again(int32_t k, RadixSort<Word>& sorter) {
    // More may be above what was expected than was said.
    forget_bounds();
    take_for_ranks(k);
    coarse_.rank();
    scatter();
    if (settled()) return;
    auto* const elements = sorter.elements(count_);
    for (int32_t i = 0; i < count_; ++i) elements[i] = {Stored::key_of(lanes_[i]), indices_[i]};
    const auto* const sorted = sorter.sort_descending();
    for (int32_t i = 0; i < count_; ++i) {
      sorted_lanes_[i] = Stored::lane_of(sorted[i].key);
      sorted_indices_[i] = sorted[i].index;
    }
  }

  template <class Choose>
  void keep_if(int32_t end, Choose choose) {
    int32_t size = 0;
    as_row().sweep(0, end, [&](int32_t i, auto lanes, auto inside) {
      const auto kept = choose(i, lanes, inside);
      // In place: nothing is written beyond the vector that was read.
      V::compress(lanes_ + size, lanes, kept);
      V::compress_copy(indices_ + size, indices_ + i, kept);
      size += popcount(kept);
    });
    count_ = size;
  }

  // A plan without powers and roots: of each group a few elements from all over the row, of which a stream's later ones
  // may be larger.
  static SearchPlan sampling_plan(int32_t n, int32_t k) {
    constexpr int32_t kSampled = 4;
    SearchPlan plan{};
    plan.n = n;
    plan.k = k;
    plan.groups = min(n, kGroups);
    plan.chunk = 1;
    plan.step = 1;
    plan.spread = 2.0F;
    const float exceed = float(k) / float(n), below = 1.0F - exceed;
    if (n >= kSampled * kGroups && 3 * k < n) {
      plan.sampled = kSampled;
      while (2 * plan.step * kSampled <= n / kGroups) plan.step *= 2;
      plan.rank = kGroups * (1.0F - below * below * below * below);
      plan.slope = kGroups * kSampled / float(n) * below * below * below;
    } else {
      plan.sampled = n == plan.groups ? n : 1;
      plan.rank = float(plan.groups) * exceed;
      plan.slope = float(plan.groups) / float(n);
    }
    return plan;
  }

  static constexpr int kMaxRanked = most_ranked(kMaxRankedK);
  // To be read, written or filled up beyond what counts.
  static constexpr int kSlack = V::kLanes + kCoarseLanes;
  int32_t count_ = 0;
  Lane least_{}, greatest_{};  // not known unless least_ < greatest_
  alignas(64) Lane lanes_[kCapacity + kSlack];
  alignas(64) int32_t indices_[kCapacity + kSlack];
  alignas(64) Lane sorted_lanes_[kMaxRanked + kSlack];
  alignas(64) int32_t sorted_indices_[kMaxRanked + kSlack];
  CoarseRanks<kMaxRanked> coarse_;
};

}  // namespace jax_rtopk::RTOPK_ISA
