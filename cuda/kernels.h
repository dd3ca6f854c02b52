// The CUDA kernels, free of XLA. Operands and results are dense device memory, row after row; `rows`, `n` and `k` are
// at least 1. Each function returns "" or what went wrong.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/stream.h"
#include "native/buckets.h"
#include "native/request.h"

namespace jax_rtopk::cuda {

// The k selected elements of each row (values[rows, k], indices[rows, k]).
std::string topk(const Request& request, const void* operand, void* values, int32_t* indices, Stream stream);

// The same, exactly, by way of `parts` parts of each row, of at least k elements each (cuda/parts.h). `workspace`:
// memory for this call alone, PartsWorkspace::make(rows, parts, k, item_bytes).bytes of it.
std::string topk_in_parts(const Request& request, int64_t parts, const void* operand, void* values, int32_t* indices,
                          void* workspace, Stream stream);

// The k selected elements of each row of those that its buckets keep. `workspace`: memory for this call alone,
// `workspace_bytes` of it for each row, which are workspace_bytes(...) of cuda/workspace.h or more; or none where that
// is 0.
std::string bucketed(const Request& request, const Buckets& buckets, const void* operand, void* values,
                     int32_t* indices, void* workspace, int64_t workspace_bytes, Stream stream);

// 1 at the k selected elements of each row, 0 elsewhere (mask[rows, n]).
std::string mask(const Request& request, const void* operand, uint8_t* mask, Stream stream);

// The k selected elements of each row at their places, zeros elsewhere (dense[rows, n]).
std::string sparsify(const Request& request, const void* operand, void* dense, Stream stream);

// The same three, exactly, of few long rows by many blocks each (cuda/digits.h). `workspace`: memory for this call
// alone, DigitsWorkspace::make(rows, item_bytes).bytes of it.
std::string topk_by_digits(const Request& request, const void* operand, void* values, int32_t* indices, void* workspace,
                           Stream stream);
std::string mask_by_digits(const Request& request, const void* operand, uint8_t* mask, void* workspace, Stream stream);
std::string sparsify_by_digits(const Request& request, const void* operand, void* dense, void* workspace,
                               Stream stream);

// Zeros.
std::string clear(void* data, size_t bytes, Stream stream);

}  // namespace jax_rtopk::cuda
