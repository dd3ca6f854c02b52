// Chooses the instruction set and spreads rows over threads.
#include "cpu/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/kernels_isa.h"
#include "cpu/long_rows.h"
#include "cpu/policy.h"

namespace jax_rtopk {
namespace {

struct InstructionSet {
  const char* name;
  bool is_here;
  const IsaKernels& (*kernels)();
};

// Those of this architecture, from what every machine has to what is best.
std::vector<InstructionSet> instruction_sets() {
#if defined(__x86_64__)
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return {{"baseline", true, baseline::kernels},
          {"avx2", has_avx2, avx2::kernels},
          {"avx512", has_avx512, avx512::kernels}};
#elif defined(__aarch64__)
  return {{"neon", true, neon::kernels}};
#else
  return {{"baseline", true, baseline::kernels}};
#endif
}

// The best instruction set of this machine that is no better than the one that JAX_RTOPK_SIMD names, which is read
// once.
const IsaKernels& choose() {
  const char* const wanted = std::getenv("JAX_RTOPK_SIMD");
  const bool any = wanted == nullptr || *wanted == '\0';
  const IsaKernels* best = nullptr;
  bool is_known = any;
  std::string names;
  for (const InstructionSet& set : instruction_sets()) {
    if (set.is_here && (any || !is_known)) best = &set.kernels();
    is_known = is_known || std::strcmp(wanted, set.name) == 0;
    names += (names.empty() ? "" : ", ") + std::string(set.name);
  }
  if (is_known) return *best;
  throw std::invalid_argument("jax_rtopk: JAX_RTOPK_SIMD must name an instruction set of this architecture (" + names +
                              "), got \"" + wanted + "\". Unset it for the best that this machine has.");
}

int width_index(int item_bytes) { return item_bytes == 1 ? 0 : item_bytes == 2 ? 1 : item_bytes == 4 ? 2 : 3; }

// For rows of n elements.
SearchPlan plan_of(const Request& request, int64_t n, int item_bytes) {
  const int64_t planned = few_survive(request, n) ? first_block(n, request.k) : n;
  return SearchPlan::make(int32_t(planned), int32_t(request.k), item_bytes);
}

Job job_of(const Request& request, const void* operand) {
  return {request, plan_of(request, request.n, request.item_bytes), operand};
}

// Calls rows(begin, end) on ranges of rows, each long enough to be worth a task.
template <class F>
void for_rows(const Request& request, Parallel& parallel, F rows) {
  constexpr int64_t kTaskElements = 1 << 16;
  const int64_t length = std::max<int64_t>(1, kTaskElements / request.n);
  const int64_t tasks = (request.rows + length - 1) / length;
  parallel.run(tasks, [&](int64_t task) { rows(task * length, std::min(request.rows, (task + 1) * length)); });
}

void topk_here(const Request& request, const void* operand, void* values, int32_t* indices) {
  isa().topk[width_index(request.item_bytes)](job_of(request, operand), values, indices, 0, request.rows);
}

// Calls take(row, item of the operand, its index) for all that is selected from long rows.
template <class Take>
void for_selected(const Request& request, const void* operand, Parallel& parallel, Take take) {
  LongRows rows(request, operand, parallel, topk_here);
  std::vector<int32_t> indices(size_t(request.k));
  for (int64_t row = 0; row < request.rows; ++row) {
    rows.select(row, indices.data());
    for (const int32_t index : indices) take(row, rows.item(row, index), index);
  }
}

// Into how many parts, of buckets, each row is cut for the threads to share: 1 where there are rows enough for them.
int64_t shares_of_buckets(const Request& request, const Buckets& buckets, const Parallel& parallel) {
  constexpr int64_t kFewestBuckets = 64;  // for which it is worth it
  if (!long_and_few(request, parallel)) return 1;
  return std::clamp<int64_t>(buckets.count / kFewestBuckets, 1, parallel.threads());
}

}  // namespace

const IsaKernels& isa() {
  static const IsaKernels& chosen = choose();
  return chosen;
}

void topk(const Request& request, const void* operand, void* values, int32_t* indices, Parallel& parallel) {
  if (worth_splitting(request, parallel)) {
    char* value = static_cast<char*>(values);
    for_selected(request, operand, parallel, [&](int64_t, const char* item, int32_t index) {
      std::memcpy(value, item, size_t(request.item_bytes));
      value += request.item_bytes;
      *indices++ = index;
    });
    return;
  }
  const Job job = job_of(request, operand);
  for_rows(request, parallel, [&](int64_t begin, int64_t end) {
    isa().topk[width_index(request.item_bytes)](job, values, indices, begin, end);
  });
}

void bucketed(const Request& request, const Buckets& buckets, const void* operand, void* values, int32_t* indices,
              Parallel& parallel) {
  const int candidate_bytes = std::max(4, request.item_bytes), width = width_index(request.item_bytes);
  const BucketedJob job{request, buckets, plan_of(request, buckets.candidates(), candidate_bytes), operand};
  const int64_t shares = shares_of_buckets(request, buckets, parallel);
  if (shares == 1) {
    for_rows(request, parallel,
             [&](int64_t begin, int64_t end) { isa().bucketed[width](job, values, indices, begin, end); });
    return;
  }
  std::vector<char> lanes(size_t(buckets.candidates() * candidate_bytes));
  std::vector<int32_t> index(size_t(buckets.candidates()));
  for (int64_t row = 0; row < request.rows; ++row) {
    parallel.run(shares, [&](int64_t share) {
      const int64_t first = share * buckets.count / shares, end = (share + 1) * buckets.count / shares;
      isa().keep[width](job, row, int32_t(first), int32_t(end - first), lanes.data(), index.data());
    });
    isa().select_kept[width](job, row, lanes.data(), index.data(), values, indices);
  }
}

void mask(const Request& request, const void* operand, uint8_t* mask, Parallel& parallel) {
  if (worth_splitting(request, parallel)) {
    clear(mask, request.rows * request.n, parallel);
    for_selected(request, operand, parallel,
                 [&](int64_t row, const char*, int32_t index) { mask[row * request.n + index] = 1; });
    return;
  }
  const Job job = job_of(request, operand);
  for_rows(request, parallel,
           [&](int64_t begin, int64_t end) { isa().mask[width_index(request.item_bytes)](job, mask, begin, end); });
}

void sparsify(const Request& request, const void* operand, void* dense, Parallel& parallel) {
  if (worth_splitting(request, parallel)) {
    const int64_t bytes = request.item_bytes;
    clear(dense, request.rows * request.n * bytes, parallel);
    for_selected(request, operand, parallel, [&](int64_t row, const char* item, int32_t index) {
      std::memcpy(static_cast<char*>(dense) + (row * request.n + index) * bytes, item, size_t(bytes));
    });
    return;
  }
  const Job job = job_of(request, operand);
  for_rows(request, parallel, [&](int64_t begin, int64_t end) {
    isa().sparsify[width_index(request.item_bytes)](job, dense, begin, end);
  });
}

const char* simd_level() { return isa().name; }

}  // namespace jax_rtopk
