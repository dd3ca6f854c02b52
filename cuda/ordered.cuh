// Words of a row in descending order, and what can be asked about them: at(i), the i-th largest, counted from 0;
// above(key) and from(key), how many are > key and >= key.
#pragma once

#include "cuda/sort.cuh"
#include "cuda/team.cuh"
#include "native/search_plan.h"

namespace jax_rtopk::cuda {

// A word a lane. The questions are answered by votes, so all teams of a warp must ask at a time.
template <int kLanes, class Word>
class LaneWords {
 public:
  RTOPK_DEVICE explicit LaneWords(Word mine) : mine_(mine) {}

  RTOPK_DEVICE Word at(int i) const { return __shfl_sync(kFullMask, mine_, i, kLanes); }
  RTOPK_DEVICE int above(Word key) const { return count(mine_ > key); }
  RTOPK_DEVICE int from(Word key) const { return count(mine_ >= key); }

 private:
  RTOPK_DEVICE static int count(bool holds) {
    const unsigned votes = __ballot_sync(kFullMask, holds);
    if constexpr (kLanes == kWarp) {
      return __popc(votes);
    } else {
      return __popc(votes >> (this_lane() & ~(kLanes - 1)) & ((1u << kLanes) - 1));
    }
  }

  Word mine_;
};

// kGroups words in shared memory. For teams smaller than a warp, which may ask different questions at a time.
template <class Word>
class SharedWords {
 public:
  RTOPK_DEVICE explicit SharedWords(const Shared<Word>& sorted) : sorted_(sorted) {}

  RTOPK_DEVICE Word at(int i) const { return sorted_.load(i); }
  RTOPK_DEVICE int above(Word key) const {
    return first_where([key](Word word) { return !(word > key); });
  }
  RTOPK_DEVICE int from(Word key) const {
    return first_where([key](Word word) { return !(word >= key); });
  }

 private:
  template <class Holds>
  RTOPK_DEVICE int first_where(Holds&& holds) const {
    int first = 0;
#pragma unroll
    for (int step = kGroups / 2; step > 0; step /= 2)
      if (!holds(sorted_.load(first + step - 1))) first += step;
    if (!holds(sorted_.load(first))) ++first;
    return first;
  }

  Shared<Word> sorted_;
};

template <int kLanes, class Word>
using Ordered = std::conditional_t<kLanes == kWarp, LaneWords<kWarp, Word>, SharedWords<Word>>;

// Sorts kGroups words of a team's row, of which each of its lanes has some. `scratch` is for kGroups words.
template <int kLanes, class Word>
RTOPK_DEVICE Ordered<kLanes, Word> ordered(Word (&mine)[kGroups / kLanes], const Shared<Word>& scratch) {
  sort_descending<kLanes>(mine);
  if constexpr (kLanes == kWarp) {
    return LaneWords<kWarp, Word>(mine[0]);
  } else {
    constexpr int kEach = kGroups / kLanes;
    __syncwarp();  // with those who still use what was there
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) scratch.store(this_lane() % kLanes * kEach + slot, mine[slot]);
    __syncwarp();
    return SharedWords<Word>(scratch);
  }
}

}  // namespace jax_rtopk::cuda
