// Sorting: words in registers, and selected elements where they lie, by key, largest first, then by index.
#pragma once

#include "cuda/intrinsics.cuh"
#include "cuda/team.cuh"
#include "native/ordered_key.h"

namespace jax_rtopk::cuda {

template <class Word>
RTOPK_DEVICE void put_in_order(Word& a, Word& b, bool descending) {
  const Word largest = larger(a, b), least = smaller(a, b);
  a = descending ? largest : least;
  b = descending ? least : largest;
}

// Sorts a thread's words, largest first: Batcher's odd-even merges, of runs of kHalf words, by steps of kDistance.
template <int kHalf = 1, int kDistance = kHalf, class Word, int kEach>
RTOPK_DEVICE void sort_own(Word (&words)[kEach]) {
  if constexpr (kHalf < kEach) {
#pragma unroll
    for (int slot = 0; slot + kDistance < kEach; ++slot) {
      const int place = slot - kDistance % kHalf;  // those before it were put in order by the steps before
      const bool compared = place >= 0 && place / kDistance % 2 == 0;
      const bool in_one_merge = slot / (2 * kHalf) == (slot + kDistance) / (2 * kHalf);
      if (compared && in_one_merge) put_in_order(words[slot], words[slot + kDistance], true);
    }
    if constexpr (kDistance > 1) {
      sort_own<kHalf, kDistance / 2>(words);
    } else {
      sort_own<2 * kHalf>(words);
    }
  }
}

// Steps of a bitonic network: puts what lies kDistance apart in order, then half of it, and so on.
template <int kLanes, int kDistance, class Word, int kEach>
RTOPK_DEVICE void merge_bitonic(Word (&words)[kEach], bool descending) {
  if constexpr (kDistance > 0) {
    if constexpr (kDistance >= kEach) {
      const bool first = (this_lane() & kDistance / kEach) == 0;
#pragma unroll
      for (int slot = 0; slot < kEach; ++slot) {
        const Word other = from_partner<kLanes, kDistance / kEach>(words[slot]);
        words[slot] = first == descending ? larger(words[slot], other) : smaller(words[slot], other);
      }
    } else {
#pragma unroll
      for (int slot = 0; slot < kEach; ++slot)
        if ((slot & kDistance) == 0) put_in_order(words[slot], words[slot + kDistance], descending);
    }
    merge_bitonic<kLanes, kDistance / 2>(words, descending);
  }
}

// Words of one lane are put in descending order, and in every other lane their complements: so all lanes do the same.
// Not worth its while for one or two of them.
template <int kEach>
inline constexpr bool kComplements = kEach > 2;

template <class Word, int kEach>
RTOPK_DEVICE void complement_if(bool asked, Word (&words)[kEach]) {
  const Word turn = asked ? ~Word(0) : Word(0);
#pragma unroll
  for (int slot = 0; slot < kEach; ++slot) words[slot] ^= turn;
}

// Goes on with sorted runs of kSize / 2 words, every other one of which is in ascending order.
template <int kLanes, int kSize, class Word, int kEach>
RTOPK_DEVICE void merge_runs(Word (&words)[kEach]) {
  if constexpr (kSize <= kLanes * kEach) {
    constexpr int kRun = kSize / kEach;  // lanes of a run that this makes
    const bool ascending = kRun < kLanes && (this_lane() & kRun) != 0;
    if constexpr (kComplements<kEach>) {
      const bool was_ascending = (this_lane() & kRun / 2) != 0;
      complement_if(was_ascending != ascending, words);
      merge_bitonic<kLanes, kSize / 2>(words, true);
    } else {
      merge_bitonic<kLanes, kSize / 2>(words, !ascending);
    }
    merge_runs<kLanes, 2 * kSize>(words);
  }
}

// Sorts kEach * kLanes words of a team, largest first; word i is slot i % kEach of lane i / kEach. A bitonic network
// between lanes.
template <int kLanes, class Word, int kEach>
RTOPK_DEVICE void sort_descending(Word (&words)[kEach]) {
  const bool ascending = (this_lane() & 1) != 0;
  if constexpr (kComplements<kEach>) {
    complement_if(ascending, words);
    sort_own<>(words);
  } else if constexpr (kEach == 2) {
    put_in_order(words[0], words[1], !ascending);
  }
  merge_runs<kLanes, 2 * kEach>(words);
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
// a bitonic sequence; then places `distance` apart, half of that, and so on.
template <class Store>
RTOPK_DEVICE void exchange(const Store& store, unsigned count, unsigned low, unsigned high) {
  if (high >= count) return;
  const auto a = store.load(low), b = store.load(high);
  if (!b.before(a)) return;
  store.save(low, b);
  store.save(high, a);
}

// Pair p of those that a merge of runs of `half` compares first, and of those that are `distance` apart: powers of two.
template <class Store>
RTOPK_DEVICE void exchange_mirrored(const Store& store, unsigned count, unsigned half, unsigned p) {
  const unsigned begin = 2 * (p & ~(half - 1)), place = p & (half - 1);
  exchange(store, count, begin + place, begin + 2 * half - 1 - place);
}
template <class Store>
RTOPK_DEVICE void exchange_apart(const Store& store, unsigned count, unsigned distance, unsigned p) {
  const unsigned low = 2 * p - (p & (distance - 1));
  exchange(store, count, low, low + distance);
}

// How many pairs a step of a merge of runs of `half` has at most.
RTOPK_HD unsigned pairs_of(unsigned count, unsigned half) { return ((count - 1) / (2 * half) + 1) * half; }

// The steps of a merge from `distance` on, by one team.
template <class Team, class Store>
RTOPK_DEVICE void merge_from(Team& team, const Store& store, unsigned count, unsigned distance) {
  for (; distance > 0; distance /= 2) {
    const unsigned pairs = pairs_of(count, distance);
    for (unsigned p = unsigned(team.rank()); p < pairs; p += Team::kThreads) exchange_apart(store, count, distance, p);
    team.sync();
  }
}

template <class Team, class Store>
RTOPK_DEVICE void sort_selected(Team& team, const Store& store, unsigned count) {
  for (unsigned half = 1; half < count; half *= 2) {
    const unsigned pairs = pairs_of(count, half);
    for (unsigned p = unsigned(team.rank()); p < pairs; p += Team::kThreads) exchange_mirrored(store, count, half, p);
    team.sync();
    merge_from(team, store, count, half / 2);
  }
}

}  // namespace jax_rtopk::cuda
