// The candidates of a row, those that its buckets keep, in memory; and the places where the selected ones meet.
#pragma once

#include "cuda/row.cuh"
#include "cuda/workspace.h"

namespace jax_rtopk::cuda {

// Elements as two arrays. These lie in the block's shared memory or in the call's workspace, as there is room: the
// instructions of global memory reach both, so that one kernel serves both.
template <class Word>
struct Elements {
  Global<Word> keys;
  Global<int32_t> indices;

  RTOPK_DEVICE Selected<Word> load(int i) const { return {keys.load(i), indices.load(i)}; }
  RTOPK_DEVICE void save(int i, const Selected<Word>& item) const {
    keys.store(i, item.key);
    indices.store(i, item.index);
  }
};

// The queue of each bucket: its level l is at l * count + bucket.
template <class Word>
class Candidates {
 public:
  // What a level that holds nothing has for an index; its key is 0.
  static constexpr int32_t kNone = -1;

  RTOPK_DEVICE Candidates(const Elements<Word>& elements, int count, int kept)
      : elements_(elements), count_(count), kept_(kept) {}

  RTOPK_DEVICE int count() const { return count_; }
  RTOPK_DEVICE int kept() const { return kept_; }

  RTOPK_DEVICE Selected<Word> load(int bucket, int level) const { return elements_.load(level * count_ + bucket); }
  RTOPK_DEVICE void save(int bucket, int level, const Selected<Word>& item) const {
    elements_.save(level * count_ + bucket, item);
  }

  RTOPK_DEVICE void clear(int bucket) const {
    for (int level = 0; level < kept_; ++level) save(bucket, level, {0, kNone});
  }

  // At its place in the queue, if it has one there. An element whose key is 0 has none.
  RTOPK_DEVICE void insert(int bucket, const Selected<Word>& item) const {
    int level = kept_ - 1;
    if (!item.before(load(bucket, level))) return;
    for (; level > 0; --level) {
      const Selected<Word> above = load(bucket, level - 1);
      if (!item.before(above)) break;
      save(bucket, level, above);
    }
    save(bucket, level, item);
  }

  // The levels that are left are for those elements, in order of index, whose key is 0: all others had their chance.
  template <class Bits>
  RTOPK_DEVICE void fill_with_least(int bucket, const RowView<Bits>& row) const {
    if (load(bucket, kept_ - 1).index != kNone) return;
    int level = kept_ - 1;
    while (level > 0 && load(bucket, level - 1).index == kNone) --level;
    for (unsigned i = unsigned(bucket); i < row.n && level < kept_; i += unsigned(count_))
      if (row.map(row.data.load(i)) == 0) save(bucket, level++, {0, int32_t(i)});
  }

 private:
  Elements<Word> elements_;
  int count_, kept_;
};

// How a row's candidates, and what is selected of them, lie in its piece of memory.
template <class Word>
struct CandidateSpace {
  int candidates, selected;

  RTOPK_HD int64_t bytes() const { return candidate_bytes(candidates, selected, sizeof(Word)); }

  RTOPK_DEVICE Elements<Word> all(void* memory) const { return part(memory, 0, candidates); }
  RTOPK_DEVICE Elements<Word> chosen(void* memory) const { return part(memory, candidates, selected); }

 private:
  RTOPK_DEVICE Elements<Word> part(void* memory, int first, int count) const {
    auto* const keys = static_cast<Word*>(memory);
    auto* const indices = reinterpret_cast<int32_t*>(keys + candidates + selected);
    return {Global<Word>(keys + first, count), Global<int32_t>(indices + first, count)};
  }
};

}  // namespace jax_rtopk::cuda
