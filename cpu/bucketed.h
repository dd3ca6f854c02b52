// The second stage of bucketed top-k: the exact top-k of what the buckets of each row keep.
//
// The candidates lie bucket by bucket, not by index, and the exact selection gives ties to the first in that order. So
// it finds the right keys, and perhaps the wrong ones among equal elements, which are then put right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cpu/batch.h"
#include "cpu/index_order.h"
#include "cpu/kernels_isa.h"
#include "cpu/radix_sort.h"
#include "cpu/row.h"
#include "cpu/selector.h"

namespace jax_rtopk::RTOPK_ISA {

template <class Bits>
class CandidateSelector {
 public:
  using Word = typename Row<Bits>::Word;
  using Lane = typename Row<Bits>::Lane;

  // Of a few rows at a time, at most group(job), the candidates will be in `lanes`, row after row.
  CandidateSelector(const BucketedJob& job, const Lane* lanes)
      : job_(job),
        request_(job.request),
        k_(int32_t(request_.k)),
        count_(int32_t(job.buckets.candidates())),
        row_(KeyMap<Bits>::make(request_.kind, !request_.largest, false), nullptr, int32_t(request_.n)),
        lanes_(lanes),
        first_(size_t(group(job)) * size_t(k_)),
        places_(first_.size()),
        stored_{stored_request(request_, count_), job.plan, lanes},
        selector_(stored_),
        order_(request_.n, count_) {}

  static int32_t group(const BucketedJob& job) {
    constexpr int64_t kMostRows = 4, kBytes = 1 << 13;
    const int64_t fit = kBytes / (job.buckets.candidates() * int64_t(sizeof(Word)));
    return int32_t(fit < 1 ? 1 : fit > kMostRows ? kMostRows : fit);
  }

  Row<Bits> row(int64_t i) const { return row_.at(static_cast<const Bits*>(job_.operand) + i * request_.n); }

  // Writes what is selected in rows [begin, end); the candidates' indices are in `index`.
  void select_to(int64_t begin, int64_t end, const int32_t* index, Bits* values, int32_t* indices) {
    selector_.for_batches(0, end - begin, [&](Batch& batch, int64_t first) {
      selector_.select_to(batch, first, first_.data(), places_.data());
    });
    for (int64_t i = 0; i < end - begin; ++i) {
      finish(i, row(begin + i), index + i * count_, values + (begin + i) * k_, indices + (begin + i) * k_);
    }
  }

 private:
  using Stored = Row<Word>;  // of the candidates' lanes, which are their own keys
  static constexpr Kind kStoredKind = std::is_signed_v<Lane> ? Kind::kSigned : Kind::kUnsigned;

  static Request stored_request(const Request& request, int64_t count) {
    Request stored = request;
    stored.kind = kStoredKind;
    stored.item_bytes = int(sizeof(Word));
    stored.n = count;
    stored.largest = true;
    return stored;
  }

  // Writes what is selected in the i-th row of the group, of which the keys are known.
  void finish(int64_t i, const Row<Bits>& row, const int32_t* index, Bits* values, int32_t* indices) {
    const int32_t* const places = places_.data() + i * k_;
    const Lane* const lanes = reinterpret_cast<const Lane*>(first_.data()) + i * k_;
    for (int32_t j = 0; j < k_; ++j) indices[j] = index[places[j]];
    settle_ties(lanes_ + i * count_, index, lanes, indices);
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
  const Row<Bits> row_;
  const Lane* const lanes_;
  // What is selected of each row of the group, and its places among the candidates.
  std::vector<Word> first_;
  std::vector<int32_t> places_;
  const Job stored_;
  Selector<Word> selector_;
  IndexOrder order_;
  std::vector<int32_t> ties_;
  RadixSort<Word> sorter_;
};

}  // namespace jax_rtopk::RTOPK_ISA
