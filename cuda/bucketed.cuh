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
  unsigned columns;  // of a line of the first stage
  KeyMap<Bits> map;
  SearchPlan plan;  // of the candidates
  bool sorted;
  Global<Bits> values;
  Global<int32_t> indices;
  Global<uint8_t> workspace;
  int64_t workspace_bytes;  // of a row; 0: the candidates lie in shared memory

  RTOPK_DEVICE RowView<Bits> view(int64_t row) const { return {operand.part(row * n, n), unsigned(n), false, map}; }
};

// A block takes rows in turn, each through both stages.
template <class Bits, int kLevels>
__global__ void __launch_bounds__(policy::kBucketBlock, policy::bucket_blocks(kLevels, sizeof(Bits)))
    select_through_buckets(BucketTask<Bits> task) {
  using Team = BlockTeam<policy::kBucketBlock>;
  using Word = WordOf<Bits>;
  constexpr int kSearchBytes = block_maxima_bytes<Team, Word>();
  const int k = task.plan.k;
  const CandidateSpace<Word> space{task.plan.n, k};
  Team team(0);
  for (int64_t row = blockIdx.x; row < task.rows; row += gridDim.x) {
    void* const memory = task.workspace_bytes > 0
                             ? task.workspace.part(row * task.workspace_bytes, task.workspace_bytes).address()
                             : shared_bytes(Team::kScratchBytes + kSearchBytes, size_t(space.bytes()));
    const RowView<Bits> view = task.view(row);
    const Candidates<Word> candidates(space.all(memory), task.buckets, task.kept);
    BucketStream<Bits, Team, kLevels>(view, task.columns, candidates).run(team);
    for (int bucket = team.rank(); bucket < task.buckets; bucket += Team::kThreads)
      candidates.fill_with_least(bucket, view);
    team.sync();
    const Elements<Word> selected = space.chosen(memory);
    select_candidates(space.all(memory), team, task.plan, task.n, task.sorted, Team::kScratchBytes, selected);
    const Global<Bits> values = task.values.part(row * k, k);
    const Global<int32_t> indices = task.indices.part(row * k, k);
    for (int i = team.rank(); i < k; i += Team::kThreads) {
      const Selected<Word> item = selected.load(i);
      values.store(i, view.map.bits(Bits(item.key)));
      indices.store(i, item.index);
    }
    team.sync();  // before the next row is kept where this one was
  }
}

template <class Bits, int kLevels>
std::string launch_through_buckets(const BucketTask<Bits>& task, Stream stream) {
  using Team = BlockTeam<policy::kBucketBlock>;
  using Word = WordOf<Bits>;
  const int64_t held = int64_t(multiprocessors()) * (policy::kThreadsPerMultiprocessor / policy::kBucketBlock);
  const int64_t in_shared = task.workspace_bytes > 0 ? 0 : CandidateSpace<Word>{task.plan.n, task.plan.k}.bytes();
  const int64_t shared = Team::kScratchBytes + block_maxima_bytes<Team, Word>() + in_shared;
  return launch("select_through_buckets", select_through_buckets<Bits, kLevels>,
                unsigned(std::clamp<int64_t>(held, 1, task.rows)), policy::kBucketBlock, size_t(shared), stream, task);
}

// Hands over to the kernel with queues of the fewest levels that suffice.
template <class Bits>
std::string bucketed_as(const Request& request, const Buckets& buckets, const void* operand, void* values,
                        int32_t* indices, void* workspace, int64_t workspace_bytes, Stream stream) {
  const auto n = int(request.n), k = int(request.k), kept = int(buckets.kept), candidates = int(buckets.candidates());
  int levels = policy::bucket_levels(kept);
  const unsigned columns = levels == 0 ? 0 : policy::bucket_line(n, int(buckets.count), levels, sizeof(Bits));
  if (columns == 0) levels = 0;
  const BucketTask<Bits> task{
      Global<const Bits>(static_cast<const Bits*>(operand), request.rows * request.n),
      request.rows,
      n,
      int(buckets.count),
      kept,
      columns,
      KeyMap<Bits>::make(request.kind, !request.largest, false),
      SearchPlan::make(candidates, k, 16),  // as if of elements so wide that each is a pack
      request.sorted,
      Global<Bits>(static_cast<Bits*>(values), request.rows * k),
      Global<int32_t>(indices, request.rows * k),
      Global<uint8_t>(static_cast<uint8_t*>(workspace), request.rows * workspace_bytes),
      workspace_bytes,
  };
  switch (levels) {
    case 1:
      return launch_through_buckets<Bits, 1>(task, stream);
    case 2:
      return launch_through_buckets<Bits, 2>(task, stream);
    case 4:
      return launch_through_buckets<Bits, 4>(task, stream);
    case 8:
      return launch_through_buckets<Bits, 8>(task, stream);
    case 16:
      return launch_through_buckets<Bits, 16>(task, stream);
    default:
      return launch_through_buckets<Bits, 0>(task, stream);
  }
}

}  // namespace jax_rtopk::cuda
