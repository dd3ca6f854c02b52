// Results of rows put in order by many blocks: runs in shared memory, then merges of runs through global memory.
#pragma once

#include <string>

#include "cuda/kernels.cuh"

namespace jax_rtopk::cuda {

// The results of rows, k each, in runs of `run` that a block's shared memory holds.
template <class Bits>
struct RunsTask {
  PairSink<Bits> results;
  int64_t rows;
  unsigned run;
  KeyMap<Bits> map;

  RTOPK_DEVICE unsigned k() const { return unsigned(results.k); }
  RTOPK_DEVICE int64_t runs() const { return (results.k - 1) / int64_t(run) + 1; }

  RTOPK_DEVICE GlobalStore<Bits> row(int64_t i) const {
    return {results.values.part(i * k(), k()), results.indices.part(i * k(), k()), map};
  }
};

// Each run by a block: sorted, or, where halves of it are in order already, `merging` them by steps of half of it and
// less.
template <class Bits, int kThreads>
__global__ void __launch_bounds__(kThreads) sort_runs(RunsTask<Bits> task, bool merging) {
  using Team = BlockTeam<kThreads>;
  Team team(0);
  for (int64_t i = blockIdx.x; i < task.rows * task.runs(); i += gridDim.x) {
    const int64_t row = i / task.runs();
    const auto begin = unsigned(i - row * task.runs()) * task.run;
    const unsigned count = smaller(task.run, task.k() - begin);
    const GlobalStore<Bits> results = task.row(row);
    const SharedStore<WordOf<Bits>> stage(Team::kScratchBytes, int(count));
    for (auto place = unsigned(team.rank()); place < count; place += kThreads)
      stage.save(place, results.load(begin + place));
    team.sync();
    if (merging) {
      merge_from(team, stage, count, task.run / 2);
    } else {
      sort_selected(team, stage, count);
    }
    for (auto place = unsigned(team.rank()); place < count; place += kThreads)
      results.save(begin + place, stage.load(place));
  }
}

// One step of a merge, a thread a pair: of mirrored places of runs of `distance`, or of places that far apart.
template <class Bits, int kThreads>
__global__ void __launch_bounds__(kThreads) merge_runs_apart(RunsTask<Bits> task, unsigned distance, bool mirrored) {
  const unsigned pairs = pairs_of(task.k(), distance);
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < task.rows * pairs; i += stride) {
    const int64_t row = i / pairs;
    const auto p = unsigned(i - row * pairs);
    if (mirrored) {
      exchange_mirrored(task.row(row), task.k(), distance, p);
    } else {
      exchange_apart(task.row(row), task.k(), distance, p);
    }
  }
}

template <class Bits>
std::string sort_results(const PairSink<Bits>& results, int64_t rows, const KeyMap<Bits>& map, Stream stream) {
  constexpr int kThreads = policy::kSortBlock;
  constexpr unsigned kRun = policy::sorted_run(sizeof(Bits));
  using Team = BlockTeam<kThreads>;
  const RunsTask<Bits> task{results, rows, kRun, map};
  const auto k = unsigned(results.k);
  const auto by_runs = [&](bool merging) {
    const size_t shared = Team::kScratchBytes + std::min(kRun, k) * sizeof(Selected<WordOf<Bits>>);
    return launch("sort_runs", sort_runs<Bits, kThreads>, blocks_for(rows * ((k - 1) / kRun + 1), 1, kThreads),
                  kThreads, shared, stream, task, merging);
  };
  const auto step = [&](unsigned distance, bool mirrored) {
    return launch("merge_runs_apart", merge_runs_apart<Bits, kThreads>,
                  blocks_for(rows * pairs_of(k, distance), kThreads, kThreads), kThreads, 0, stream, task, distance,
                  mirrored);
  };
  std::string error = by_runs(false);
  for (unsigned half = kRun; half < k && error.empty(); half *= 2) {
    error = step(half, true);
    for (unsigned distance = half / 2; distance >= kRun && error.empty(); distance /= 2) error = step(distance, false);
    if (error.empty()) error = by_runs(true);
  }
  return error;
}

}  // namespace jax_rtopk::cuda
