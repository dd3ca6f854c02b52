// The kernels, and the choice of one for a launch.
#pragma once

#include <algorithm>
#include <climits>
#include <string>

#include "cuda/first.cuh"
#include "cuda/launch.h"
#include "cuda/policy.h"
#include "cuda/quick.cuh"
#include "cuda/select_row.cuh"
#include "cuda/sinks.cuh"
#include "cuda/task.cuh"

namespace jax_rtopk::cuda {

// Rows of at most policy::warp_row_max elements, in the registers of kLanes lanes.
template <class Bits, int kLanes, int kPacks, int kChunks, class Sink>
__global__ void __launch_bounds__(policy::kWarpsPerBlock* kWarp,
                                  policy::blocks_in_warps(kPacks, Sink::kHeld, sizeof(Bits)))
    select_in_warp(Task<Bits> task, Sink sink, int team_bytes) {
  using Team = WarpTeam<kLanes>;
  constexpr int kTeams = policy::kWarpsPerBlock * kWarp / kLanes;
  constexpr int kScratchBytes = kResolved * int(sizeof(WordOf<Bits>));
  constexpr int kSlots = policy::kQuickSlots<kLanes, kPacks, int(sizeof(Bits))>;
  Team team;
  const auto rank = unforeseen(unsigned(team.rank()));
  const int scratch = int(threadIdx.x) / kLanes * team_bytes;
  // All teams of a warp go on together: one without a row of its own does another's once more, and stores nothing.
  const int64_t first = int64_t(blockIdx.x) * kTeams, stride = unforeseen(int64_t(gridDim.x) * kTeams);
  // From one lane, so that the compiler knows that all go through the loop together. Else it would ask before every
  // exchange whether they do, and write each one twice.
  const int warp = __shfl_sync(kFullMask, this_warp(), 0);
  const NextRow next(task, rank, stride, kWarp / kLanes);
  for (int64_t of_warp = first + warp * (kWarp / kLanes); of_warp < task.rows; of_warp += stride) {
    const int64_t mine = of_warp + this_lane() / kLanes;
    int64_t row = mine < task.rows ? mine : task.rows - 1;
    RowView<Bits> view = task.view(row);
    next.prefetch_after(view, of_warp);
    if constexpr (kSlots > 0) {
      using Row = QuickRow<Bits, Team, kPacks, kChunks>;
      Row held(rank);
      const auto found = [&](const Survivors<kSlots, Row>& survivors) {
        const auto results_of = [&](int64_t row) {
          return typename Sink::template OfRow<Team>(sink, row, task.view(row), scratch + kScratchBytes, true);
        };
        if (likely(held.has_bits() && sink.takes_bits())) {
          results_of(row).take_bits(held, survivors);
        } else {
          results_of(unforeseen(row)).take_survivors(team, held, survivors);
        }
      };
      const bool quickly = likely(task.usual) || task.quick.spare > 0;
      int32_t maximum = 0;
      if (likely(task.usual)) {
        held.template load_swiftly<true>(view);
        maximum = thread_maximum<true>(held, team, task.plan);
      } else if (quickly) {
        if (task.swift) {
          held.template load_swiftly<true>(view);
        } else if (task.plain && task.packed) {
          held.template load_swiftly<false>(view);
        } else {
          held.load(task.view(unforeseen(row)), team);
        }
        maximum = thread_maximum(held, team, task.plan);
      }
      if (quickly && select_quickly<kSlots>(held, team, task.plan, task.quick, maximum, scratch, found)) continue;
      team.sync();  // with those who still load survivors
      row = unforeseen(row);
      view = task.view(row);
    }
    SearchPlan plan = task.plan;
    plan.k = unforeseen(plan.k);
    plan.rank = unforeseen(plan.rank);
    const RegisterRow<Bits, Team, kPacks, kChunks> held(view, team);
    typename Sink::template OfRow<Team> results(sink, row, view, scratch + kScratchBytes, mine < task.rows);
    select_row(held, team, plan, FirstPivots(plan), task.max_iter, scratch, results);
    results.finish(team);
  }
}

// Longer rows, by a block: Row keeps them in registers or leaves them in memory. The results are staged where the
// maxima were.
template <class Bits, int kThreads, class Row, class Sink>
__global__ void __launch_bounds__(kThreads, policy::blocks_of(kThreads, sizeof(Bits)))
    select_in_block(Task<Bits> task, Sink sink) {
  using Team = BlockTeam<kThreads>;
  Team team(0);
  const FirstPivots first_pivots(task.plan);
  for (int64_t row = blockIdx.x; row < task.rows; row += gridDim.x) {
    const RowView<Bits> view = task.view(row);
    task.prefetch(row + gridDim.x, unsigned(team.rank()));
    const Row held(view, team);
    typename Sink::template OfRow<Team> results(sink, row, view, Team::kScratchBytes, true);
    select_row(held, team, task.plan, first_pivots, task.max_iter, Team::kScratchBytes, results);
    results.finish(team);
  }
}

// At most as many as a GPU could hold at a time if registers allowed; each takes rows in turn.
inline unsigned blocks_for(int64_t rows, int64_t rows_per_block, int threads) {
  const int64_t needed = (rows - 1) / rows_per_block + 1;
  const int64_t held = int64_t(multiprocessors()) * (policy::kThreadsPerMultiprocessor / threads);
  return unsigned(std::clamp<int64_t>(held, 1, needed));
}

// Launches the kernel for the task's rows.
template <class Bits, class Sink>
class Launcher {
 public:
  // `staged_bytes`: the shared memory that the sink wants for a row.
  Launcher(const Task<Bits>& task, const Sink& sink, int staged_bytes, Stream stream)
      : task_(task), sink_(sink), staged_bytes_(staged_bytes), stream_(stream) {}

