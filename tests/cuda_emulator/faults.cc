// Kernels with one mistake each, and the same kernels without it: tests/test_cuda_emulator.py expects the emulator to
// tell them apart.
#include <map>
#include <string>

#include "cuda/launch.h"

namespace jax_rtopk::cuda {
namespace {

constexpr int kThreads = 64;

// Each row of 32 is reversed through shared memory by one warp.
__global__ void reverse_rows(Global<const int> in, Global<int> out, bool out_of_bounds, bool no_sync) {
  const int thread = int(threadIdx.x), lane = thread % kWarp, row = thread - lane;
  const Shared<int> staged(size_t(row) * sizeof(int), kWarp);
  staged.store(lane, 0);
  __syncwarp();
  staged.store(lane, in.load(thread + (out_of_bounds && thread == 63)));
  if (!no_sync) __syncwarp();
  out.store(thread, staged.load(kWarp - 1 - lane));
}

// All of a block's 64 elements are reversed.
__global__ void reverse_block(Global<const int> in, Global<int> out, bool no_sync) {
  const int thread = int(threadIdx.x);
  const Shared<int> staged(0, kThreads);
  staged.store(thread, 0);
  __syncthreads();
  staged.store(thread, in.load(thread));
  no_sync ? __syncwarp() : __syncthreads();
  out.store(thread, staged.load(kThreads - 1 - thread));
}

// The sums of rows of 32; the mistakes leave lanes behind.
__global__ void sum_rows(Global<const int> in, Global<int> out, unsigned mask_of_odd_lanes, bool diverge, bool leave) {
  const int thread = int(threadIdx.x), lane = thread % kWarp;
  if (leave && lane == 7) return;
  unsigned sum = 0;
  if (diverge && lane >= 16) {
    sum = __reduce_add_sync(kFullMask, unsigned(in.load(thread)));
  } else {
    sum = __reduce_add_sync(lane % 2 ? mask_of_odd_lanes : kFullMask, unsigned(in.load(thread)));
  }
  out.store(thread, int(sum));
}

// How many elements have each remainder by four; the mistakes leave out a barrier before or after they are counted.
__global__ void count_remainders(Global<const int> in, Global<int> out, bool no_sync_before, bool no_sync_after) {
  const int thread = int(threadIdx.x);
  const Shared<int> bins(0, 4);
  if (thread < 4) bins.store(thread, 0);
  if (!no_sync_before) __syncthreads();
  bins.add(in.load(thread) % 4, 1);
  no_sync_after ? __syncwarp() : __syncthreads();
  out.store(thread, bins.load(thread % 4));
}

// Two blocks count together; without atomic additions one may not see the other's.
__global__ void count_blocks(Global<int> out, bool atomic) {
  if (threadIdx.x != 0) return;
  if (atomic) {
    out.add(0, 1);
  } else {
    out.store(0, out.load(0) + 1);
  }
}

__global__ void read_unwritten(Global<int> out) {
  const Shared<int> staged(0, kThreads);
  if (threadIdx.x < 63) staged.store(int(threadIdx.x), 1);
  __syncthreads();
  out.store(threadIdx.x, staged.load(int(threadIdx.x)));
}

__global__ void wait_for_half() {
  if (threadIdx.x < 32) __syncthreads();
}

std::string run(const std::string& name) {
  int in[kThreads], out[kThreads];
  for (int i = 0; i < kThreads; ++i) in[i] = i * i;
  const Global<const int> from(in, kThreads);
  const Global<int> to(out, kThreads);
  const auto start = [&](const char* kernel, auto function, const auto&... arguments) {
    return launch(kernel, function, 1, kThreads, sizeof out, Stream{}, arguments...);
  };
  const auto rows = [&](bool out_of_bounds, bool no_sync) {
    return start("reverse_rows", reverse_rows, from, to, out_of_bounds, no_sync);
  };
  const auto remainders = [&](bool no_sync_before, bool no_sync_after) {
    return start("count_remainders", count_remainders, from, to, no_sync_before, no_sync_after);
  };
  const auto blocks = [&](bool atomic) {
    out[0] = 0;
    return launch("count_blocks", count_blocks, 2, kThreads, 0, Stream{}, to, atomic);
  };
  const auto sums = [&](unsigned mask, bool diverge, bool leave) {
    return start("sum_rows", sum_rows, from, to, mask, diverge, leave);
  };
  if (name == "correct") {
    std::string wrong = rows(false, false);
    for (int i = 0; i < kThreads; ++i)
      if (out[i] != in[i ^ 31]) wrong += "rows are not reversed";
    wrong += start("reverse_block", reverse_block, from, to, false);
    for (int i = 0; i < kThreads; ++i)
      if (out[i] != in[63 - i]) wrong += "the block is not reversed";
    wrong += sums(kFullMask, false, false);
    if (out[0] != 10416 || out[32] != 74928)
      wrong += "sums are " + std::to_string(out[0]) + ", " + std::to_string(out[32]);
    wrong += remainders(false, false);  // of squares
    if (out[0] != 32 || out[1] != 32 || out[2] != 0) wrong += "remainders are miscounted";
    wrong += blocks(true);
    if (out[0] != 2) wrong += "blocks are miscounted";
    return wrong;
  }
  if (name == "out_of_bounds") return rows(true, false);
  if (name == "missing_syncwarp") return rows(false, true);
  if (name == "missing_syncthreads") return start("reverse_block", reverse_block, from, to, true);
  if (name == "add_before_sync") return remainders(true, false);
  if (name == "read_before_sync") return remainders(false, true);
  if (name == "blocks_race") return blocks(false);
  if (name == "mask_lacks_lane") return sums(0x55555555u, false, false);
  if (name == "mask_differs") return sums(0xbfffffffu, false, false);
  if (name == "divergence") return sums(kFullMask, true, false);
  if (name == "exited_lane") return sums(kFullMask, false, true);
  if (name == "uninitialised") return start("read_unwritten", read_unwritten, to);
  if (name == "deadlock") return start("wait_for_half", wait_for_half);
  return "no such fault";
}

}  // namespace
}  // namespace jax_rtopk::cuda

extern "C" __attribute__((visibility("default"))) const char* jax_rtopk_run_fault(const char* name) {
  static thread_local std::string message;
  message = jax_rtopk::cuda::run(name);
  return message.c_str();
}
