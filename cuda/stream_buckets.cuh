// The first stage of bucketed top-k: a block reads its row once, and leaves the candidates of each bucket.
//
// The row is read as lines of `columns` elements, a multiple of the number of buckets: several neighbouring columns are
// then the same bucket's, each with some of its elements. How many is chosen so that packs stay aligned from line to
// line, and that there is work for all threads. A thread keeps the first elements of each of its columns in registers,
// and what the columns of a bucket have kept is put together at the end.
#pragma once

#include "cuda/bucket_queue.cuh"
#include "cuda/candidates.cuh"
#include "cuda/lanes.cuh"
#include "cuda/policy.h"
#include "cuda/row.cuh"

namespace jax_rtopk::cuda {

// `levels` is at least as many as a bucket keeps.
template <class Bits, class Team, int levels>
class BucketStream {
 public:
  using Word = WordOf<Bits>;
  static constexpr bool kHasSigned = sizeof(Bits) > 1;                           // bytes are not worth the code
  static constexpr int kColumns = policy::bucket_columns(levels, sizeof(Bits));  // of a thread, side by side
  static constexpr policy::Spans kSpans = policy::spans(levels, sizeof(Bits));

  RTOPK_DEVICE BucketStream(const RowView<Bits>& row, unsigned columns, const Candidates<Word>& candidates)
      : row_(row),
        columns_(columns),
        candidates_(candidates),
        // Column 0 begins on a pack, at or before the row's first element.
        skipped_(unsigned(reinterpret_cast<uintptr_t>(row.data.address()) / sizeof(Bits) % kColumns)),
        end_(row.n + skipped_) {}

  // Reads the row by what KeyLanes, or SignedLanes if kSigned, makes of it, and leaves in the buckets' queues what
  // these keep by that.
  template <bool kSigned>
  RTOPK_DEVICE void run(Team& team, bool floats) const {
    using Lanes = std::conditional_t<kSigned, SignedLanes<Bits>, KeyLanes<Bits> >;
    const Lanes lanes(row_.map, floats);
    const auto buckets = unsigned(candidates_.count());
    constexpr unsigned kStripe = Team::kThreads * kColumns;
    const unsigned place = unsigned(team.rank()) * kColumns;  // of the thread's first column in each stripe
    for (unsigned stripe = 0; stripe < columns_; stripe += kStripe) {
      Queues<Lanes> queues;
      const unsigned column = stripe + place;
      if (column < columns_) fill(lanes, column, queues);
      // Columns of one bucket are kept in turns.
      for (unsigned begin = 0; begin < smaller(kStripe, columns_ - stripe); begin += buckets) {
        if (column < columns_) keep_those_from(lanes, begin, place, column, queues);
        team.sync();
      }
    }
  }

 private:
  template <class Lanes>
  using Queue = BucketQueue<typename Lanes::Lane, Lanes::kLowest, levels>;
  template <class Lanes>
  using Queues = Queue<Lanes>[kColumns];

  // The lines that a thread has still to read: the index of its first element in the first of them, and their number.
  struct Lines {
    unsigned at, count;
  };

  // An element's tag is the index of the element of its line that is in the first of the thread's columns.
  template <class Lanes>
  RTOPK_DEVICE void fill(const Lanes& lanes, unsigned column, Queues<Lanes>& queues) const {
    using policy::Spans;
    Lines left{column - skipped_, end_ >= column + kColumns ? (end_ - kColumns - column) / columns_ + 1 : 0};
    if (kSpans == Spans::kAlways || (kSpans == Spans::kIfLong && columns_ <= row_.n / policy::kSpanLines)) {
      if constexpr (kSpans != Spans::kNever) {
        SpanQueue<typename Lanes::Lane, Lanes::kLowest, levels> spans[kColumns];
        take_most(lanes, column, left, spans);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) queues[j] = spans[j].elements(columns_);
      }
    } else {
      take_most(lanes, column, left, queues);
    }
    if (left.count > 0) {
      take_lines<false>(lanes, left.at, left.count, queues);
      left.at += left.count * columns_;
    }
    if (left.at + skipped_ < end_) take_piece(lanes, left.at, queues);
  }

  // All but the last lines, of which there are fewer than kLines.
  template <class Lanes, class ColumnQueue>
  RTOPK_DEVICE void take_most(const Lanes& lanes, unsigned column, Lines& left, ColumnQueue (&queues)[kColumns]) const {
    if (column < skipped_) {
      take_piece(lanes, left.at, queues);
      left.at += columns_;
      left.count = left.count > 0 ? left.count - 1 : 0;
    }
#pragma unroll 1
    for (; left.count >= kLines; left.count -= kLines) {
      take_lines<true>(lanes, left.at, kLines, queues);
      left.at += kLines * columns_;
    }
  }

