// Numbers to tune, and which way rows are selected from. The kernels are right with any of them.
#pragma once

#include <cstdint>

#include "native/request.h"

namespace jax_rtopk {

// Ranking survivors takes count^2 comparisons; searching among them takes a few sweeps and some fixed cost, sorting a
// few passes. So k elements are put in order by ranks up to this k, others with them if they are not many.
inline constexpr int64_t kMaxRankedK = 192;
RTOPK_HD constexpr int32_t most_ranked(int32_t k) { return k + k / 2 + 64; }
// No more than so many are ranked just to tell the first k from the rest.
inline constexpr int32_t kMostSeparated = 160;
static_assert(kMostSeparated <= most_ranked(kMaxRankedK));
// Elements of a row of n from which the threshold is guessed.
RTOPK_HD constexpr int64_t first_block(int64_t n, int64_t k) {
  const int64_t block = 8 * k < 8192 ? 8192 : 8 * k;
  return block < n ? block : n;
}

// Survivors are kept of selections up to this k, so that a thread's buffers for them stay below a few MB.
inline constexpr int64_t kMostKept = int64_t(1) << 16;

// Exact selections from rows of n take the way of cpu/exact.h, unless k is above what is ranked and above half of the
// row, or above what is kept; all others that of cpu/early_search.h.
RTOPK_HD bool few_survive(const Request& request, int64_t n) {
  return request.max_iter == 0 && (request.k <= kMaxRankedK || (request.k <= kMostKept && request.k <= n / 2));
}

}  // namespace jax_rtopk
