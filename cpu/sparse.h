// The sparse CPU kernels, free of XLA. Operands and results are dense, row after row, and none is empty.
#pragma once

#include <cstdint>

#include "cpu/parallel.h"
#include "native/sparse.h"

namespace jax_rtopk {

void gather_sum(const Product& product, void* rows, Parallel& parallel);
void sampled_dot(const Product& product, void* values, Parallel& parallel);
void scatter_add(const Product& product, void* weight, Parallel& parallel);

void neighbor_sum(const Neighbors& graph, void* dense, Parallel& parallel);
void neighbor_dot(const Neighbors& graph, void* values, Parallel& parallel);
void edge_dot(const Neighbors& graph, void* weights, Parallel& parallel);

}  // namespace jax_rtopk