  // A few lines at once, so that all are under way in memory while the first is awaited.
  static constexpr unsigned kLines = policy::kBucketLines;
  template <bool kAll, class Lanes, class ColumnQueue>
  RTOPK_DEVICE void take_lines(const Lanes& lanes, unsigned at, unsigned count, ColumnQueue (&queues)[kColumns]) const {
    Pack<Bits, kColumns> bits[kLines];
    const size_t line_length = unforeseen(columns_);  // so that each address is one multiplication and addition
#pragma unroll
    for (unsigned line = 0; line < kLines; ++line)
      if (kAll || line < count) bits[line] = row_.data.template load_pack<kColumns>(at + line * line_length);
    Span<typename Lanes::Lane, Lanes::kLowest> spans[kColumns];
#pragma unroll
    for (unsigned line = 0; line < kLines; ++line) {
      if (!kAll && line >= count) break;
      typename Lanes::Lane of_line[kColumns];
      lanes.of(bits[line], of_line);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if constexpr (ColumnQueue::kTakesSpans) {
          spans[j].lanes[line] = of_line[j];
        } else {
          queues[j].insert(of_line[j], at + line * columns_);
        }
      }
    }
    if constexpr (ColumnQueue::kTakesSpans) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        spans[j].first = at;
        queues[j].insert(spans[j]);
      }
    }
  }

  // What there is of a pack at either end of the row.
  template <class Lanes, class ColumnQueue>
  RTOPK_DEVICE void take_piece(const Lanes& lanes, unsigned at, ColumnQueue (&queues)[kColumns]) const {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const unsigned i = at + unsigned(j);  // beyond n, too, before the row's start
      if (i >= row_.n) continue;
      typename Lanes::Lane lane[1];
      lanes.of(Pack<Bits, 1>{{row_.data.load(i)}}, lane);
      if constexpr (ColumnQueue::kTakesSpans) {
        queues[j].insert(Span<typename Lanes::Lane, Lanes::kLowest>::of(at, lane[0]));
      } else {
        queues[j].insert(lane[0], at);
      }
    }
  }

  // What was left by those columns that have places from `begin` on in the stripe, one of each bucket.
  template <class Lanes>
  RTOPK_DEVICE void keep_those_from(const Lanes& lanes, unsigned begin, unsigned place, unsigned column,
                                    const Queues<Lanes>& queues) const {
    const auto buckets = unsigned(candidates_.count());
    unsigned bucket = (column + buckets - skipped_ % buckets) % buckets;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (place + unsigned(j) - begin < buckets) keep(lanes, int(bucket), column + unsigned(j) < buckets, queues[j], j);
      bucket = bucket + 1 == buckets ? 0 : bucket + 1;
    }
  }

  // Of the first of a bucket's columns that comes, all is kept.
  template <class Lanes>
  RTOPK_DEVICE void keep(const Lanes& lanes, int bucket, bool is_first, const Queue<Lanes>& queue, int j) const {
#pragma unroll
    for (int level = 0; level < levels; ++level) {
      if (level >= candidates_.kept()) break;
      const bool holds = queue.lane(level) >= lanes.least;
      const Selected<Word> item{lanes.key(queue.lane(level)), int32_t(queue.tag(level)) + j};
      if (is_first) {
        candidates_.save(bucket, level, holds ? item : Candidates<Word>::none());
      } else if (holds) {
        candidates_.insert(bucket, item);
      }
    }
  }

  const RowView<Bits>& row_;
  const unsigned columns_;
  const Candidates<Word>& candidates_;
  const unsigned skipped_, end_;
};

// Buckets that keep more than registers are good for: a thread inserts all elements of a bucket into its queue in
// memory.
template <class Bits, class Team>
class BucketStream<Bits, Team, 0> {
 public:
  using Word = WordOf<Bits>;
  static constexpr bool kHasSigned = false;

  RTOPK_DEVICE BucketStream(const RowView<Bits>& row, unsigned, const Candidates<Word>& candidates)
      : row_(row), candidates_(candidates) {}

  template <bool>
  RTOPK_DEVICE void run(Team& team, bool) const {
    const int count = candidates_.count();
    for (unsigned bucket = unsigned(team.rank()); bucket < unsigned(count); bucket += Team::kThreads) {
      candidates_.clear(bucket);
      for (unsigned i = unsigned(bucket); i < row_.n; i += unsigned(count))
        candidates_.insert(bucket, {row_.map(row_.data.load(i)), int32_t(i)});
    }
    team.sync();
  }

 private:
  const RowView<Bits>& row_;
  const Candidates<Word>& candidates_;
};

}  // namespace jax_rtopk::cuda
