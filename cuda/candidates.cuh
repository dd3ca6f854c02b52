// The candidates of a row, those that its buckets keep, in memory; and the places where the selected ones meet.
#pragma once

#include "cuda/row.cuh"
#include "cuda/workspace.h"

namespace jax_rtopk::cuda {

// Elements in the block's shared memory or in the call's workspace, as there is room: generic addresses reach both, so
// that one kernel serves both.
template <class Word>
using Elements = Global<Selected<Word> >;

// The queue of each bucket: its level l is at l * count + bucket.
template <class Word>
class Candidates {
 public:
  // A level that holds nothing.
  RTOPK_DEVICE static Selected<Word> none() { return {0, -1}; }
  RTOPK_DEVICE bool holds(int bucket, int level) const { return load(bucket, level).index >= 0; }

  RTOPK_DEVICE Candidates(const Elements<Word>& elements, int count, int kept)
      : elements_(elements), count_(count), kept_(kept) {}

  RTOPK_DEVICE int count() const { return count_; }
  RTOPK_DEVICE int kept() const { return kept_; }

  RTOPK_DEVICE Selected<Word> load(int bucket, int level) const { return elements_.load(level * count_ + bucket); }
  RTOPK_DEVICE void save(int bucket, int level, const Selected<Word>& item) const {
    elements_.store(level * count_ + bucket, item);
  }

  RTOPK_DEVICE void clear(int bucket) const {
    for (int level = 0; level < kept_; ++level) save(bucket, level, none());
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

  // How many levels hold something.
  RTOPK_DEVICE int held(int bucket) const {
    int level = kept_;
    while (level > 0 && !holds(bucket, level - 1)) --level;
    return level;
  }

  // The levels that are left are for those elements, in order of index, whose key is 0: all others had their chance.
  template <class Bits>
  RTOPK_DEVICE void fill_with_least(int bucket, const RowView<Bits>& row) const {
    int level = held(bucket);
    for (unsigned i = unsigned(bucket); i < row.n && level < kept_; i += unsigned(count_))
      if (row.map(row.data.load(i)) == 0) save(bucket, level++, {0, int32_t(i)});
  }

 private:
  Elements<Word> elements_;
  int count_, kept_;
};

}  // namespace jax_rtopk::cuda
