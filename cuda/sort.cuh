// Sorting of selected elements where they lie: by key, largest first, then by index.
#pragma once

#include "cuda/team.cuh"

namespace jax_rtopk::cuda {

template <class Word>
struct Selected {
  Word key;
  int32_t index;

  RTOPK_DEVICE bool before(const Selected& other) const {
    return key > other.key || (key == other.key && index < other.index);
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
