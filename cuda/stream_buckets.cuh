// The first stage of bucketed top-k: a block reads its row once, and leaves the candidates of each bucket.
//
// The row is read as lines of `columns` elements, a multiple of the number of buckets: several neighbouring columns are
// then the same bucket's, each with some of its elements. How many is chosen so that packs stay aligned from line to
// line, and that there is work for all threads. A thread keeps the first elements of each of its columns in registers,
// and what the columns of a bucket have kept is put together at the end.
#pragma once

#include "cuda/bucket_queue.cuh"
#include "cuda/candidates.cuh"
#include "cuda/policy.h"
#include "cuda/row.cuh"

namespace jax_rtopk::cuda {

// `levels` is at least as many as a bucket keeps.
template <class Bits, class Team, int levels>
class BucketStream {
 public:
  using Word = WordOf<Bits>;
  static constexpr int kColumns = policy::bucket_columns(levels, sizeof(Bits));  // of a thread, side by side

  RTOPK_DEVICE BucketStream(const RowView<Bits>& row, unsigned columns, const Candidates<Word>& candidates)
      : row_(row),
        columns_(columns),
        candidates_(candidates),
        // Column 0 begins on a pack, at or before the row's first element.
        skipped_(unsigned(reinterpret_cast<uintptr_t>(row.data.address()) / sizeof(Bits) % kColumns)),
        end_(row.n + skipped_) {}

  RTOPK_DEVICE void run(Team& team) const {
    const auto buckets = unsigned(candidates_.count());
    const unsigned first_bucket = (buckets - skipped_ % buckets) % buckets;  // that of column 0
    constexpr unsigned kStripe = Team::kThreads * kColumns;
    for (unsigned stripe = 0; stripe < columns_; stripe += kStripe) {
      const unsigned column = stripe + unsigned(team.rank()) * kColumns;
      BucketQueue<Word, levels> queues[kColumns];
      if (column < columns_) fill(column, queues);
      const unsigned last = smaller(stripe + kStripe, columns_) - 1;
      // Columns of one bucket take turns.
      for (unsigned turn = (stripe + first_bucket) / buckets; turn <= (last + first_bucket) / buckets; ++turn) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const unsigned place = column + unsigned(j) + first_bucket;
          if (column < columns_ && place / buckets == turn)
            keep(int(place % buckets), column + unsigned(j) < buckets, queues[j], unsigned(j));
        }
        team.sync();
      }
    }
  }

 private:
  using Queues = BucketQueue<Word, levels>[kColumns];

  // A tag is where, counted from column 0 of line 0, the first of a thread's columns is on the element's line.
  RTOPK_DEVICE void fill(unsigned column, Queues& queues) const {
    unsigned at = column;
    unsigned lines = end_ >= column + kColumns ? (end_ - kColumns - column) / columns_ + 1 : 0;
    if (column < skipped_) {
      take_piece(at, queues);
      at += columns_;
      lines = lines > 0 ? lines - 1 : 0;
    }
    for (; lines >= kLines; lines -= kLines) {
      take_lines<true>(at, kLines, queues);
      at += kLines * columns_;
    }
    if (lines > 0) {
      take_lines<false>(at, lines, queues);
      at += lines * columns_;
    }
    if (at < end_) take_piece(at, queues);
  }

  // A few lines at once, so that all are under way in memory while the first is awaited.
  static constexpr unsigned kLines = policy::kBucketLines;
  template <bool kAll>
  RTOPK_DEVICE void take_lines(unsigned at, unsigned lines, Queues& queues) const {
    Pack<Bits, kColumns> bits[kLines];
#pragma unroll
    for (unsigned line = 0; line < kLines; ++line)
      if (kAll || line < lines) bits[line] = row_.data.template load_pack<kColumns>(at - skipped_ + line * columns_);
#pragma unroll
    for (unsigned line = 0; line < kLines; ++line) {
      if (!kAll && line >= lines) break;
      const KeyMap<Bits> map{row_.map.spread, row_.map.flip, 0};
      Word keys[kColumns];
      keys_of(map, bits[line], keys);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) queues[j].insert(keys[j], at + line * columns_);
    }
  }

  // What there is of a pack at either end of the row.
  RTOPK_DEVICE void take_piece(unsigned at, Queues& queues) const {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const unsigned place = at + unsigned(j);
      if (place >= skipped_ && place < end_) queues[j].insert(row_.map(row_.data.load(place - skipped_)), at);
    }
  }

  // Of the first of a bucket's columns that comes, all is kept.
  RTOPK_DEVICE void keep(int bucket, bool is_first, const BucketQueue<Word, levels>& queue, unsigned j) const {
#pragma unroll
    for (int level = 0; level < levels; ++level) {
      if (level >= candidates_.kept()) break;
      const Word key = queue.key(level);
      const auto index = int32_t(queue.tag(level) + j - skipped_);
      if (is_first) {
        candidates_.save(bucket, level, {key, key == 0 ? Candidates<Word>::kNone : index});
      } else if (key != 0) {
        candidates_.insert(bucket, {key, index});
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

  RTOPK_DEVICE BucketStream(const RowView<Bits>& row, unsigned, const Candidates<Word>& candidates)
      : row_(row), candidates_(candidates) {}

  RTOPK_DEVICE void run(Team& team) const {
    const int count = candidates_.count();
    for (int bucket = team.rank(); bucket < count; bucket += Team::kThreads) {
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
