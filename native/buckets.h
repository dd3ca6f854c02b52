// How bucketed top-k deals a row: element i goes to bucket i mod `count`, and of each bucket the `kept` elements that
// come first in order of selection are candidates for the row's answer.
#pragma once

#include <cstdint>

#include "native/ordered_key.h"

namespace jax_rtopk {

// Every bucket has at least `kept` elements, so a row of n has count * kept <= n candidates.
struct Buckets {
  int64_t count, kept;

  RTOPK_HD int64_t candidates() const { return count * kept; }
};

}  // namespace jax_rtopk
