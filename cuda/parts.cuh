// Long rows in parts (parts.h): three launches, one after another.
#pragma once

#include "cuda/kernels.cuh"
#include "cuda/parts.h"

namespace jax_rtopk::cuda {

template <class Bits>
struct PartsTask {
  Global<const Bits> operand;
  int64_t rows;
  Parts parts;
  SearchPlan plan;  // for the longest
  bool packed;      // all rows start on sixteen bytes
  bool plain;       // floats, the largest first
  KeyMap<Bits> map;

  // Parts count on from row to row.
  RTOPK_DEVICE RowView<Bits> view(int64_t part) const {
    const int64_t row = part / parts.count, of_row = part - row * parts.count;
    const int64_t begin = parts.begin(of_row), n = parts.begin(of_row + 1) - begin;
    const bool ends_on_pack = n % RowView<Bits>::kPack == 0;
    return {operand.part(row * parts.n + begin, n), unsigned(n), packed && ends_on_pack, map, plain};
  }
};

// A block a part, in its registers; what is selected lies by index.
template <class Bits, int kThreads, class Row, class Sink>
__global__ void __launch_bounds__(kThreads, 1) select_part_in_block(PartsTask<Bits> task, Sink sink) {
  using Team = BlockTeam<kThreads>;
  Team team(0);
  const FirstPivots first_pivots(task.plan);
  SearchPlan plan = task.plan;
  for (int64_t part = blockIdx.x; part < task.rows * task.parts.count; part += gridDim.x) {
    const RowView<Bits> view = task.view(part);
    plan.n = int32_t(view.n);
    const Row held(view, team);
    typename Sink::template OfRow<Team> results(sink, part, view, Team::kScratchBytes, true);
    select_row(held, team, plan, first_pivots, INT_MAX, Team::kScratchBytes, results);
    results.finish(team);
  }
}

// Indices among what the parts of a row have selected, turned into those of the row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    find_in_parts(Parts parts, int64_t k, Global<const int32_t> selected, Global<int32_t> indices, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const int64_t place = indices.load(i), row = i / k;
    const int64_t part = place / k;
    indices.store(i, int32_t(parts.begin(part)) + selected.load(row * parts.count * k + place));
  }
}

template <class Bits, int kThreads, int kKeys>
std::string select_parts(const PartsTask<Bits>& task, const PairSink<Bits>& sink, Stream stream) {
  using Team = BlockTeam<kThreads>;
  using Row = RegisterRow<Bits, Team, kKeys / RowView<Bits>::kPack>;
  const int shared = Team::kScratchBytes + block_maxima_bytes<Team, WordOf<Bits>>();
  return launch("select_part_in_block", select_part_in_block<Bits, kThreads, Row, PairSink<Bits>>,
                blocks_for(task.rows * task.parts.count, 1, kThreads), kThreads, size_t(shared), stream, task, sink);
}

template <class Bits>
std::string topk_in_parts_as(const Request& request, int64_t count, const void* operand, void* values, int32_t* indices,
                             void* workspace, Stream stream) {
  constexpr int kPack = RowView<Bits>::kPack;
  const Parts parts{request.n, count, kPack};
  const auto space = PartsWorkspace::make(request.rows, count, request.k, sizeof(Bits));
  const int64_t selected = request.rows * count * request.k;
  auto* const part_values = static_cast<Bits*>(workspace);
  auto* const part_indices = reinterpret_cast<int32_t*>(static_cast<char*>(workspace) + space.indices_at);
  const auto* const data = static_cast<const Bits*>(operand);

  const PartsTask<Bits> task{Global<const Bits>(data, request.rows * request.n),
                             request.rows,
                             parts,
                             SearchPlan::make(int(parts.longest()), int(request.k), sizeof(Bits)),
                             starts_on(data, 16) && (request.rows == 1 || request.n % kPack == 0),
                             request.kind == Kind::kFloat && request.largest,
                             KeyMap<Bits>::make(request.kind, !request.largest, false)};
  const PairSink<Bits> sink{Global<Bits>(part_values, selected), Global<int32_t>(part_indices, selected),
                            int(request.k), 0, false};
  constexpr int kSmall = policy::kSmallBlock * policy::kSmallKeys;
  const std::string error =
      parts.longest() <= kSmall
          ? select_parts<Bits, policy::kSmallBlock, policy::kSmallKeys>(task, sink, stream)
          : select_parts<Bits, policy::kLargeBlock, policy::large_keys(sizeof(Bits))>(task, sink, stream);
  if (!error.empty()) return error;

  // They lie by index, so the first of equal ones has the lowest.
  Request of_selected = request;
  of_selected.n = count * request.k;
  if (const std::string error = topk_as<Bits>(of_selected, part_values, values, indices, stream); !error.empty())
    return error;

  constexpr int kThreads = policy::kWarpsPerBlock * kWarp;
  const int64_t results = request.rows * request.k;
  return launch("find_in_parts", find_in_parts<kThreads>, blocks_for(results, kThreads, kThreads), kThreads, 0, stream,
                parts, request.k, Global<const int32_t>(part_indices, selected), Global<int32_t>(indices, results),
                results);
}

}  // namespace jax_rtopk::cuda
