// What a kernel is asked to do, free of XLA: the handlers of every back end decode a custom call into it.
#pragma once

#include <climits>
#include <cstdint>

#include "native/ordered_key.h"

namespace jax_rtopk {

struct Request {
  Kind kind;
  int item_bytes;  // 1, 2, 4 or 8
  int64_t rows, n, k;
  bool largest, by_magnitude, sorted;
  int64_t max_iter;  // counting passes allowed per row; 0: as many as the exact answer needs

  RTOPK_HD int most_passes() const { return max_iter == 0 || max_iter > INT_MAX ? INT_MAX : int(max_iter); }
};

}  // namespace jax_rtopk
