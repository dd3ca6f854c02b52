// Where the candidates of bucketed top-k lie: in the shared memory of the row's block, or where they are too many, in a
// workspace that is an additional result of the call.
#pragma once

#include <cstdint>

#include "cuda/policy.h"
#include "native/ordered_key.h"

namespace jax_rtopk::cuda {

// What a candidate takes, and is aligned to: a key of 32 or 64 bits, and an index.
RTOPK_HD constexpr int64_t candidate_bytes(int item_bytes) { return item_bytes == 8 ? 16 : 8; }

// What a row's candidates and the selected ones take.
RTOPK_HD constexpr int64_t candidate_bytes(int64_t candidates, int64_t k, int item_bytes) {
  return (candidates + k) * candidate_bytes(item_bytes);
}

// What a row needs of the workspace; 0 where there is room in shared memory.
constexpr int64_t workspace_bytes(int64_t candidates, int64_t k, int item_bytes) {
  const int64_t bytes = candidate_bytes(candidates, k, item_bytes);
  return bytes <= policy::kCandidateBytes ? 0 : bytes;
}

}  // namespace jax_rtopk::cuda
