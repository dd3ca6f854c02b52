// What one instruction set offers: kernels over a range of rows, for each width of item. kernels_isa.cc is compiled
// once for each.
#pragma once

#include <cstdint>

#include "cpu/sparse_isa.h"
#include "native/buckets.h"
#include "native/request.h"
#include "native/search_plan.h"

namespace jax_rtopk {

struct Job {
  Request request;
  SearchPlan plan;  // of the row; if few_survive(), of its first block
  const void* operand;
};

struct BucketedJob {
  Request request;
  Buckets buckets;
  SearchPlan plan;  // as of a Job whose rows are the candidates
  const void* operand;
};

struct IsaKernels {
  const char* name;
  // By log2 of the item's bytes. Rows [begin, end). The values of topk are no good by magnitude: they lack the sign.
  void (*topk[4])(const Job& job, void* values, int32_t* indices, int64_t begin, int64_t end);
  void (*mask[4])(const Job& job, uint8_t* mask, int64_t begin, int64_t end);
  void (*sparsify[4])(const Job& job, void* dense, int64_t begin, int64_t end);
  void (*bucketed[4])(const BucketedJob& job, void* values, int32_t* indices, int64_t begin, int64_t end);
  // The same in two steps, for one row: what `columns` of its buckets keep, from `first` on, goes to its place among
  // the row's candidates, words of 4 bytes or of 8 for items of 8; then the top-k of all candidates is written.
  void (*keep[4])(const BucketedJob& job, int64_t row, int32_t first, int32_t columns, void* lanes, int32_t* index);
  void (*select_kept[4])(const BucketedJob& job, int64_t row, const void* lanes, const int32_t* index, void* values,
                         int32_t* indices);
  const SparseKernels& (*sparse)();
};

// The best one that this machine has.
const IsaKernels& isa();

// Those that cmake/Cpu.cmake builds for this architecture are there.
namespace baseline {
const IsaKernels& kernels();
}
namespace avx2 {
const IsaKernels& kernels();
}
namespace avx512 {
const IsaKernels& kernels();
}
namespace neon {
const IsaKernels& kernels();
}

}  // namespace jax_rtopk
