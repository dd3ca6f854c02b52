// The buckets of a row, and the elements that each keeps: vertical queues, a vector of buckets side by side.
//
// The row is a matrix whose columns are the buckets. It, or some columns of it, is streamed once, a few of its lines at
// a time, so that the queues of a vector of columns are loaded and stored once for these few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/row.h"
#include "native/buckets.h"

namespace jax_rtopk::RTOPK_ISA {

template <class Row>
class BucketQueues {
 public:
  using V = typename Row::V;
  using Lane = typename Row::Lane;
  using Reg = typename Row::Reg;

  // For `columns` of the buckets, from `first` on.
  BucketQueues(const Buckets& buckets, int32_t first, int32_t columns)
      : pitch_(int32_t(buckets.count)),
        first_(first),
        columns_(columns),
        levels_(int32_t(buckets.kept)),
        stride_((columns_ + int64_t(Row::kLanes) - 1) / Row::kLanes * Row::kLanes),
        lanes_(size_t(levels_ * stride_)),
        lines_(size_t(levels_ * stride_)) {}

  void fill(const Row& row) {
    int64_t line = 0;
    for (; line < levels_; ++line) take_line(row, line, int32_t(line));  // whole lines: no bucket is that small
    if (levels_ == 1) {
      take_lines<1>(row, line);
    } else if (levels_ == 2) {
      take_lines<2>(row, line);
    } else if (levels_ == 3) {
      take_lines<3>(row, line);
    } else if (levels_ == 4) {
      take_lines<4>(row, line);
    }
    for (; line * pitch_ + first_ < row.n(); ++line) take_line(row, line, levels_);
  }

  // Writes what is kept to its place among the candidates of the row: the first of each bucket, then the second of
  // each, and so on; and where it is in the row.
  void copy_to(Lane* __restrict__ lanes, int32_t* __restrict__ indices) const {
    const int32_t columns = columns_, pitch = pitch_, first = first_;
    for (int32_t level = 0; level < levels_; ++level) {
      const Lane* const kept = lanes_.data() + level * stride_;
      const Lane* const line = lines_.data() + level * stride_;
      const int64_t to = int64_t(level) * pitch + first;
      for (int32_t column = 0; column < columns; ++column) {
        lanes[to + column] = kept[column];
        indices[to + column] = int32_t(line[column]) * pitch + first + column;
      }
    }
  }

 private:
  // One line, or what there is of it, into queues whose first `filled` levels hold something.
  void take_line(const Row& row, int64_t line, int32_t filled) {
    const int64_t begin = line * pitch_ + first_, end = begin + columns_ < row.n() ? begin + columns_ : row.n();
    const Reg number = V::set1(Lane(line));
    row.sweep(int32_t(begin), int32_t(end),
              [&](int32_t i, auto lanes, auto) { insert(i - begin, lanes, number, filled); });
  }

  // An element comes behind all equal ones, which have lower indices.
  void insert(int64_t column, Reg lanes, Reg number, int32_t filled) {
    Lane* lane = lanes_.data() + column;
    Lane* line = lines_.data() + column;
    int32_t level = filled;
    if (filled == levels_) {  // the last of each queue gives way to what is greater
      --level;
      const Reg last = V::load(lane + level * stride_);
      if (V::gt(lanes, last) == 0) return;
      const auto greater = V::greater(lanes, last);
      lanes = V::choose(greater, lanes, last);
      number = V::choose(greater, number, V::load(line + level * stride_));
    }
    for (; level > 0; --level) {
      const Reg above = V::load(lane + (level - 1) * stride_), above_line = V::load(line + (level - 1) * stride_);
      const auto greater = V::greater(lanes, above);
      V::store(lane + level * stride_, V::choose(greater, above, lanes));
      V::store(line + level * stride_, V::choose(greater, above_line, number));
      lanes = V::choose(greater, lanes, above);
      number = V::choose(greater, number, above_line);
    }
    V::store(lane, lanes);
    V::store(line, number);
  }

  // As many lines as can be read in whole vectors, into full queues of kLevels. `line` becomes the first that is left.
  template <int kLevels>
  void take_lines(const Row& row, int64_t& line) {
    // The next ones are fetched meanwhile, and must find room in the innermost cache.
    constexpr int64_t kFetched = 1 << 14;  // bytes
    if (8 * int64_t(columns_) * Row::kItemBytes <= kFetched) take_lines<kLevels, 8>(row, line);
    take_lines<kLevels, 4>(row, line);
    take_lines<kLevels, 2>(row, line);
    take_lines<kLevels, 1>(row, line);
  }

  // The same, kLines at a time.
  template <int kLevels, int kLines>
  void take_lines(const Row& from, int64_t& line) {
    const Row row = from;  // which no store can change, so it stays in registers
    const int64_t pitch = pitch_, first = first_, stride = stride_;
    Lane *const all_lanes = lanes_.data(), *const all_lines = lines_.data();
    for (; (line + kLines - 1) * pitch + first + stride <= row.n(); line += kLines) {
      for (int64_t column = 0; column < stride; column += Row::kLanes) {
        Reg lane[kLevels], number[kLevels];
        for (int level = 0; level < kLevels; ++level) {
          lane[level] = V::load(all_lanes + level * stride + column);
          number[level] = V::load(all_lines + level * stride + column);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kLines; ++i) {
          const int64_t at = (line + i) * pitch + first + column;
          // The next lines, or the next row: the CPU does not foresee that many places to read from.
          row.prefetch(at + kLines * pitch);
          insert<kLevels>(lane, number, row.lanes(int32_t(at)), V::set1(Lane(line + i)));
        }
        for (int level = 0; level < kLevels; ++level) {
          V::store(all_lanes + level * stride + column, lane[level]);
          V::store(all_lines + level * stride + column, number[level]);
        }
      }
    }
  }

  template <int kLevels>
  __attribute__((always_inline)) static void insert(Reg* lane, Reg* line, Reg lanes, Reg number) {
    auto greater = V::greater(lanes, lane[kLevels - 1]);
    for (int level = kLevels - 1; level > 0; --level) {
      const auto greater_than_above = V::greater(lanes, lane[level - 1]);
      lane[level] = V::choose(greater_than_above, lane[level - 1], V::choose(greater, lanes, lane[level]));
      line[level] = V::choose(greater_than_above, line[level - 1], V::choose(greater, number, line[level]));
      greater = greater_than_above;
    }
    lane[0] = V::max(lanes, lane[0]);
    line[0] = V::choose(greater, number, line[0]);
  }

  const int32_t pitch_;  // between the lines
  const int32_t first_, columns_, levels_;
  const int64_t stride_;  // between the levels: columns_, rounded up to whole vectors
  // Of what is kept; [level * stride_ + column]. Columns behind the last bucket hold anything.
  std::vector<Lane> lanes_;
  std::vector<Lane> lines_;
};

}  // namespace jax_rtopk::RTOPK_ISA
