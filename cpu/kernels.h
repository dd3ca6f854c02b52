// The CPU kernels, free of XLA. Operands and results are dense, row after row; `rows` and `k` are at least 1.
#pragma once

#include <cstdint>

#include "cpu/parallel.h"
#include "native/buckets.h"
#include "native/request.h"

namespace jax_rtopk {

// The k selected elements of each row (values[rows, k], indices[rows, k]).
void topk(const Request& request, const void* operand, void* values, int32_t* indices, Parallel& parallel);

// The k first of what the buckets of each row keep (values[rows, k], indices[rows, k]).
void bucketed(const Request& request, const Buckets& buckets, const void* operand, void* values, int32_t* indices,
              Parallel& parallel);

// 1 at the k selected elements of each row, 0 elsewhere (mask[rows, n]).
void mask(const Request& request, const void* operand, uint8_t* mask, Parallel& parallel);

// The k selected elements of each row at their places, zeros elsewhere (dense[rows, n]).
void sparsify(const Request& request, const void* operand, void* dense, Parallel& parallel);

// The instruction set that the kernels use on this machine.
const char* simd_level();

}  // namespace jax_rtopk
