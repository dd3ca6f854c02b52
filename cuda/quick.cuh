// The quick way from a row in a warp's registers to its k largest:
//
// 1. One of the group maxima is the threshold. From the nearer end of their order they are met one after the other,
//    until it is its turn.
// 2. The elements that reach it, a few more than k, survive: they meet in shared memory, in order of index, and each
//    lane takes a few.
// 3. From a larger maximum, likely to be near, the survivors are met one after the other, until k are left from there
//    up.
//
// Words that are equal are met at once, and nothing asks whether some are: who counts the selected in the end sees it,
// and the row goes the long way (select_row.cuh).
#pragma once

#include "cuda/intrinsics.cuh"
#include "cuda/maxima.cuh"
#include "cuda/quick_plan.h"
#include "cuda/quick_row.cuh"
#include "cuda/team.cuh"

namespace jax_rtopk::cuda {

// Walks down a warp's words, kEach a lane, meeting one after the other. A word is kept as its distance above the last
// one met, modulo 2^32: the next one is then the largest distance, as those met before are less than 2^32 above it.
template <int kEach>
class Descent {
 public:
  Descent() = default;
  // From the first word below `from`.
  RTOPK_DEVICE Descent(const int32_t (&words)[kEach], int32_t from) : first_(words[0]) {
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) distances_[slot] = uint32_t(words[slot]) - uint32_t(from);
  }

  RTOPK_DEVICE void next() {
    uint32_t farthest = distances_[0];
#pragma unroll
    for (int slot = 1; slot < kEach; ++slot) farthest = larger(farthest, distances_[slot]);
    farthest = largest_of_warp(farthest);
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) distances_[slot] -= farthest;
  }

  // The word met last.
  RTOPK_DEVICE int32_t met() const { return int32_t(uint32_t(first_) - distances_[0]); }

 private:
  int32_t first_;
  uint32_t distances_[kEach];
};

// next(), `count` times, from 1 to 16.
RTOPK_DEVICE void go_on(Descent<1>& descent, int count) {
  switch (count) {
#define RTOPK_NEXT(n) \
  case n:             \
    descent.next();   \
    [[fallthrough]]
    RTOPK_NEXT(16);
    RTOPK_NEXT(15);
    RTOPK_NEXT(14);
    RTOPK_NEXT(13);
    RTOPK_NEXT(12);
    RTOPK_NEXT(11);
    RTOPK_NEXT(10);
    RTOPK_NEXT(9);
    RTOPK_NEXT(8);
    RTOPK_NEXT(7);
    RTOPK_NEXT(6);
    RTOPK_NEXT(5);
    RTOPK_NEXT(4);
    RTOPK_NEXT(3);
    RTOPK_NEXT(2);
#undef RTOPK_NEXT
    default:
      descent.next();
  }
}

// The elements of a row that reach a threshold, at most kSlots * 32, in order of index: number 32 * s + lane is in slot
// s of the lane.
template <int kSlots, class Row>
class Survivors {
 public:
  // In memory.
  using Item = std::conditional_t<Row::kIndexed, int32_t, WordItem>;

  RTOPK_DEVICE void load(const Shared<Item>& gathered, int count) { load_from<0>(gathered, count); }

  // Selects the k largest, looking for the last of them from `near` on; returns false if words are equal, so that it
  // cannot be k.
  RTOPK_DEVICE bool select(int k, int32_t near) {
    select_from(near);
    if (selected_ > k) {
      int32_t turned[kSlots];
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) turned[slot] = ~words_[slot];
      Descent<kSlots> descent(turned, ~near);
      int over = selected_ - k;
#pragma unroll 1
      do descent.next();
      while (--over > 0);
      last_ = ~descent.met();
    } else {
      Descent<kSlots> descent(words_, near);
#pragma unroll 1
      for (int under = k - selected_; under > 0; --under) descent.next();
      last_ = descent.met();
    }
    select_from(last_);
    return selected_ == k;
  }

  // The least word that is selected.
  RTOPK_DEVICE int32_t last() const { return last_; }

  // Calls visit(number among the selected, word, index) for each slot: for those to be selected that are not below
  // last().
  template <class Visit>
  RTOPK_DEVICE void each(Visit&& visit) const {
    int before = 0;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      visit(unsigned(before + lanes_before_this(lanes_[slot])), words_[slot], indices_[slot]);
      before += __popc(lanes_[slot]);
    }
  }

 private:
  template <int kSlot>
  RTOPK_DEVICE void load_from(const Shared<Item>& gathered, int count) {
    if constexpr (kSlot < kSlots) {
      const Item item = load_before<kSlot * kWarp>(gathered, this_lane(), count);
      if constexpr (Row::kIndexed) {
        words_[kSlot] = item;
        indices_[kSlot] = Row::index_in(item);
      } else {
        words_[kSlot] = item.word;
        indices_[kSlot] = item.index;
      }
      load_from<kSlot + 1>(gathered, count);
    }
  }

  RTOPK_DEVICE void select_from(int32_t least) {
    selected_ = 0;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      lanes_[slot] = lanes_from(words_[slot], least);
      selected_ += __popc(lanes_[slot]);
    }
  }

  int32_t words_[kSlots], indices_[kSlots];
  unsigned lanes_[kSlots];  // whose words are selected
  int selected_;
  int32_t last_;
};

