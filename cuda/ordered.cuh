// Words of a row in descending order, and what can be asked about them: at(i), the i-th largest, counted from 0;
// above(key) and from(key), how many are > key and >= key.
#pragma once

#include "cuda/sort.cuh"
#include "cuda/team.cuh"
#include "native/search_plan.h"

namespace jax_rtopk::cuda {

// kEach words a lane. The questions are answered by votes, so all teams of a warp must ask at a time.
template <int kLanes, class Word, int kEach>
class LaneWords {
 public:
  // Sorts them.
  RTOPK_DEVICE explicit LaneWords(const Word (&words)[kEach]) {
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) words_[slot] = words[slot];
    sort_descending<kLanes>(words_);
  }

  RTOPK_DEVICE Word at(int i) const {
    Word found = from_lane<kLanes>(words_[0], i / kEach);
#pragma unroll
    for (int slot = 1; slot < kEach; ++slot) {
      const Word word = from_lane<kLanes>(words_[slot], i / kEach);
      found = i % kEach == slot ? word : found;
    }
    return found;
  }
  RTOPK_DEVICE int above(Word key) const {
    return count_where([key](Word word) { return word > key; });
  }
  RTOPK_DEVICE int from(Word key) const {
    return count_where([key](Word word) { return word >= key; });
  }

 private:
  template <class Holds>
  RTOPK_DEVICE int count_where(Holds&& holds) const {
    int count = 0;
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) {
      const unsigned votes = __ballot_sync(kFullMask, holds(words_[slot]));
      if constexpr (kLanes == kWarp) {
        count += __popc(votes);
      } else {
        count += __popc(votes >> (this_lane() & ~(kLanes - 1)) & ((1u << kLanes) - 1));
      }
    }
    return count;
  }

  Word words_[kEach];
};

// kCount sorted words in shared memory. For teams smaller than a warp, which may ask different questions at a time.
template <class Word, int kCount>
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
    for (int step = kCount / 2; step > 0; step /= 2)
      if (!holds(sorted_.load(first + step - 1))) first += step;
    if (!holds(sorted_.load(first))) ++first;
    return first;
  }

  Shared<Word> sorted_;
};

// The maxima of a row's groups.
template <int kLanes, class Word>
using OrderedMaxima = std::conditional_t<kLanes == kWarp, LaneWords<kWarp, Word, 1>, SharedWords<Word, kGroups>>;

// `scratch` is for kGroups words.
template <int kLanes, class Word>
RTOPK_DEVICE OrderedMaxima<kLanes, Word> ordered(Word (&mine)[kGroups / kLanes], const Shared<Word>& scratch) {
  if constexpr (kLanes == kWarp) {
    return OrderedMaxima<kLanes, Word>(mine);
  } else {
    constexpr int kEach = kGroups / kLanes;
    sort_descending<kLanes>(mine);
    __syncwarp();  // with those who still use what was there
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) scratch.store(this_lane() % kLanes * kEach + slot, mine[slot]);
    __syncwarp();
    return OrderedMaxima<kLanes, Word>(scratch);
  }
}

}  // namespace jax_rtopk::cuda
