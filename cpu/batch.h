// A few rows that go through the same steps together.
//
// A step has to wait for the one before, and for memory. All rows take one step before any takes the next, so while one
// row waits the CPU gets on with the others; and at every step a little of the rows to come is fetched.
#pragma once

#include <cstdint>

#include "cpu/simd/select.h"

namespace jax_rtopk::RTOPK_ISA {

class Batch {
 public:
  // `next` to `end`: what will be read after this batch.
  Batch(int rows, const char* next, const char* end) : rows_(rows) {
    const int64_t lines = (end - next) / kLine;
    // A few lines the CPU foresees by itself, and a row that is a batch of its own is fetched by a sweep of it.
    if (rows == 1 || lines < kLeastLines) return;
    next_ = next;
    end_ = end;
    bytes_ = kLine * ((lines + kSteps * rows - 1) / (kSteps * rows));
  }
  explicit Batch(int rows) : rows_(rows) {}

  int rows() const { return rows_; }
  // Whether the batch before was to fetch its rows. If not, it is one row, and a sweep of it should fetch ahead.
  bool fetched() const { return rows_ > 1; }

  // Calls step(i) for each row of the batch.
  template <class Step>
  void each(Step step) {
    for (int i = 0; i < rows_; ++i) {
      if (next_ < end_) fetch();
      step(i);
    }
  }

 private:
  void fetch() {
    const char* const end = end_ - next_ > bytes_ ? next_ + bytes_ : end_;
    for (; end - next_ >= kLine; next_ += kLine) __builtin_prefetch(next_);
    if (end == end_) next_ = end_;
  }

  static constexpr int kLine = 64;  // bytes
  static constexpr int kSteps = 6;  // of most selections; one with fewer leaves some unfetched
  static constexpr int kLeastLines = 32;

  int rows_;
  const char* next_ = nullptr;
  const char* end_ = nullptr;
  int64_t bytes_ = 0;  // to fetch in each step
};

}  // namespace jax_rtopk::RTOPK_ISA
