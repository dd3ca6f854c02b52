// Long rows in parts. Those that a block can hold are selected from, each on its own, and then what they select once
// more; the first selection is in a workspace, an additional result of the call.
#pragma once

#include <cstdint>

#include "cuda/policy.h"
#include "native/ordered_key.h"

namespace jax_rtopk::cuda {

// The parts of a row of n elements, about equally long. All but the last end on 16 bytes of their row.
struct Parts {
  int64_t n, count;
  int pack;  // elements of 16 bytes

  RTOPK_HD int64_t begin(int64_t part) const { return part == count ? n : packs() * part / count * pack; }
  RTOPK_HD int64_t packs() const { return (n - 1) / pack + 1; }

  // The first, which has the fewest packs, or the last, whose last one may not be full.
  RTOPK_HD int64_t shortest() const {
    const int64_t first = begin(1), last = n - begin(count - 1);
    return first < last ? first : last;
  }
  RTOPK_HD int64_t longest() const { return ((packs() - 1) / count + 1) * pack; }
};

// Where a launch's first selection lies in its workspace: the values, from a multiple of 16 bytes the indices, each
// counted from where its part begins.
struct PartsWorkspace {
  static constexpr int64_t kUnit = 16;

  int64_t indices_at, bytes;

  static constexpr PartsWorkspace make(int64_t rows, int64_t parts, int64_t k, int item_bytes) {
    const int64_t selected = rows * parts * k;
    const int64_t indices_at = (selected * item_bytes + kUnit - 1) / kUnit * kUnit;
    return {indices_at, indices_at + selected * int64_t(sizeof(int32_t))};
  }
};

// What a row needs of it, however many there are. May only become less, as may all that exported programs bring.
constexpr int64_t parts_workspace_bytes(int64_t parts, int64_t k, int item_bytes) {
  return PartsWorkspace::make(1, parts, k, item_bytes).bytes;
}

}  // namespace jax_rtopk::cuda