  std::string run() const {
    if (task_.plan.n <= policy::warp_row_max(sizeof(Bits))) return in_warp_of<policy::kWarpRowMin>();
    if (task_.plan.n <= policy::kSmallBlock * policy::kSmallKeys)
      return in_registers<policy::kSmallBlock, policy::kSmallKeys>();
    if (task_.plan.n <= policy::kLargeBlock * policy::large_keys(sizeof(Bits)))
      return in_registers<policy::kLargeBlock, policy::large_keys(sizeof(Bits))>();
    using Team = BlockTeam<policy::kStreamBlock>;
    return in_block<policy::kStreamBlock, StreamedRow<Bits, Team>>("select_streamed");
  }

 private:
  static constexpr int kPack = RowView<Bits>::kPack;
  static constexpr bool kPairs = std::is_same_v<Sink, PairSink<Bits>>;

  template <int kSize>
  std::string in_warp_of() const {
    if constexpr (kSize < policy::warp_row_max(sizeof(Bits)))
      if (task_.plan.n > kSize) return in_warp_of<2 * kSize>();
    constexpr int kChunk = policy::chunk(kSize - 1, sizeof(Bits)), kChunkOfFull = policy::chunk(kSize, sizeof(Bits));
    if (task_.plan.chunk == kChunkOfFull) return in_warp_with<kSize, kChunkOfFull>();
    return in_warp_with<kSize, kChunk>();
  }

  template <int kSize, int kChunk>
  std::string in_warp_with() const {
    constexpr int kLanes = policy::lanes(kSize, kChunk, sizeof(Bits));
    constexpr int kPacks = policy::packs(kSize, kChunk, sizeof(Bits));
    constexpr int kThreads = policy::kWarpsPerBlock * kWarp, kTeams = kThreads / kLanes;
    constexpr int kSlots = policy::kQuickSlots<kLanes, kPacks, int(sizeof(Bits))>;
    const unsigned blocks = blocks_for(task_.rows, kTeams, kThreads);
    if constexpr (kPairs) {
      if (task_.plan.k == 1)
        return launch("first_in_warp", first_in_warp<Bits, kLanes, kPacks>, blocks, kThreads, 0, stream_, task_, sink_);
    }
    const int search_bytes = (kResolved * int(sizeof(WordOf<Bits>)) + staged_bytes_ + 15) / 16 * 16;
    const int team_bytes = larger(kSlots * kWarp * int(sizeof(WordItem)), search_bytes);
    Task<Bits> task = task_;
    task.quick = QuickPlan::make(task.plan, task.max_iter != INT_MAX, kSlots * kWarp);
    task.swift = task.plain && task.packed && task.plan.n == kPacks * kPack * kLanes;
    task.usual = task.swift && task.quick.spare > 0 && task.plan.sampled >= task.plan.n;
    return launch("select_in_warp", select_in_warp<Bits, kLanes, kPacks, kPack / kChunk, Sink>, blocks, kThreads,
                  size_t(kTeams) * team_bytes, stream_, task, sink_, team_bytes);
  }

