// Numbers to tune, and which way rows are selected from. The kernels are right with any of them.
#pragma once

#include <cstdint>

#include "native/request.h"

namespace jax_rtopk {

// The largest k for which survivors are ranked by comparing all pairs; rows with a larger k are searched and sorted.
inline constexpr int64_t kMaxRankedK = 256;
// How many elements are ranked at most, rather than searched first for those that are selected: ranking takes count^2
// comparisons, a search a few sweeps and some fixed cost.
RTOPK_HD constexpr int32_t most_ranked(int32_t k) { return k + k / 2 + 64; }
// Elements of a row from which the threshold is guessed.
inline constexpr int64_t kFirstBlock = 8192;

// Exact selections of a small k take the way of cpu/exact.h, all others that of cpu/early_search.h.
RTOPK_HD bool ranked(const Request& request) { return request.max_iter == 0 && request.k <= kMaxRankedK; }

}  // namespace jax_rtopk
