// The sparse operations, as every back end's kernels take them: matrices of k entries a row, with their indices.
#pragma once

#include <cstdint>

namespace jax_rtopk {

enum class Float { kF16, kBF16, kF32, kF64 };

// The factors of sum over r, t of values[r, t] * <rows[r], weight[indices[r, t]]>. An operation makes one of them from
// the two others; its own pointer is null. Entries whose index is not in [0, n) take no part.
struct Product {
  Float type;
  int64_t count, k, n, d;  // count: how many rows
  const void* values;      // [count, k]
  const void* rows;        // [count, d]
  const void* weight;      // [n, d]
  const int32_t* indices;  // [count, k]

  bool empty() const { return count == 0 || k == 0 || n == 0 || d == 0; }
};

// The factors of sum over edges e from j to i, and t, of weights[e] * values[j, t] * dense[i, indices[j, t]], likewise.
// Edges whose nodes are not there take no part.
struct Neighbors {
  Float type;
  int64_t targets, sources, edges, k, n;
  const void* weights;     // [edges]
  const void* values;      // [sources, k]
  const void* dense;       // [targets, n]
  const int32_t* indices;  // [sources, k]
  // The edges into each target, and the edges out of each source with their numbers among the former.
  const int32_t* indptr;         // [targets + 1]
  const int32_t* neighbors;      // [edges]
  const int32_t* out_indptr;     // [sources + 1]
  const int32_t* out_neighbors;  // [edges]
  const int32_t* out_edges;      // [edges]

  bool empty() const { return targets == 0 || sources == 0 || edges == 0 || k == 0 || n == 0; }
};

// How many partial sums an inner product is added up in: element c goes to partial sum c mod kPartialSums, in order;
// then the upper half is added to the lower one, until one is left.
inline constexpr int kPartialSums = 32;

}  // namespace jax_rtopk