  template <int kThreads, int kKeys>
  std::string in_registers() const {
    return in_block<kThreads, RegisterRow<Bits, BlockTeam<kThreads>, kKeys / kPack>>("select_in_block");
  }

  template <int kThreads, class Row>
  std::string in_block(const char* name) const {
    using Team = BlockTeam<kThreads>;
    const unsigned blocks = blocks_for(task_.rows, 1, kThreads);
    if constexpr (kPairs) {
      if (task_.plan.k == 1)
        return launch("first_in_block", first_in_block<Bits, kThreads, Row>, blocks, kThreads, Team::kScratchBytes,
                      stream_, task_, sink_);
    }
    const int shared = Team::kScratchBytes + larger(block_maxima_bytes<Team, WordOf<Bits>>(), staged_bytes_);
    return launch(name, select_in_block<Bits, kThreads, Row, Sink>, blocks, kThreads, size_t(shared), stream_, task_,
                  sink_);
  }

  const Task<Bits>& task_;
  const Sink& sink_;
  int staged_bytes_;
  Stream stream_;
};

template <class Bits>
std::string topk_as(const Request& request, const void* operand, void* values, int32_t* indices, Stream stream) {
  const Task<Bits> task = task_of<Bits>(request, operand);
  const bool in_warp = request.n <= policy::warp_row_max(sizeof(Bits));
  const int64_t item = sizeof(Selected<WordOf<Bits>>);
  const bool staged = in_warp || (request.sorted && request.k * item <= policy::kStagedBytes);
  const bool by_rank = request.sorted && PairSink<Bits>::can_rank(request.n, request.k);
  const int room = by_rank ? PairSink<Bits>::room_to_rank(int(request.k)) : (staged ? int(request.k) : 0);
  const PairSink<Bits> sink{Global<Bits>(static_cast<Bits*>(values), request.rows * request.k),
                            Global<int32_t>(indices, request.rows * request.k),
                            int(request.k),
                            room,
                            request.sorted,
                            by_rank ? unsigned(request.k * (request.k - 1) / 2) : 0};
  return Launcher<Bits, PairSink<Bits>>(task, sink, room * int(item), stream).run();
}

template <class Bits>
MaskSink<Bits> mask_sink(const Request& request, uint8_t* mask) {
  return {Global<uint8_t>(mask, request.rows * request.n), request.n,
          starts_on(mask, RowView<Bits>::kPack) && request.n % RowView<Bits>::kPack == 0};
}

template <class Bits>
DenseSink<Bits> dense_sink(const Request& request, void* dense) {
  return {Global<Bits>(static_cast<Bits*>(dense), request.rows * request.n), request.n,
          starts_on(dense, 16) && request.n % RowView<Bits>::kPack == 0, request.by_magnitude};
}

template <class Bits>
std::string mask_as(const Request& request, const void* operand, uint8_t* mask, Stream stream) {
  const MaskSink<Bits> sink = mask_sink<Bits>(request, mask);
  return Launcher<Bits, MaskSink<Bits>>(task_of<Bits>(request, operand), sink, 0, stream).run();
}

template <class Bits>
std::string sparsify_as(const Request& request, const void* operand, void* dense, Stream stream) {
  const DenseSink<Bits> sink = dense_sink<Bits>(request, dense);
  return Launcher<Bits, DenseSink<Bits>>(task_of<Bits>(request, operand), sink, 0, stream).run();
}

}  // namespace jax_rtopk::cuda
