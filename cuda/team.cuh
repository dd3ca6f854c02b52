// Teams: the threads that work on one row together, and what they can find out from each other.
//
// Every function here must be called by all threads of the warp (WarpTeam) or of the block (BlockTeam).
#pragma once

#include "cuda/intrinsics.cuh"

namespace jax_rtopk::cuda {

RTOPK_DEVICE int this_lane() { return int(threadIdx.x % kWarp); }
RTOPK_DEVICE int this_warp() { return int(threadIdx.x / kWarp); }

template <class T>
RTOPK_DEVICE T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
RTOPK_DEVICE T smaller(T a, T b) {
  return a < b ? a : b;
}

// kLanes neighbouring lanes of a warp; a warp has 32 / kLanes teams, each with a row of its own.
template <int lanes>
class WarpTeam {
 public:
  static constexpr int kThreads = lanes, kLanes = lanes, kWarps = 1;

  RTOPK_DEVICE int rank() const { return this_lane() % kLanes; }
  RTOPK_DEVICE int warp() const { return 0; }

  // Does the predicate hold for some team of the warp? All teams of a warp must go the same way.
  RTOPK_DEVICE bool any(bool predicate) const { return __any_sync(kFullMask, predicate); }
  RTOPK_DEVICE void sync() const { __syncwarp(); }

  RTOPK_DEVICE unsigned sum(unsigned value) {
    if constexpr (kLanes == kWarp) {
      return __reduce_add_sync(kFullMask, value);
    } else {
      return fold(value, [](unsigned a, unsigned b) { return a + b; });
    }
  }

  template <class Word>
  RTOPK_DEVICE Word maximum(Word value) {
    if constexpr (kLanes == kWarp && sizeof(Word) == 4) {
      return __reduce_max_sync(kFullMask, value);
    } else {
      return fold(value, larger<Word>);
    }
  }

  // The sum over the threads before this one; `total` becomes the sum over all.
  RTOPK_DEVICE unsigned sum_before(unsigned value, unsigned& total) {
    const unsigned upto = sum_upto<1>(value);
    total = from_last_lane<kLanes>(upto);
    return upto - value;
  }

 private:
  template <int kDistance>
  RTOPK_DEVICE static unsigned sum_upto(unsigned value) {
    if constexpr (kDistance < kLanes) {
      return sum_upto<2 * kDistance>(add_from_before<kLanes, kDistance>(value));
    } else {
      return value;
    }
  }

  template <class T, class Join>
  RTOPK_DEVICE static T fold(T value, Join&& join) {
#pragma unroll
    for (int distance = kLanes / 2; distance; distance /= 2)
      value = join(value, __shfl_xor_sync(kFullMask, value, distance, kLanes));
    return value;
  }
};

// All threads of a block. They meet through a word per warp in shared memory, used in two halves by turns: who writes
// for the next sum needn't wait for those who still read the last one.
template <int threads>
class BlockTeam {
 public:
  static constexpr int kThreads = threads, kLanes = kWarp, kWarps = threads / kWarp;
  static_assert(kWarps <= kWarp);
  static constexpr int kScratchBytes = 2 * kWarps * int(sizeof(uint32_t));

  RTOPK_DEVICE explicit BlockTeam(int scratch_offset) : scratch_(scratch_offset, 2 * kWarps) {}

  RTOPK_DEVICE int rank() const { return int(threadIdx.x); }
  RTOPK_DEVICE int warp() const { return this_warp(); }
  RTOPK_DEVICE bool any(bool predicate) const { return __any_sync(kFullMask, predicate); }
  RTOPK_DEVICE void sync() const { __syncthreads(); }

  RTOPK_DEVICE unsigned sum(unsigned value) {
    return __reduce_add_sync(kFullMask, of_warps(__reduce_add_sync(kFullMask, value)));
  }

  RTOPK_DEVICE uint32_t maximum(uint32_t value) {
    return __reduce_max_sync(kFullMask, of_warps(__reduce_max_sync(kFullMask, value)));
  }
  RTOPK_DEVICE uint64_t maximum(uint64_t value) {
    const uint32_t high = maximum(uint32_t(value >> 32));
    return uint64_t(high) << 32 | maximum(value >> 32 == high ? uint32_t(value) : 0);
  }

  RTOPK_DEVICE unsigned sum_before(unsigned value, unsigned& total) {
    unsigned of_warp = 0;
    const unsigned before = WarpTeam<kWarp>().sum_before(value, of_warp);
    const unsigned others = of_warps(of_warp);
    total = __reduce_add_sync(kFullMask, others);
    return before + __reduce_add_sync(kFullMask, this_lane() < this_warp() ? others : 0);
  }

 private:
  // Lane i gets the value of warp i, 0 beyond the last warp.
  RTOPK_DEVICE unsigned of_warps(unsigned value) {
    const int half = turn_ ? kWarps : 0;
    turn_ = !turn_;
    if (this_lane() == 0) scratch_.store(half + this_warp(), value);
    __syncthreads();
    return this_lane() < kWarps ? scratch_.load(half + this_lane()) : 0;
  }

  Shared<uint32_t> scratch_;
  bool turn_ = false;
};

}  // namespace jax_rtopk::cuda
