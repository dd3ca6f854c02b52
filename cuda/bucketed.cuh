// The kernel for bucketed top-k, and the choice of one for a launch.
#pragma once

#include <algorithm>
#include <string>

#include "cuda/launch.h"
#include "cuda/policy.h"
#include "cuda/select_candidates.cuh"
#include "cuda/stream_buckets.cuh"
#include "native/buckets.h"
#include "native/request.h"

namespace jax_rtopk::cuda {

template <class Bits>
struct BucketTask {
  Global<const Bits> operand;
  int64_t rows;
  int n;
  int buckets, kept;
  unsigned columns;  // of a line of the first stage; chosen with the kernel
  KeyMap<Bits> map;
  bool floats;
  bool signed_lanes;  // whether their order is that of the elements that may be selected
  SearchPlan plan;    // of the candidates
  bool sorted;
  Global<Bits> values;
  Global<int32_t> indices;
  Global<uint8_t> workspace;
  int64_t workspace_bytes;  // of a row; 0: the candidates lie in shared memory

  RTOPK_DEVICE RowView<Bits> view(int64_t row) const { return {operand.part(row * n, n), unsigned(n), false, map}; }
};

// The first stage of a row. `by_signed_lanes`: whether these are to be tried; becomes false where they didn't suffice,
// so that the block spares itself the attempt for its next rows, which are probably alike.
template <int kLevels, class Bits, class Team>
RTOPK_DEVICE void keep_candidates(const BucketTask<Bits>& task, const RowView<Bits>& row, Team& team,
                                  const Candidates<WordOf<Bits> >& candidates, bool& by_signed_lanes) {
  using Stream = BucketStream<Bits, Team, kLevels>;
  const Stream stream(row, task.columns, candidates);
  if (Stream::kHasSigned && by_signed_lanes) {
    if constexpr (Stream::kHasSigned) stream.template run<true>(team, task.floats);
    if (task.floats) {
      unsigned held = 0;
      for (unsigned bucket = unsigned(team.rank()); bucket < unsigned(task.buckets); bucket += Team::kThreads)
        held += unsigned(candidates.held(bucket));
      by_signed_lanes = int(team.sum(held)) >= task.plan.k;
      if (by_signed_lanes) return;
    }
  }
  if (!Stream::kHasSigned || !by_signed_lanes) stream.template run<false>(team, task.floats);
  for (unsigned bucket = unsigned(team.rank()); bucket < unsigned(task.buckets); bucket += Team::kThreads)
    candidates.fill_with_least(bucket, row);
  team.sync();
}

// A block takes rows in turn, each through both stages.
template <class Bits, int kThreads, int kLevels>
__global__ void __launch_bounds__(kThreads, policy::bucket_blocks(kThreads, kLevels, sizeof(Bits)))
    select_through_buckets(BucketTask<Bits> task) {
  using Team = BlockTeam<kThreads>;
  using Word = WordOf<Bits>;
  constexpr int kSearchBytes = block_maxima_bytes<Team, Word>();
  const int k = task.plan.k;
  const int count = task.plan.n;
  const int64_t bytes = candidate_bytes(count, k, sizeof(Word));
  Team team(0);
  bool by_signed_lanes = task.signed_lanes;
  for (int64_t row = blockIdx.x; row < task.rows; row += gridDim.x) {
    void* const memory = task.workspace_bytes > 0
                             ? task.workspace.part(row * task.workspace_bytes, task.workspace_bytes).address()
                             : shared_bytes(Team::kScratchBytes + kSearchBytes, size_t(bytes));
    const Elements<Word> elements(static_cast<Selected<Word>*>(memory), int64_t(count) + k);
    const Elements<Word> kept = elements.part(0, count), selected = elements.part(count, k);
    const RowView<Bits> view = task.view(row);
    const Candidates<Word> candidates(kept, task.buckets, task.kept);
    keep_candidates<kLevels>(task, view, team, candidates, by_signed_lanes);
    select_candidates(kept, team, task.plan, task.n, task.sorted, Team::kScratchBytes, selected);
    const Global<Bits> values = task.values.part(row * k, k);
    const Global<int32_t> indices = task.indices.part(row * k, k);
    for (unsigned i = unsigned(team.rank()); i < unsigned(k); i += Team::kThreads) {
      const Selected<Word> item = selected.load(i);
      values.store(i, view.map.bits(Bits(item.key)));
      indices.store(i, item.index);
    }
    team.sync();  // before the next row is kept where this one was
  }
}

template <class Bits, int kThreads, int kLevels>
std::string launch_through_buckets(BucketTask<Bits> task, Stream stream) {
  using Team = BlockTeam<kThreads>;
  using Word = WordOf<Bits>;
  if constexpr (kLevels > 0) {
    task.columns = policy::bucket_line(task.n, task.buckets, kLevels, sizeof(Bits), kThreads);
    if (task.columns == 0) return launch_through_buckets<Bits, policy::kSmallBucketBlock, 0>(task, stream);
  }
  const int64_t most = int64_t(multiprocessors()) * policy::kBucketBlocks;
  const int64_t in_shared = task.workspace_bytes > 0 ? 0 : candidate_bytes(task.plan.n, task.plan.k, sizeof(Bits));
  const int64_t shared = Team::kScratchBytes + block_maxima_bytes<Team, Word>() + in_shared;
  return launch("select_through_buckets", select_through_buckets<Bits, kThreads, kLevels>,
                unsigned(std::clamp<int64_t>(most, 1, task.rows)), kThreads, size_t(shared), stream, task);
}

// Hands over to the kernel for queues of the fewest levels that suffice.
template <class Bits>
std::string launch_with_queues(const BucketTask<Bits>& task, Stream stream) {
  constexpr int kSmall = policy::kSmallBucketBlock, kLarge = policy::kLargeBucketBlock;
  const bool large = policy::in_large_bucket_blocks(task.rows, multiprocessors());
  switch (policy::bucket_levels(task.kept)) {
    case 1:
      return large ? launch_through_buckets<Bits, kLarge, 1>(task, stream)
                   : launch_through_buckets<Bits, kSmall, 1>(task, stream);
    case 2:
      return large ? launch_through_buckets<Bits, kLarge, 2>(task, stream)
                   : launch_through_buckets<Bits, kSmall, 2>(task, stream);
    case 4:
      return large ? launch_through_buckets<Bits, kLarge, 4>(task, stream)
                   : launch_through_buckets<Bits, kSmall, 4>(task, stream);
    case 8:
      return launch_through_buckets<Bits, kSmall, 8>(task, stream);
    case 16:
      return launch_through_buckets<Bits, kSmall, 16>(task, stream);
    default:
      return launch_through_buckets<Bits, kSmall, 0>(task, stream);
  }
}

template <class Bits>
std::string bucketed_as(const Request& request, const Buckets& buckets, const void* operand, void* values,
                        int32_t* indices, void* workspace, int64_t workspace_bytes, Stream stream) {
  const auto k = int(request.k);
  const BucketTask<Bits> task{
      Global<const Bits>(static_cast<const Bits*>(operand), request.rows * request.n),
      request.rows,
      int(request.n),
      int(buckets.count),
      int(buckets.kept),
      0,
      KeyMap<Bits>::make(request.kind, !request.largest, false),
      request.kind == Kind::kFloat,
      request.largest && request.kind != Kind::kUnsigned,
      SearchPlan::make(int(buckets.candidates()), k, 16),  // as if of elements so wide that each is a pack
      request.sorted,
      Global<Bits>(static_cast<Bits*>(values), request.rows * k),
      Global<int32_t>(indices, request.rows * k),
      Global<uint8_t>(static_cast<uint8_t*>(workspace), request.rows * workspace_bytes),
      workspace_bytes,
  };
  return launch_with_queues(task, stream);
}

}  // namespace jax_rtopk::cuda
