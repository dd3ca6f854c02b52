// Selection from rows in memory, whichever way policy.h says.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/batch.h"
#include "cpu/early_search.h"
#include "cpu/exact.h"
#include "cpu/kernels_isa.h"
#include "cpu/policy.h"
#include "cpu/radix_sort.h"
#include "cpu/row_search.h"

namespace jax_rtopk::RTOPK_ISA {

// Selects from a few rows at a time.
template <class Bits>
class Selector {
 public:
  using Word = typename Row<Bits>::Word;
  using Lane = typename Row<Bits>::Lane;

  explicit Selector(const Job& job)
      : job_(job),
        request_(job.request),
        k_(int32_t(request_.k)),
        row_(KeyMap<Bits>::make(request_.kind, !request_.largest, request_.by_magnitude), nullptr, int32_t(request_.n)),
        batch_(max(1, min(int32_t(kBatchBytes / (request_.n * int64_t(sizeof(Bits)))), kBatch))) {
    if (k_ > kMostKept) return;
    for (int i = 0; i < batch_; ++i) survivors_[i].make_room(k_);
  }

  // Calls select(batch, its first row) until all of rows [begin, end) are dealt with.
  template <class Select>
  void for_batches(int64_t begin, int64_t end, Select select) const {
    const auto up_to = [end](int64_t row) { return row < end ? row : end; };
    for (int64_t row = begin; row < end; row += batch_) {
      const int64_t next = up_to(row + batch_), after = up_to(next + batch_);
      Batch batch(int(next - row), reinterpret_cast<const char*>(bits(next)),
                  reinterpret_cast<const char*>(bits(after)));
      select(batch, row);
    }
  }

  const Bits* bits(int64_t row) const { return static_cast<const Bits*>(job_.operand) + row * request_.n; }

  // Calls sink(row, indices, count) with the indices selected in each of the rows, ascending, some at a time.
  template <class Sink>
  void select(Batch& batch, int64_t begin, Sink sink) {
    const uint32_t collected = collect(batch, begin);
    if (collected != 0) Survivors<Row<Bits>>::reduce(survivors_, batch, collected, k_);
    batch.each([&](int i) {
      if (collected >> i & 1) {
        sink(begin + i, survivors_[i].indices(), k_);
      } else {
        emit(row(begin + i), emission(i), [&](const int32_t* indices, int32_t n) { sink(begin + i, indices, n); });
      }
    });
  }

  // Writes what is selected in each of the rows, in the order that the request asks for.
  void select_to(Batch& batch, int64_t begin, Bits* values, int32_t* indices) {
    const uint32_t collected = collect(batch, begin);
    if (request_.sorted && collected != 0) {
      Survivors<Row<Bits>>::sort(survivors_, batch, collected, k_, sorter_);
    } else if (collected != 0) {
      Survivors<Row<Bits>>::reduce(survivors_, batch, collected, k_);
    }
    batch.each([&](int i) {
      const int64_t at = (begin + i) * k_;
      if (collected >> i & 1) {
        const auto& from = survivors_[i];
        std::memcpy(indices + at, request_.sorted ? from.sorted_indices() : from.indices(),
                    size_t(k_) * sizeof(int32_t));
        row_.bits_of(request_.sorted ? from.sorted_lanes() : from.lanes(), k_, values + at);
      } else {
        write_emission(row(begin + i), emission(i), values + at, indices + at);
      }
    });
  }

 private:
  static constexpr int32_t kBatch = 4;
  static constexpr int64_t kBatchBytes = 1 << 13;

  Row<Bits> row(int64_t index) const { return row_.at(bits(index)); }

  // Finds what is selected. A bit for each row says whether its survivors include that, and may include more; of the
  // others the emission tells what is.
  uint32_t collect(Batch& batch, int64_t begin) {
    const auto row_at = [&](int i) { return row(begin + i); };
    if (few_survive(request_, request_.n)) {
      RTOPK_ISA::collect(batch, row_at, job_.plan, maxima_, survivors_);
      return ~0U;
    }
    if (k_ == row_.n()) return 0;
    return search(batch, row_at, job_.plan, request_.most_passes(), searches_, survivors_);
  }

  Emission<Row<Bits>> emission(int i) const {
    if (k_ == row_.n()) return whole(row_);
    return searches_[i].emission();
  }

  void write_emission(const Row<Bits>& row, const Emission<Row<Bits>>& emission, Bits* values, int32_t* indices) {
    int32_t* to = indices;
    emit(row, emission, [&](const int32_t* selected, int32_t count) {
      std::memcpy(to, selected, size_t(count) * sizeof(int32_t));
      to += count;
    });
    if (request_.sorted) sort(row, indices);
    for (int32_t i = 0; i < k_; ++i) values[i] = row.bits(indices[i]);
  }

  void sort(const Row<Bits>& row, int32_t* indices) {
    auto* const elements = sorter_.elements(k_);
    for (int32_t i = 0; i < k_; ++i) elements[i] = {Row<Bits>::key_of(row.lane(indices[i])), indices[i]};
    const auto* const sorted = sorter_.sort_descending();
    for (int32_t i = 0; i < k_; ++i) indices[i] = sorted[i].index;
  }

  const Job& job_;
  const Request& request_;
  const int32_t k_;
  const Row<Bits> row_;
  const int32_t batch_;  // as many rows as stay in the innermost cache, with what is noted of each
  StridedMaxima<Row<Bits>> maxima_[kBatch];
  Survivors<Row<Bits>> survivors_[kBatch];
  EarlySearch<Row<Bits>> searches_[kBatch];
  RadixSort<Word> sorter_;
};

}  // namespace jax_rtopk::RTOPK_ISA
