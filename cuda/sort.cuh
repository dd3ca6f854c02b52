// Sorting: words in registers, and selected elements where they lie, by key, largest first, then by index.
#pragma once

#include "cuda/intrinsics.cuh"
#include "cuda/team.cuh"

namespace jax_rtopk::cuda {

// One step of the network below: elements kDistance apart, in runs of kSize.
template <int kLanes, int kSize, int kDistance, class Word, int kEach>
RTOPK_DEVICE void sort_step(Word (&words)[kEach]) {
  const int base = this_lane() % kLanes * kEach;
#pragma unroll
  for (int slot = 0; slot < kEach; ++slot) {
    const bool descending = ((base + slot) & kSize) == 0;
    if constexpr (kDistance >= kEach) {
      const bool first = ((base + slot) & kDistance) == 0;
      const Word other = from_partner<kLanes, kDistance / kEach>(words[slot]);
      words[slot] = first == descending ? larger(words[slot], other) : smaller(words[slot], other);
    } else if ((slot & kDistance) == 0) {
      const Word a = words[slot], b = words[slot + kDistance];
      words[slot] = descending ? larger(a, b) : smaller(a, b);
      words[slot + kDistance] = descending ? smaller(a, b) : larger(a, b);
    }
  }
}

// Sorts kEach * kLanes words of a team, largest first; word i is slot i % kEach of lane i / kEach. A bitonic network:
// distances below kEach stay in a lane.
template <int kLanes, int kSize = 2, int kDistance = 1, class Word, int kEach>
RTOPK_DEVICE void sort_descending(Word (&words)[kEach]) {
  if constexpr (kSize <= kLanes * kEach) {
    sort_step<kLanes, kSize, kDistance>(words);
    if constexpr (kDistance > 1) {
      sort_descending<kLanes, kSize, kDistance / 2>(words);
    } else {
      sort_descending<kLanes, 2 * kSize, kSize>(words);
    }
  }
}

// An element of a row of at most policy::warp_row_max as one word, the larger the earlier: for keys that leave room for
// the index. Never 0.
template <int key_bytes>
struct Order {
  using Word = std::conditional_t<key_bytes <= 2, uint32_t, uint64_t>;
  static constexpr int kIndexBits = 8 * int(sizeof(Word)) / 2;
  static constexpr Word kIndexMask = (Word(1) << kIndexBits) - 1;

  RTOPK_DEVICE static Word of(const Selected<uint32_t>& item) {
    return Word(item.key) << kIndexBits | (kIndexMask - Word(item.index));
  }
  RTOPK_DEVICE static Selected<uint32_t> item(Word order) {
    return {uint32_t(order >> kIndexBits), int32_t(kIndexMask - (order & kIndexMask))};
  }
};

// A bitonic network over any count of elements: every comparison puts the earlier element at the lower place, so those
// with places beyond the end may be left out. Each merge first compares mirrored places, which makes two sorted halves
// a bitonic sequence.
template <class Team, class Store>
RTOPK_DEVICE void sort_selected(Team& team, const Store& store, unsigned count) {
  const auto exchange = [&](unsigned low, unsigned high) {
    if (high >= count) return;
    const auto a = store.load(low), b = store.load(high);
    if (!b.before(a)) return;
    store.save(low, b);
    store.save(high, a);
  };
  for (unsigned half = 1; half < count; half *= 2) {
    const unsigned pairs = (count + 2 * half - 1) / (2 * half) * half;
    for (unsigned p = unsigned(team.rank()); p < pairs; p += Team::kThreads) {
      const unsigned block = p & ~(half - 1), place = p & (half - 1);
      exchange(2 * block + place, 2 * block + 2 * half - 1 - place);
    }
    team.sync();
    for (unsigned distance = half / 2; distance > 0; distance /= 2) {
      for (unsigned p = unsigned(team.rank()); p < pairs; p += Team::kThreads) {
        const unsigned low = 2 * p - (p & (distance - 1));
        exchange(low, low + distance);
      }
      team.sync();
    }
  }
}

}  // namespace jax_rtopk::cuda
