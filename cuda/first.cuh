// k = 1: the first of the largest elements of a row. It needs no search, so any max_iter finds it.
#pragma once

#include "cuda/select_row.cuh"
#include "cuda/sinks.cuh"
#include "cuda/task.cuh"

namespace jax_rtopk::cuda {

template <class Bits, class Row, class Team>
RTOPK_DEVICE void store_first(const Row& held, Team& team, const PairSink<Bits>& sink, int64_t row, bool active) {
  const auto key = largest(held, team);
  const unsigned index = first_of(held, team, key);
  if (active && team.rank() == 0) {
    sink.values.store(row, held.view().map.bits(Bits(key)));
    sink.indices.store(row, int32_t(index));
  }
}

// As select_in_warp and select_in_block (kernels.cuh).
template <class Bits, int kLanes, int kPacks>
__global__ void __launch_bounds__(policy::kWarpsPerBlock* kWarp) first_in_warp(Task<Bits> task, PairSink<Bits> sink) {
  using Team = WarpTeam<kLanes>;
  constexpr int kWarps = policy::kWarpsPerBlock, kRows = kWarp / kLanes;
  Team team;
  const int warp = __shfl_sync(kFullMask, this_warp(), 0);
  const int64_t stride = int64_t(gridDim.x) * (kWarps * kRows);
  const NextRow next(task, unsigned(team.rank()), stride, kRows);
  for (int64_t first = (int64_t(blockIdx.x) * kWarps + warp) * kRows; first < task.rows; first += stride) {
    const int64_t mine = first + this_lane() / kLanes, row = mine < task.rows ? mine : task.rows - 1;
    RowView<Bits> view = task.view(row);
    next.prefetch_after(view, first);
    store_first(RegisterRow<Bits, Team, kPacks>(view, team), team, sink, row, mine < task.rows);
  }
}

template <class Bits, int kThreads, class Row>
__global__ void __launch_bounds__(kThreads, 1) first_in_block(Task<Bits> task, PairSink<Bits> sink) {
  BlockTeam<kThreads> team(0);
  for (int64_t row = blockIdx.x; row < task.rows; row += gridDim.x) {
    task.prefetch(row + gridDim.x, unsigned(team.rank()));
    store_first(Row(task.view(row), team), team, sink, row, true);
  }
}

}  // namespace jax_rtopk::cuda
