// What is kept of a bucket while its elements come by: a queue in the registers of a thread.
#pragma once

#include "cuda/team.cuh"

namespace jax_rtopk::cuda {

// The kLevels first of the elements that were inserted, the first one in front. `tag` is what the caller knows an
// element by. Levels that hold nothing have the key 0, so an element whose key is 0 is never kept.
template <class Word, int kLevels>
class BucketQueue {
 public:
  RTOPK_DEVICE BucketQueue() {
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      keys_[level] = 0;
      tags_[level] = 0;
    }
  }

  RTOPK_DEVICE Word key(int level) const { return keys_[level]; }
  RTOPK_DEVICE unsigned tag(int level) const { return tags_[level]; }

  // An element comes behind all equal ones: those that come later must have higher indices.
  RTOPK_DEVICE void insert(Word key, unsigned tag) {
    bool before = key > keys_[kLevels - 1];
#pragma unroll
    for (int level = kLevels - 1; level > 0; --level) {
      const bool before_above = key > keys_[level - 1];
      keys_[level] = larger(keys_[level], smaller(keys_[level - 1], key));
      const unsigned stays_or_enters = before ? tag : tags_[level];
      tags_[level] = before_above ? tags_[level - 1] : stays_or_enters;
      before = before_above;
    }
    keys_[0] = larger(keys_[0], key);
    tags_[0] = before ? tag : tags_[0];
  }

 private:
  Word keys_[kLevels];
  unsigned tags_[kLevels];
};

}  // namespace jax_rtopk::cuda
