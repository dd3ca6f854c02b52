// The sparse CUDA kernels, free of XLA. Nothing is empty. Each function returns "" or what went wrong.
#pragma once

#include <string>

#include "cuda/stream.h"
#include "native/sparse.h"

namespace jax_rtopk::cuda {

std::string gather_sum(const Product& product, void* rows, Stream stream);
std::string sampled_dot(const Product& product, void* values, Stream stream);

// `order` lists the entries by their index, those of one index in ascending order, and `starts` where those of each
// index begin: order[count * k], starts[n + 1]. So each element of the result is added up by one thread, in order;
// atomic additions would give other bits each time, and could not add up 16-bit floats in float.
std::string scatter_add(const Product& product, const int32_t* order, const int32_t* starts, void* weight,
                        Stream stream);

std::string neighbor_sum(const Neighbors& graph, void* dense, Stream stream);
std::string neighbor_dot(const Neighbors& graph, void* values, Stream stream);
std::string edge_dot(const Neighbors& graph, void* weights, Stream stream);

}  // namespace jax_rtopk::cuda
