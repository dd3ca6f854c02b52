// The policy: which kernel takes which rows, and with how many threads. Numbers to tune; the kernels are right with any
// of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "native/search_plan.h"

namespace jax_rtopk::cuda::policy {

// A launch has no more blocks than the GPU can hold at this many threads a multiprocessor; each block takes rows in
// turn.
inline constexpr int kThreadsPerMultiprocessor = 2048;

// Rows in the registers of a warp. Several of those of up to kSharedWarp elements share one: each gets as few lanes as
// can hold it in kWarpKeys words of 32 bits each, so that what is the same for each lane of a row serves several rows.
inline constexpr int kWarpRowMin = 32, kSharedWarp = 128;
inline constexpr int kWarpKeys = 16;
constexpr int warp_row_max(size_t item_bytes) { return item_bytes == 8 ? 512 : 1024; }
inline constexpr int kWarpsPerBlock = 4;

// Longer ones in the registers of a block: of kSmallBlock threads that hold kSmallKeys each, or of kLargeBlock that
// hold large_keys.
inline constexpr int kSmallBlock = 256, kSmallKeys = 16;
inline constexpr int kLargeBlock = 512;
constexpr int large_keys(size_t item_bytes) { return item_bytes == 8 ? 16 : 32; }

// Those that are longer still are streamed from memory by a block.
inline constexpr int kStreamBlock = 512;

// Their pairs, if the exact ones are wanted, are selected in parts that the registers of a block hold: of the longest
// such, or, where that would be fewer than kFewParts in all, of the shorter, if a block then holds what these select. A
// row is to be kPartTimes as long as what its parts select, else it is taken as one, or by digits.
inline constexpr int64_t kFewParts = 256, kPartTimes = 8;
// May only become more: exported programs bring the parts that were right when they were made.
constexpr int64_t longest_part(int item_bytes) { return kLargeBlock * int64_t(large_keys(size_t(item_bytes))); }
constexpr int64_t parts(int64_t rows, int64_t n, int64_t k, int item_bytes) {
  const int64_t small = kSmallBlock * kSmallKeys, large = longest_part(item_bytes);
  const int64_t of_small = (n - 1) / small + 1, of_large = (n - 1) / large + 1;
  const bool few = rows * of_large < kFewParts && of_small * k <= large;
  const int64_t count = few && of_small * k * kPartTimes <= n ? of_small : of_large;
  return n > large && count * k * kPartTimes <= n ? count : 1;
}

// All else that is exact of such rows: few of them are selected from by digits, by many blocks of kDigitBlock threads
// each. A part, the share of a block, has a pack for each thread at least. Of the parts there may only be fewer:
// exported programs bring the workspace that was needed when they were made.
inline constexpr int64_t kFewRows = 256, kMostDigitParts = 512;
inline constexpr int kDigitBlock = 512;
// A thread has one load under way at a time, so as many as fit keep memory busy. One more would spill.
constexpr int blocks_that_count(int item_bytes) { return item_bytes == 1 ? 2 : (item_bytes == 8 ? 3 : 4); }
constexpr bool by_digits(int64_t rows, int64_t n, int item_bytes) {
  return n > longest_part(item_bytes) && rows < kFewRows;
}
constexpr int64_t digit_parts(int64_t rows, int64_t n, int item_bytes, int multiprocessors) {
  const int64_t blocks = int64_t(multiprocessors) * (kThreadsPerMultiprocessor / kDigitBlock);
  const int64_t most = std::min(kMostDigitParts, n * item_bytes / (16 * kDigitBlock));
  return std::max<int64_t>(1, std::min(blocks / rows, most));
}

// The results of those are sorted in runs that a block's shared memory holds, powers of two.
inline constexpr int kSortBlock = 512;
constexpr unsigned sorted_run(int item_bytes) { return item_bytes == 8 ? 2048 : 4096; }

// Results of a row that meet in a block's shared memory, in bytes; more are stored, and sorted, in place. Every GPU
// grants a block 48 KiB unasked.
inline constexpr int kStagedBytes = 47 * 1024;

// The kernels in a warp are for rows of more than `size` / 2 and up to `size` elements, a power of two, in chunks of
// `chunk` (SearchPlan). Each of a row's lanes has whole groups, kGroups in all.
constexpr int lanes(int size, int chunk, int item_bytes) {
  const int wanted = size > kSharedWarp ? 32 : size / (item_bytes == 8 ? kWarpKeys / 2 : kWarpKeys);
  const int most = kGroups * chunk * item_bytes / 16;
  const int lanes = wanted < most ? wanted : most;
  return lanes < 2 ? 2 : (lanes < 32 ? lanes : 32);
}
constexpr int packs(int size, int chunk, int item_bytes) {
  return size * item_bytes / 16 / lanes(size, chunk, item_bytes);
}

// Survivors of the quick way (quick.cuh) that a lane takes; 0: rows do not go it.
template <int lanes, int packs, int item_bytes>
inline constexpr int kQuickSlots =
    lanes == 32 && (item_bytes == 2 || item_bytes == 4) ? (packs * 16 / item_bytes <= 8 ? 2 : 4) : 0;

// How many blocks of them a multiprocessor is to hold at least: as many as its registers allow without spilling, by how
// many a lane needs for its keys, of `packs` packs, and for the `held` elements of its sink.
constexpr int blocks_in_warps(int packs, int held, int item_bytes) {
  const int keys = packs * 16 / item_bytes;
  const int words = item_bytes == 8 ? 2 * (keys + held) + 8 : keys + held;
  return words <= 8 ? 10 : (words <= 16 ? 7 : 4);
}

// The same of blocks that have a row each: of small ones as many as can be without spilling, of large ones one.
constexpr int blocks_of(int threads, int item_bytes) { return threads == kSmallBlock ? (item_bytes == 8 ? 2 : 3) : 1; }

// The chunk that SearchPlan chooses for rows of `n` elements.
constexpr int chunk(int n, int item_bytes) {
  const int most = 16 / item_bytes;
  int chunk = 1;
  while (chunk < most && 2 * chunk * kGroups <= n) chunk *= 2;
  return chunk;
}

// Bucketed top-k: a block takes a row. Where there are rows for all multiprocessors it is a small one, of which each
// holds several, since much of the second stage is the same work for each warp; otherwise one that keeps more of its
// row on the way from memory: so many lines in each thread.
inline constexpr int kSmallBucketBlock = 128, kLargeBucketBlock = 512, kBucketLines = 4;
// So many blocks for each multiprocessor take rows in turn: several times as many as it holds, so that it is not left
// with few of them for long when the work runs out.
inline constexpr int kBucketBlocks = 64;
constexpr bool in_large_bucket_blocks(int64_t rows, int multiprocessors) { return rows < 2 * multiprocessors; }

// The candidates of a row, with those that are selected of them, lie in shared memory up to so many bytes: few enough
// to leave room for several blocks, and for what the search needs besides. May only become more: exported programs
// bring the workspace that was needed when they were made.
inline constexpr int kCandidateBytes = 40 * 1024;

// How many levels a thread's queues have, where a bucket keeps so many elements; 0: more than fit in registers.
constexpr int bucket_levels(int64_t kept) {
  int levels = 1;
  while (levels <= 16 && levels < kept) levels *= 2;
  return levels <= 16 ? levels : 0;
}

// How many columns a thread takes side by side: what 16 bytes hold, or as many as there are registers for.
constexpr int bucket_columns(int levels, int item_bytes) {
  const int most = 16 / item_bytes, fit = levels <= 2 ? 8 : 16 / levels;
  return most < fit ? most : fit;
}

// Whether the queues take the elements of kBucketLines lines as one. It must pay to find out afterwards which of these
// an element was: with one level it does from kSpanLines lines on; with two there are no registers for both loops.
// 64-bit lanes cost too much to compare, and with those of bytes the kernels for two levels kept some on a stack.
enum class Spans { kNever, kIfLong, kAlways };
inline constexpr unsigned kSpanLines = 12;
constexpr Spans spans(int levels, size_t item_bytes) {
  if (levels > 2 || item_bytes == 1 || item_bytes == 8) return Spans::kNever;
  return levels == 1 ? Spans::kIfLong : Spans::kAlways;
}

// How many blocks with such queues a multiprocessor is to hold at least.
constexpr int bucket_blocks(int threads, int levels, int item_bytes) {
  const int words = levels * bucket_columns(levels < 1 ? 1 : levels, item_bytes) * (item_bytes == 8 ? 3 : 2);
  return threads == kLargeBucketBlock ? 1 : (words < 32 ? 6 : 4);
}

// As how long lines a row is read: a multiple of the number of buckets, and of a thread's columns. Short lines leave
// threads without work; long ones leave few elements to a column, and many columns of a bucket to be put together.
// Returns 0 where there is no line that short.
inline unsigned bucket_line(int64_t n, int64_t buckets, int levels, int item_bytes, int threads) {
  const int64_t columns = bucket_columns(levels, item_bytes), block = columns * threads;
  const int64_t least = buckets * (columns / std::gcd(columns, buckets));
  if (least > std::numeric_limits<int32_t>::max()) return 0;
  // Instructions of a warp: for what it inserts, for each stripe of columns that a block takes at a time, and for each
  // time that columns of one bucket take turns.
  const auto cost = [&](int64_t line) {
    const int64_t stripes = (line - 1) / block + 1, turns = stripes * ((std::min(line, block) - 1) / buckets + 1);
    return stripes * ((n / line + 1) * columns * (5 * levels + 1) + 100) + turns * (60 + 20 * levels);
  };
  int64_t best = least;
  for (int64_t line = 2 * least; line <= n && line <= 64 * least; line += least)
    if (cost(line) < cost(best)) best = line;
  return unsigned(best);
}

}  // namespace jax_rtopk::cuda::policy
