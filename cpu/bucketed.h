// Bucketed top-k: what the buckets of a row keep, and of that the exact top-k.
//
// The candidates lie bucket by bucket, not by index, and the exact selection gives ties to the first in that order. So
// it finds the right keys, and perhaps the wrong ones among equal elements, which are then put right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cpu/batch.h"
#include "cpu/bucket_queues.h"
#include "cpu/index_order.h"
#include "cpu/kernels_isa.h"
#include "cpu/radix_sort.h"
#include "cpu/row.h"
#include "cpu/selector.h"

namespace jax_rtopk::RTOPK_ISA {

template <class Bits>
class BucketedSelector {
 public:
  explicit BucketedSelector(const BucketedJob& job)
      : job_(job),
        request_(job.request),
        k_(int32_t(request_.k)),
        count_(int32_t(job.buckets.candidates())),
        group_(max(1, min(kMostRows, int32_t(kGroupBytes / (count_ * int64_t(sizeof(Word))))))),
        row_(KeyMap<Bits>::make(request_.kind, !request_.largest, false), nullptr, int32_t(request_.n)),
        queues_(job.buckets),
        lanes_(size_t(group_) * size_t(count_)),
        indices_(lanes_.size()),
        first_(size_t(group_) * size_t(k_)),
        places_(first_.size()),
        stored_{stored_request(request_, count_), job.plan, lanes_.data()},
        selector_(stored_),
        order_(request_.n, count_) {}

  // Writes what is selected in rows [begin, end).
  void select_to(int64_t begin, int64_t end, Bits* values, int32_t* indices) {
    for (int64_t row = begin; row < end; row += group_) {
      const int64_t rows = end - row < group_ ? end - row : group_;
      for (int64_t i = 0; i < rows; ++i) {
        queues_.fill(at(row + i));
        queues_.copy_to(lanes_.data() + i * count_, indices_.data() + i * count_);
      }
      selector_.for_batches(0, rows, [&](Batch& batch, int64_t first) {
        selector_.select_to(batch, first, first_.data(), places_.data());
      });
      for (int64_t i = 0; i < rows; ++i) finish(i, at(row + i), values + (row + i) * k_, indices + (row + i) * k_);
    }
  }

 private:
  using Word = typename Row<Bits>::Word;
  using Lane = typename Row<Bits>::Lane;
  using Stored = Row<Word>;  // of the candidates' lanes, which are their own keys
  static constexpr int32_t kMostRows = 4;
  static constexpr int64_t kGroupBytes = 1 << 13;
  static constexpr Kind kStoredKind = std::is_signed_v<Lane> ? Kind::kSigned : Kind::kUnsigned;

  static Request stored_request(const Request& request, int64_t count) {
    Request stored = request;
    stored.kind = kStoredKind;
    stored.item_bytes = int(sizeof(Word));
    stored.n = count;
    stored.largest = true;
    return stored;
  }

  Row<Bits> at(int64_t row) const { return row_.at(static_cast<const Bits*>(job_.operand) + row * request_.n); }

  // Writes what is selected in the i-th row of the group, of which the keys are known.
  void finish(int64_t i, const Row<Bits>& row, Bits* values, int32_t* indices) {
    const int32_t* const index = indices_.data() + i * count_;
    const int32_t* const places = places_.data() + i * k_;
    const Lane* const lanes = reinterpret_cast<const Lane*>(first_.data()) + i * k_;
    for (int32_t j = 0; j < k_; ++j) indices[j] = index[places[j]];
    settle_ties(lanes_.data() + i * count_, index, lanes, indices);
    if (request_.sorted && order_ties(lanes, indices)) {
      row_.bits_of(lanes, k_, values);
      return;
    }
    order_.sort(indices, k_);
    if (request_.sorted) sort(row, indices);
    for (int32_t j = 0; j < k_; ++j) values[j] = row.bits(indices[j]);
  }

  // Where there are more candidates like the last that is selected than are selected, the lowest indices are.
  void settle_ties(const Lane* candidates, const int32_t* index, const Lane* lanes, int32_t* indices) {
    Lane last = lanes[k_ - 1];
    if (!request_.sorted) {
      for (int32_t j = 0; j < k_; ++j) last = lanes[j] < last ? lanes[j] : last;
    }
    const KeyMap<Word> map = KeyMap<Word>::make(kStoredKind, false, false);
    const Stored row(map, reinterpret_cast<const Word*>(candidates), count_);
    const bool least = last == Stored::kNone;
    const Counts above = count_above(row, least ? last : last - 1, last);
    if ((least ? count_ : above.low) == k_) return;
    ties_.clear();
    for (int32_t j = 0; j < count_; ++j) {
      if (candidates[j] == last) ties_.push_back(index[j]);
    }
    order_.sort(ties_.data(), int32_t(ties_.size()));
    const int32_t* tie = ties_.data();
    for (int32_t j = 0; j < k_; ++j) {
      if (lanes[j] == last) indices[j] = *tie++;
    }
  }

  // Puts equal elements, side by side, in order of index. Returns false if they are so many that it is not worth it.
  bool order_ties(const Lane* lanes, int32_t* indices) const {
    int32_t swaps_left = k_;
    for (int32_t j = 1; j < k_; ++j) {
      for (int32_t to = j; to > 0 && lanes[to - 1] == lanes[to] && indices[to - 1] > indices[to]; --to) {
        if (swaps_left-- == 0) return false;
        const int32_t other = indices[to];
        indices[to] = indices[to - 1];
        indices[to - 1] = other;
      }
    }
    return true;
  }

  void sort(const Row<Bits>& row, int32_t* indices) {
    auto* const elements = sorter_.elements(k_);
    for (int32_t j = 0; j < k_; ++j) elements[j] = {Row<Bits>::key_of(row.lane(indices[j])), indices[j]};
    const auto* const sorted = sorter_.sort_descending();
    for (int32_t j = 0; j < k_; ++j) indices[j] = sorted[j].index;
  }

  const BucketedJob& job_;
  const Request& request_;
  const int32_t k_;
  const int32_t count_;  // of candidates in a row
  const int32_t group_;  // rows whose candidates are selected from together
  const Row<Bits> row_;
  BucketQueues<Row<Bits>> queues_;
  // Of each row of the group: its candidates, and what is selected of them, by their places.
  std::vector<Lane> lanes_;
  std::vector<int32_t> indices_;
  std::vector<Word> first_;
  std::vector<int32_t> places_;
  const Job stored_;
  Selector<Word> selector_;
  IndexOrder order_;
  std::vector<int32_t> ties_;
  RadixSort<Word> sorter_;
};

}  // namespace jax_rtopk::RTOPK_ISA
