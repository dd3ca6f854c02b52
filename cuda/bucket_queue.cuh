// What is kept of a bucket while its elements come by: queues in the registers of a thread, of elements or of *spans*,
// a column's elements in a few lines.
//
// `Lane` is an element's image, with `kLowest` below all that are to be kept (lanes.cuh).
#pragma once

#include "cuda/policy.h"
#include "cuda/team.cuh"

namespace jax_rtopk::cuda {

// Elements of a column, and the index of the first; the next ones are a line's length apart. Those that are not there
// are kLowest.
template <class Lane, Lane kLowest>
struct Span {
  static constexpr int kSize = policy::kBucketLines;

  unsigned first;
  Lane lanes[kSize];

  RTOPK_DEVICE static Span of(unsigned index, Lane lane) {
    Span span{index, {lane}};
#pragma unroll
    for (int i = 1; i < kSize; ++i) span.lanes[i] = kLowest;
    return span;
  }

  RTOPK_DEVICE Lane largest() const {
    Lane largest = lanes[0];
#pragma unroll
    for (int i = 1; i < kSize; ++i) largest = larger(largest, lanes[i]);
    return largest;
  }
  // Where `lane`, which is there, is met first.
  RTOPK_DEVICE unsigned place(Lane lane) const {
    unsigned place = kSize - 1;
#pragma unroll
    for (int i = kSize - 2; i >= 0; --i) place = lanes[i] == lane ? unsigned(i) : place;
    return place;
  }
  RTOPK_DEVICE Span without(unsigned place) const {
    Span others = *this;
#pragma unroll
    for (unsigned i = 0; i < kSize; ++i) others.lanes[i] = i == place ? kLowest : lanes[i];
    return others;
  }
};

RTOPK_DEVICE unsigned choose(bool condition, unsigned a, unsigned b) { return condition ? a : b; }
template <class Lane, Lane kLowest>
RTOPK_DEVICE Span<Lane, kLowest> choose(bool condition, const Span<Lane, kLowest>& a, const Span<Lane, kLowest>& b) {
  Span<Lane, kLowest> chosen{condition ? a.first : b.first, {}};
#pragma unroll
  for (int i = 0; i < Span<Lane, kLowest>::kSize; ++i) chosen.lanes[i] = condition ? a.lanes[i] : b.lanes[i];
  return chosen;
}

// The kLevels largest of the lanes that were inserted, the largest one in front. `tag` is what the caller knows one by.
// Levels that hold nothing have kLowest, so a lane that is kLowest is never kept.
template <class Lane, Lane kLowest, int kLevels, class Tag = unsigned>
class BucketQueue {
 public:
  static constexpr bool kTakesSpans = false;  // by insert

  RTOPK_DEVICE explicit BucketQueue(const Tag& none = Tag{}) {
#pragma unroll
    for (int level = 0; level < kLevels; ++level) put(level, kLowest, none);
  }

  RTOPK_DEVICE Lane lane(int level) const { return lanes_[level]; }
  RTOPK_DEVICE const Tag& tag(int level) const { return tags_[level]; }
  RTOPK_DEVICE void put(int level, Lane lane, const Tag& tag) {
    lanes_[level] = lane;
    tags_[level] = tag;
  }

  // It comes behind all equal ones: those that come later must have higher indices.
  RTOPK_DEVICE void insert(Lane lane, const Tag& tag) {
    bool before = lane > lanes_[kLevels - 1];
#pragma unroll
    for (int level = kLevels - 1; level > 0; --level) {
      const bool before_above = lane > lanes_[level - 1];
      lanes_[level] = larger(lanes_[level], smaller(lanes_[level - 1], lane));
      tags_[level] = choose(before_above, tags_[level - 1], choose(before, tag, tags_[level]));
      before = before_above;
    }
    lanes_[0] = larger(lanes_[0], lane);
    tags_[0] = choose(before, tag, tags_[0]);
  }

 private:
  Lane lanes_[kLevels];
  Tag tags_[kLevels];
};

// A BucketQueue's use for spans: each goes into a queue as a whole, by its largest element, a comparison a span. The
// one or two largest elements are in the one or two spans with the largest maxima; where, is found out at the end.
template <class Lane, Lane kLowest, int kLevels>
class SpanQueue {
  static_assert(kLevels <= 2);

 public:
  static constexpr bool kTakesSpans = true;

  RTOPK_DEVICE void insert(const Span<Lane, kLowest>& span) { spans_.insert(span.largest(), span); }

  // The largest elements by their indices. `line`: the length of one.
  RTOPK_DEVICE BucketQueue<Lane, kLowest, kLevels> elements(unsigned line) const {
    BucketQueue<Lane, kLowest, kLevels> elements;
    const Span<Lane, kLowest>& first = spans_.tag(0);
    const unsigned place = first.place(spans_.lane(0));
    elements.put(0, spans_.lane(0), first.first + place * line);
    if constexpr (kLevels == 2) {
      // The second is the second span's largest, or another of the first span.
      const Span<Lane, kLowest> others = first.without(place);
      const Lane other = others.largest(), next = spans_.lane(1);
      // Signed, as the first span starts before the row if that begins within a pack.
      const bool comes_first = int(first.first) < int(spans_.tag(1).first);
      const bool is_other = comes_first ? other >= next : other > next;
      const Span<Lane, kLowest> second = choose(is_other, others, spans_.tag(1));
      const Lane lane = is_other ? other : next;
      elements.put(1, lane, second.first + second.place(lane) * line);
    }
    return elements;
  }

 private:
  BucketQueue<Lane, kLowest, kLevels, Span<Lane, kLowest> > spans_{Span<Lane, kLowest>::of(0, kLowest)};
};

}  // namespace jax_rtopk::cuda
