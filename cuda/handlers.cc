// FFI handlers for CUDA: decode the call, then hand plain pointers and XLA's stream to the kernels.
#include "ffi/handlers.h"

#include "cuda/kernels.h"
#include "cuda/workspace.h"
#include "cuda/xla_context.h"
#include "ffi/bind.h"
#include "ffi/decode.h"

namespace jax_rtopk {
namespace {

using cuda::Stream;

ffi::Error run_topk(Stream stream, ffi::AnyBuffer operand, AnyResult values, AnyResult indices, int64_t k, bool largest,
                    bool sorted, int64_t max_iter) {
  const Decoded decoded = decode_topk(operand, *values, *indices, k, largest, sorted, max_iter);
  const Request& request = decoded.request;
  if (decoded.error.failure() || request.rows == 0 || request.k == 0) return decoded.error;
  return error_of(cuda::topk(request, operand.untyped_data(), values->untyped_data(),
                             static_cast<int32_t*>(indices->untyped_data()), stream));
}

ffi::Error run_bucketed(Stream stream, ffi::AnyBuffer operand, AnyResult values, AnyResult indices, AnyResult workspace,
                        int64_t k, int64_t num_buckets, int64_t bucket_k, bool largest, bool sorted) {
  const Buckets buckets{num_buckets, bucket_k};
  const Decoded decoded = decode_bucketed(operand, *values, *indices, k, buckets, largest, sorted);
  const Request& request = decoded.request;
  if (decoded.error.failure()) return decoded.error;
  const int64_t needed = cuda::workspace_bytes(buckets.candidates(), k, request.item_bytes);
  const ffi::Error error = check_workspace(operand, *workspace, needed, cuda::candidate_bytes(request.item_bytes));
  if (error.failure() || request.rows == 0 || request.k == 0) return error;
  return error_of(cuda::bucketed(request, buckets, operand.untyped_data(), values->untyped_data(),
                                 static_cast<int32_t*>(indices->untyped_data()), workspace->untyped_data(),
                                 needed == 0 ? 0 : workspace->dimensions().back(), stream));
}

ffi::Error run_mask(Stream stream, ffi::AnyBuffer operand, AnyResult result, int64_t k, bool largest, bool by_magnitude,
                    int64_t max_iter) {
  const Decoded decoded = decode_mask(operand, *result, k, largest, by_magnitude, max_iter);
  const Request& request = decoded.request;
  if (decoded.error.failure() || request.rows == 0 || request.n == 0) return decoded.error;
  if (request.k == 0) return error_of(cuda::clear(result->untyped_data(), result->size_bytes(), stream));
  return error_of(cuda::mask(request, operand.untyped_data(), static_cast<uint8_t*>(result->untyped_data()), stream));
}

ffi::Error run_sparsify(Stream stream, ffi::AnyBuffer operand, AnyResult dense, int64_t k, bool by_magnitude,
                        int64_t max_iter) {
  const Decoded decoded = decode_sparsify(operand, *dense, k, by_magnitude, max_iter);
  const Request& request = decoded.request;
  if (decoded.error.failure() || request.rows == 0 || request.n == 0) return decoded.error;
  if (request.k == 0) return error_of(cuda::clear(dense->untyped_data(), dense->size_bytes(), stream));
  return error_of(cuda::sparsify(request, operand.untyped_data(), dense->untyped_data(), stream));
}

XLA_FFI_DEFINE_HANDLER(topk_handler, run_topk, bind_topk(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(bucketed_handler, run_bucketed, bind_bucketed_with_workspace(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(mask_handler, run_mask, bind_mask(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(sparsify_handler, run_sparsify, bind_sparsify(context()), kTraits);

}  // namespace

Handlers handlers() { return {topk_handler, bucketed_handler, mask_handler, sparsify_handler, sparse_handlers()}; }

}  // namespace jax_rtopk
