// A buffer of elements that may belong to a row's top-k, by ascending index.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

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

  // For selections of k, before anything else: a good guess keeps little more than k, a row's rest adds as much. There
  // must be room for k and a block of the stream (exact.h). Without a call there is room for none.
  void make_room(int32_t k) {
    capacity_ = 2048 + 2 * k;
    const int32_t unsorted = room(capacity_), sorted = room(max(kMaxRanked, k));
    memory_.reset(operator new(size_t(unsorted + sorted) * (sizeof(Lane) + sizeof(int32_t)), kLine));
    lanes_ = static_cast<Lane*>(memory_.get());
    sorted_lanes_ = lanes_ + unsorted;
    indices_ = reinterpret_cast<int32_t*>(sorted_lanes_ + sorted);
    sorted_indices_ = indices_ + unsorted;
  }
  int32_t capacity() const { return capacity_; }

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
    Lane* const to = lanes_;
    int32_t* const index_to = indices_;
    row.sweep(0, row.n(), [&](int32_t i, auto lanes, auto inside) {
      V::store(to + i, lanes);
      V::compress_index(index_to + i, V::index(i), Row::kAll);
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
    Lane* const to = lanes_;
    int32_t* const index_to = indices_;
    int32_t size = count_;
    auto index = V::index(begin);
    row.template sweep<ahead>(begin, end, [&](int32_t, auto lanes, auto) {
      const auto kept = V::gt(lanes, above);
      V::compress(to + size, lanes, kept);
      V::compress_index(index_to + size, index, kept);
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
    Lane* const to = lanes_;
    int32_t* const index_to = indices_;
    int32_t size = count_;
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
        V::compress(to + size, lanes[v], kept);
        V::compress_index(index_to + size, V::index(i + v * Row::kLanes), kept);
        size += popcount(kept);
      }
    }
    count_ = size;
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
    each([&](Survivors& row) {
      if (row.few()) row.take_for_ranks();
    });
    each([&](Survivors& row) {
      if (row.few()) row.coarse_.rank();
    });
    each([&](Survivors& row) {
      if (row.count_ > k && !(row.few() && row.keep_by_ranks(k))) row.keep_by_search(k);
    });
  }

  // Puts them in order of selection: larger keys first, equal keys by index. The rest is lost.
  static void sort(Survivors* rows, Batch& batch, uint32_t which, int32_t k, RadixSort<Word>& sorter) {
    const auto each = [&](auto step) { for_each(rows, batch, which, step); };
    const bool by_ranks = k <= kMaxRankedK;
    each([&](Survivors& row) {
      if (row.count_ > (by_ranks ? most_ranked(k) : k)) row.keep_by_search(k);
      if (by_ranks) row.take_for_ranks();
    });
    if (!by_ranks) {
      each([&](Survivors& row) { row.sort_by_digits(sorter); });
      return;
    }
    each([&](Survivors& row) { row.coarse_.rank(); });
    each([&](Survivors& row) { row.scatter(); });
    each([&](Survivors& row) {
      if (!row.settled()) row.sort_again(sorter);
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

  bool few() const { return count_ <= kMostSeparated; }

  using Stored = RTOPK_ISA::Row<Word>;
  Stored as_row() const {
    return {KeyMap<Word>{0, Stored::key_of(0), 0}, reinterpret_cast<const Word*>(lanes_), count_};
  }

  void take_for_ranks() {
    if (least_ >= greatest_) bounds<V>(lanes_, count_, least_, greatest_);
    coarse_.take(lanes_, count_, least_, greatest_);
    // Ranks beyond those of the survivors are given to elements that are less than any.
    Lane* const end = lanes_ + count_;
    for (int i = 0; i < kCoarseLanes; i += V::kLanes) V::store(end + i, V::set1(Row::kNone));
  }

  // Keeps the first k, if the ranks tell which these are.
  bool keep_by_ranks(int32_t k) {
    if (!coarse_.separate(k)) return false;
    const auto end = V::set1(Lane(k));
    const auto* const ranks = reinterpret_cast<const uint16_t*>(coarse_.ranks());
    keep_if(coarse_.end(), [&](int32_t i, auto, auto) { return V::gt(end, V::widen(ranks + i)); });
    return true;
  }

  void keep_by_search(int32_t k) {
    const Stored row = as_row();
    const Emission<Stored> found = exact_emission(row, sampling_plan(count_, k));
    keep({found.above, found.lo, found.quota, found.single});
  }

  void scatter() {
    const int16_t* const ranks = coarse_.ranks();
    const int32_t end = coarse_.end();
    const Lane* const lanes = lanes_;
    const int32_t* const indices = indices_;
    Lane* const to = sorted_lanes_;
    int32_t* const index_to = sorted_indices_;
#pragma GCC unroll 4
    for (int32_t i = 0; i < end; ++i) {
      to[ranks[i]] = lanes[i];
      index_to[ranks[i]] = indices[i];
    }
  }

  bool settled() { return settle<V>(coarse_.end(), sorted_lanes_, sorted_indices_); }

  void sort_again(RadixSort<Word>& sorter) {
    // More may be above what was expected than was said.
    forget_bounds();
    take_for_ranks();
    coarse_.rank();
    scatter();
    if (!settled()) sort_by_digits(sorter);
  }

  void sort_by_digits(RadixSort<Word>& sorter) {
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
    Lane* const to = lanes_;
    int32_t* const index_to = indices_;
    int32_t size = 0;
    as_row().sweep(0, end, [&](int32_t i, auto lanes, auto inside) {
      const auto kept = choose(i, lanes, inside);
      // In place: nothing is written beyond the vector that was read.
      V::compress(to + size, lanes, kept);
      V::compress_copy(index_to + size, index_to + i, kept);
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
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(void* memory) const { operator delete(memory, kLine); }
  };

  // For `count` elements and what is read, written or filled up behind them, in whole lines.
  static constexpr int32_t room(int32_t count) { return (count + V::kLanes + kCoarseLanes + 15) / 16 * 16; }

  int32_t count_ = 0, capacity_ = 0;
  Lane least_{}, greatest_{};  // not known unless least_ < greatest_
  std::unique_ptr<void, Free> memory_;
  // Loops that store vectors copy these first: as far as the compiler knows, each such store might change them.
  Lane *lanes_ = nullptr, *sorted_lanes_ = nullptr;
  int32_t *indices_ = nullptr, *sorted_indices_ = nullptr;
  CoarseRanks<kMaxRanked> coarse_;
};

}  // namespace jax_rtopk::RTOPK_ISA
