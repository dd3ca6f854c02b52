// Exact selection from rows so long and few that each is cut into segments for the threads to share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cpu/parallel.h"
#include "cpu/policy.h"
#include "native/request.h"

namespace jax_rtopk {

// Too few rows to keep the threads busy.
inline bool long_and_few(const Request& request, const Parallel& parallel) {
  constexpr int64_t kLongRow = 1 << 18;
  return request.n >= kLongRow && request.rows < parallel.threads();
}
// Into how many a row is cut: they are long beside what is selected from each.
inline int64_t segments(const Request& request, const Parallel& parallel) {
  return std::min<int64_t>(4 * parallel.threads(), request.n / std::max<int64_t>(1 << 14, 16 * request.k));
}
inline bool worth_splitting(const Request& request, const Parallel& parallel) {
  return few_survive(request, request.n) && long_and_few(request, parallel) && segments(request, parallel) > 1;
}

// Selects from the rows of one operand, one after the other. The segments' top-k are the candidates for the row's.
class LongRows {
 public:
  // select(request, operand, values, indices) is topk on the calling thread.
  using Select = void (*)(const Request&, const void*, void*, int32_t*);

  LongRows(const Request& request, const void* operand, Parallel& parallel, Select select)
      : request_(request),
        operand_(static_cast<const char*>(operand)),
        parallel_(parallel),
        select_(select),
        segments_(segments(request, parallel)),
        candidates_(size_t(segments_ * request.k * request.item_bytes)),
        values_(size_t(segments_ * request.k * request.item_bytes)),
        places_(size_t(segments_ * request.k)) {}

  // The indices selected in a row, in the order that the request asks for, go to `indices`.
  void select(int64_t row, int32_t* indices) {
    const int64_t k = request_.k, bytes = request_.item_bytes;
    parallel_.run(segments_, [&](int64_t segment) {
      Request own = request_;
      own.rows = 1;
      own.n = begin(segment + 1) - begin(segment);
      own.sorted = false;  // by ascending index: then so are the candidates of all segments, and ties go to the lowest
      int32_t* const places = places_.data() + segment * k;
      select_(own, item(row, begin(segment)), values_.data() + segment * k * bytes, places);
      for (int64_t i = 0; i < k; ++i) {
        places[i] += int32_t(begin(segment));
        std::memcpy(candidates_.data() + (segment * k + i) * bytes, item(row, places[i]), size_t(bytes));
      }
    });
    Request merge = request_;
    merge.rows = 1;
    merge.n = segments_ * k;
    select_(merge, candidates_.data(), values_.data(), indices);
    for (int64_t i = 0; i < k; ++i) indices[i] = places_[size_t(indices[i])];
  }

  const char* item(int64_t row, int64_t index) const {
    return operand_ + (row * request_.n + index) * request_.item_bytes;
  }

 private:
  int64_t begin(int64_t segment) const { return segment * request_.n / segments_; }

  const Request& request_;
  const char* const operand_;
  Parallel& parallel_;
  const Select select_;
  const int64_t segments_;
  std::vector<char> candidates_;  // as in the operand: by magnitude, the values that select_ writes lack the sign
  std::vector<char> values_;      // written by select_, not used
  std::vector<int32_t> places_;
};

// Zeros `bytes` bytes.
inline void clear(void* data, int64_t bytes, Parallel& parallel) {
  constexpr int64_t kPiece = 1 << 20;
  parallel.run((bytes + kPiece - 1) / kPiece, [&](int64_t piece) {
    std::memset(static_cast<char*>(data) + piece * kPiece, 0, size_t(std::min(kPiece, bytes - piece * kPiece)));
  });
}

}  // namespace jax_rtopk