// Where the elements that reach a threshold are to be gathered.
template <class Row>
class Places {
 public:
  template <class Team>
  RTOPK_DEVICE Places(const Row& row, Team& team, int32_t threshold) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) before_[w] = 0;
    row.each_pack([&](unsigned round, unsigned, const int32_t (&words)[Row::kPack]) {
#pragma unroll
      for (int j = 0; j < Row::kPack; ++j) {
        uint32_t& count = before_[round / 2];
        count = round % 2 ? add_if_at_least<1 << 16>(count, words[j], threshold)
                          : add_if_at_least<1>(count, words[j], threshold);
      }
    });
    total_ = 0;  // of the rounds so far
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      uint32_t sum = 0;
      before_[w] = team.sum_before(before_[w], sum);
      if (2 * w + 1 < Row::kPacks) {
        before_[w] += total_ * 0x10001u + (sum << 16);
        total_ += (sum & 0xffff) + (sum >> 16);
      } else {
        before_[w] += total_;
        total_ += sum;
      }
    }
  }

  RTOPK_DEVICE int total() const { return int(total_); }

  // Of the thread's first in a round.
  RTOPK_DEVICE int of(unsigned round) const {
    if (round + 1 == Row::kPacks && round % 2 == 0) return int(before_[round / 2]);
    return int(round % 2 ? before_[round / 2] >> 16 : before_[round / 2] & 0xffff);
  }

 private:
  static constexpr int kWords = (Row::kPacks + 1) / 2;  // of two rounds each

  uint32_t before_[kWords], total_;
};

// Tries to find the k largest; if it does, calls found(survivors), the k of them being selected, and returns true.
// `stage`: shared memory for kSlots * 32 items.
// `maximum`: this lane's of the group maxima.
template <int kSlots, class Row, class Team, class Found>
RTOPK_DEVICE bool select_quickly(Row& row, Team& team, const SearchPlan& plan, const QuickPlan& quick, int32_t maximum,
                                 int stage, Found&& found) {
  int32_t threshold;
  Descent<1> descent;
  const auto find_threshold = [&] {
    descent = Descent<1>({maximum ^ quick.turn}, 0);
    go_on(descent, quick.place);
    threshold = descent.met() ^ quick.turn;
  };
  find_threshold();
  if (unlikely(!row.trusts(threshold))) {
    row.order_signs();
    maximum = thread_maximum(row, team, plan);
    find_threshold();
  }
  if (unlikely(quick.early)) {
    if (__popc(lanes_from(maximum, threshold)) != quick.reach) return false;
    threshold &= int32_t(~Row::kIndexMask);  // the search knows keys only
  }
  const Places<Row> places(row, team, threshold);
  const int over = places.total() - plan.k;
  if (unlikely(unsigned(over) > unsigned(quick.spare))) return false;
  const Shared<typename Survivors<kSlots, Row>::Item> items(size_t(stage), kSlots * kWarp);
  team.sync();  // with those who still use what was there
  row.each_pack([&](unsigned round, unsigned first, const int32_t (&words)[Row::kPack]) {
    Appender<typename Survivors<kSlots, Row>::Item> appender(items, places.of(round));
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) {
      if constexpr (Row::kIndexed) {
        appender.append_if_at_least(words[j], threshold);
      } else {
        appender.append_if_at_least(words[j], int32_t(first + j), threshold);
      }
    }
  });
  team.sync();
  Survivors<kSlots, Row> survivors;
  survivors.load(items, places.total());
#pragma unroll 1
  for (int more = over * quick.stride >> 8; more > 0; more -= 2) {
    descent.next();
    descent.next();
  }
  if (!survivors.select(plan.k, descent.met() ^ quick.turn)) return false;
  found(survivors);
  return true;
}

}  // namespace jax_rtopk::cuda
