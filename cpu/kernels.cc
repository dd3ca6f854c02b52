// Chooses the instruction set and spreads rows over threads.
#include "cpu/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cpu/kernels_isa.h"

namespace jax_rtopk {
namespace {

// The best instruction set of this machine that is no better than the one that JAX_RTOPK_SIMD names, which is read
// once.
const IsaKernels& choose() {
#if defined(__x86_64__)
  const char* const wanted = std::getenv("JAX_RTOPK_SIMD");
  const auto is_wanted = [wanted](const char* name) { return wanted != nullptr && std::strcmp(wanted, name) == 0; };
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool at_most_baseline = is_wanted("baseline"), at_most_avx2 = at_most_baseline || is_wanted("avx2");
  if (has_avx512 && !at_most_avx2) return avx512::kernels();
  if (has_avx2 && !at_most_baseline) return avx2::kernels();
#endif
  return baseline::kernels();
}

const IsaKernels& isa() {
  static const IsaKernels& chosen = choose();
  return chosen;
}

int width_index(int item_bytes) { return item_bytes == 1 ? 0 : item_bytes == 2 ? 1 : item_bytes == 4 ? 2 : 3; }

Job job_of(const Request& request, const void* operand) {
  Job job{request, {}, {}, operand};
  const auto n = int32_t(request.n), k = int32_t(request.k);
  if (request.max_iter > 0 || request.k > kMaxRankedK) {
    job.plan = SearchPlan::make(n, k, request.item_bytes);
  } else {
    job.block_plan = SearchPlan::make(int32_t(std::min(request.n, kFirstBlock)), k, request.item_bytes);
  }
  return job;
}

// Calls rows(begin, end) on ranges of rows, each long enough to be worth a task.
template <class F>
void for_rows(const Request& request, Parallel& parallel, F rows) {
  constexpr int64_t kTaskElements = 1 << 16;
  const int64_t length = std::max<int64_t>(1, kTaskElements / request.n);
  const int64_t tasks = (request.rows + length - 1) / length;
  parallel.run(tasks, [&](int64_t task) { rows(task * length, std::min(request.rows, (task + 1) * length)); });
}

// Too few rows to keep the threads busy: each row is cut into segments, whose top-k are the candidates for the row's.
bool worth_splitting(const Request& request, const Parallel& parallel) {
  constexpr int64_t kLongRow = 1 << 18;
  return request.max_iter == 0 && request.k <= kMaxRankedK && request.n >= kLongRow &&
         request.rows < parallel.threads();
}

void topk_split(const Request& request, const void* operand, void* values, int32_t* indices, Parallel& parallel) {
  constexpr int64_t kShortestSegment = 1 << 14;
  const int64_t segments = std::min(4 * parallel.threads(), request.n / kShortestSegment);
  const auto segment_begin = [&](int64_t segment) { return segment * request.n / segments; };
  const int64_t k = request.k, bytes = request.item_bytes;
  const auto row_topk = isa().topk[width_index(request.item_bytes)];

  Request part = request;
  part.rows = 1;
  part.sorted = false;  // by ascending index: so are the candidates of all segments together, and ties go to the lowest
  Request merge = request;
  merge.rows = 1;
  merge.n = segments * k;
  std::vector<char> candidates(size_t(merge.n * bytes));
  std::vector<int32_t> places(static_cast<size_t>(merge.n));
  for (int64_t row = 0; row < request.rows; ++row) {
    const char* const bits = static_cast<const char*>(operand) + row * request.n * bytes;
    parallel.run(segments, [&](int64_t segment) {
      Request own = part;
      own.n = segment_begin(segment + 1) - segment_begin(segment);
      row_topk(job_of(own, bits + segment_begin(segment) * bytes), candidates.data() + segment * k * bytes,
               places.data() + segment * k, 0, 1);
    });
    int32_t* const selected = indices + row * k;
    row_topk(job_of(merge, candidates.data()), static_cast<char*>(values) + row * k * bytes, selected, 0, 1);
    for (int64_t i = 0; i < k; ++i) {
      selected[i] = int32_t(segment_begin(selected[i] / k)) + places[size_t(selected[i])];
    }
  }
}

}  // namespace

void topk(const Request& request, const void* operand, void* values, int32_t* indices, Parallel& parallel) {
  if (worth_splitting(request, parallel)) return topk_split(request, operand, values, indices, parallel);
  const Job job = job_of(request, operand);
  for_rows(request, parallel, [&](int64_t begin, int64_t end) {
    isa().topk[width_index(request.item_bytes)](job, values, indices, begin, end);
  });
}

void mask(const Request& request, const void* operand, uint8_t* mask, Parallel& parallel) {
  const Job job = job_of(request, operand);
  for_rows(request, parallel,
           [&](int64_t begin, int64_t end) { isa().mask[width_index(request.item_bytes)](job, mask, begin, end); });
}

void sparsify(const Request& request, const void* operand, void* dense, Parallel& parallel) {
  const Job job = job_of(request, operand);
  for_rows(request, parallel, [&](int64_t begin, int64_t end) {
    isa().sparsify[width_index(request.item_bytes)](job, dense, begin, end);
  });
}

const char* simd_level() { return isa().name; }

}  // namespace jax_rtopk
