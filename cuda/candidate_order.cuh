// The order of what is selected from the candidates of a row: by key, or by index.
#pragma once

#include "cuda/candidates.cuh"
#include "cuda/sort.cuh"

namespace jax_rtopk::cuda {

// A selected element, and how it is to be ordered among the others.
template <class Word>
struct Ordered {
  Selected<Word> item;
  bool by_key;

  RTOPK_DEVICE bool before(const Ordered& other) const {
    return by_key ? item.before(other.item) : item.index < other.item.index;
  }
};

// Elements as sort_selected wants them.
template <class Word>
struct OrderedElements {
  Elements<Word> elements;
  bool by_key;

  RTOPK_DEVICE Ordered<Word> load(unsigned i) const { return {elements.load(i), by_key}; }
  RTOPK_DEVICE void save(unsigned i, const Ordered<Word>& ordered) const { elements.store(i, ordered.item); }
};

// Up to kEach * 32 elements, by the first warp alone, in its registers: each as one word of 64 bits.
template <int kEach>
RTOPK_DEVICE void sort_in_a_warp(const Elements<uint32_t>& elements, int count, bool by_key) {
  if (this_warp() != 0) return;
  const int first = this_lane() * kEach;
  uint64_t words[kEach];
#pragma unroll
  for (int slot = 0; slot < kEach; ++slot) {
    words[slot] = 0;  // less than any element's
    if (first + slot >= count) continue;
    const Selected<uint32_t> item = elements.load(first + slot);
    words[slot] = by_key ? Order<4>::of(item) : uint64_t(~uint32_t(item.index)) << 32 | item.key;
  }
  sort_descending<kWarp>(words);
  __syncwarp();
#pragma unroll
  for (int slot = 0; slot < kEach; ++slot) {
    if (first + slot >= count) continue;
    const Selected<uint32_t> by_index{uint32_t(words[slot]), int32_t(~uint32_t(words[slot] >> 32))};
    elements.store(first + slot, by_key ? Order<4>::item(words[slot]) : by_index);
  }
}

template <class Team, class Word>
RTOPK_DEVICE void put_in_order(Team& team, const Elements<Word>& elements, int count, bool by_key) {
  if constexpr (sizeof(Word) == 4) {
    if (count <= 8 * kWarp) {
      if (count <= kWarp) {
        sort_in_a_warp<1>(elements, count, by_key);
      } else if (count <= 4 * kWarp) {
        sort_in_a_warp<4>(elements, count, by_key);
      } else {
        sort_in_a_warp<8>(elements, count, by_key);
      }
      team.sync();
      return;
    }
  }
  sort_selected(team, OrderedElements<Word>{elements, by_key}, unsigned(count));
}

}  // namespace jax_rtopk::cuda
