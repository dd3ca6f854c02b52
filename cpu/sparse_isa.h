// What one instruction set offers for sparse operations: kernels over parts of the result, for each Float.
// sparse_isa.cc is compiled once for each.
#pragma once

#include <cstdint>

#include "native/sparse.h"

namespace jax_rtopk {

// [begin, end)
struct Range {
  int64_t begin, end;
};

struct SparseKernels {
  // Some rows, and some columns of them.
  void (*gather_sum[4])(const Product& product, void* rows, Range which, Range columns);
  // Some rows.
  void (*sampled_dot[4])(const Product& product, void* values, Range which);
  // Some rows of the weight, and some columns of them, from all entries. Allocates one float for each element.
  void (*scatter_add[4])(const Product& product, void* weight, Range which, Range columns);

  // Some targets, some sources, some edges.
  void (*neighbor_sum[4])(const Neighbors& graph, void* dense, Range targets);
  void (*neighbor_dot[4])(const Neighbors& graph, void* values, Range sources);
  void (*edge_dot[4])(const Neighbors& graph, void* weights, Range edges);
};

// As in kernels_isa.h.
namespace baseline {
const SparseKernels& sparse_kernels();
}
namespace avx2 {
const SparseKernels& sparse_kernels();
}
namespace avx512 {
const SparseKernels& sparse_kernels();
}
namespace neon {
const SparseKernels& sparse_kernels();
}

}  // namespace jax_rtopk
