// The policy: which kernel takes which rows, and with how many threads. Numbers to tune; the kernels are right with any
// of them.
#pragma once

#include <cstdint>

#include "native/search_plan.h"

namespace jax_rtopk::cuda::policy {

// Rows in the registers of a warp, or of a part of it.
inline constexpr int kWarpRowMax = 1024;
inline constexpr int kWarpsPerBlock = 4;

// Longer ones in the registers of a block: of kSmallBlock threads that hold kSmallKeys each, or of kLargeBlock that
// hold kLargeKeys.
inline constexpr int kSmallBlock = 256, kSmallKeys = 16;
inline constexpr int kLargeBlock = 512, kLargeKeys = 32;

// Those that are longer still are streamed from memory by a block.
inline constexpr int kStreamBlock = 512;

// Results of a row that meet in a block's shared memory, in bytes; more are stored, and sorted, in place. Every GPU
// grants a block 48 KiB unasked.
inline constexpr int kStagedBytes = 47 * 1024;

// A launch has no more blocks than the GPU can hold at this many threads a multiprocessor; each block takes rows in
// turn.
inline constexpr int kThreadsPerMultiprocessor = 2048;

// How many lanes share a row: kGroups groups of `chunk` elements must be dealt to them evenly.
constexpr int lanes(const SearchPlan& plan, int item_bytes) { return kGroups * plan.chunk * item_bytes / 16; }

// Packs of 16 bytes that each of these lanes holds: powers of two in this range are compiled.
constexpr int packs_from(int lanes, int item_bytes) { return lanes < kGroups || item_bytes > 2 ? 2 : 1; }
constexpr int packs_to(int lanes, int item_bytes) {
  return lanes < kGroups ? 2 : kWarpRowMax * item_bytes / 16 / kGroups;
}

}  // namespace jax_rtopk::cuda::policy
