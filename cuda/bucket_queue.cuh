// What is kept of a bucket while its elements come by: a queue in the registers of a thread.
#pragma once

#include "cuda/team.cuh"

namespace jax_rtopk::cuda {

// The kLevels largest of the elements that were inserted, the largest one in front. `tag` is what the caller knows an
// element by. Levels that hold nothing have the lowest lane (lanes.cuh), so an element that has it is never kept.
template <class Lane, Lane kLowest, int kLevels>
class BucketQueue {
 public:
  RTOPK_DEVICE BucketQueue() {
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      lanes_[level] = kLowest;
      tags_[level] = 0;
    }
  }

  RTOPK_DEVICE Lane lane(int level) const { return lanes_[level]; }
  RTOPK_DEVICE unsigned tag(int level) const { return tags_[level]; }

  // An element comes behind all equal ones: those that come later must have higher indices.
  RTOPK_DEVICE void insert(Lane lane, unsigned tag) {
    bool before = lane > lanes_[kLevels - 1];
#pragma unroll
    for (int level = kLevels - 1; level > 0; --level) {
      const bool before_above = lane > lanes_[level - 1];
      lanes_[level] = larger(lanes_[level], smaller(lanes_[level - 1], lane));
      const unsigned stays_or_enters = before ? tag : tags_[level];
      tags_[level] = before_above ? tags_[level - 1] : stays_or_enters;
      before = before_above;
    }
    lanes_[0] = larger(lanes_[0], lane);
    tags_[0] = before ? tag : tags_[0];
  }

 private:
  Lane lanes_[kLevels];
  unsigned tags_[kLevels];
};

}  // namespace jax_rtopk::cuda
