// The policy: which kernel takes which rows, and with how many threads. Numbers to tune; the kernels are right with any
// of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/search_plan.h"

namespace jax_rtopk::cuda::policy {

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

// Results of a row that meet in a block's shared memory, in bytes; more are stored, and sorted, in place. Every GPU
// grants a block 48 KiB unasked.
inline constexpr int kStagedBytes = 47 * 1024;

// A launch has no more blocks than the GPU can hold at this many threads a multiprocessor; each block takes rows in
// turn.
inline constexpr int kThreadsPerMultiprocessor = 2048;

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

// How many blocks of them a multiprocessor is to hold at least: as many as its registers allow without spilling, by how
// many a lane needs for its keys, of `packs` packs, and for the `held` elements of its sink.
constexpr int blocks_in_warps(int packs, int held, int item_bytes) {
  const int keys = packs * 16 / item_bytes;
  const int words = item_bytes == 8 ? 2 * (keys + held) + 8 : keys + held;
  return words <= 8 ? 10 : (words <= 16 ? 7 : 4);
}

// The chunk that SearchPlan chooses for rows of `n` elements.
constexpr int chunk(int n, int item_bytes) {
  const int most = 16 / item_bytes;
  int chunk = 1;
  while (chunk < most && 2 * chunk * kGroups <= n) chunk *= 2;
  return chunk;
}

}  // namespace jax_rtopk::cuda::policy
