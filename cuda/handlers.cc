// FFI handlers for CUDA: decode the call, then hand plain pointers and XLA's stream to the kernels.
#include "ffi/handlers.h"

#include "cuda/digits.h"
#include "cuda/kernels.h"
#include "cuda/parts.h"
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

// The error of parts that are too few for a block to hold each, or too many for each to have k elements, or success.
ffi::Error check_parts(const Request& request, int64_t count) {
  const auto invalid = [&](const char* rule) {
    return ffi::Error::InvalidArgument("jax_rtopk: parts must be " + std::string(rule) + ", got " +
                                       std::to_string(count) + " parts of rows of " + std::to_string(request.n));
  };
  const cuda::Parts parts{request.n, count, 16 / request.item_bytes};
  if (count < 1 || count > parts.packs() || parts.shortest() < request.k)
    return invalid("from 1 to so many that each has k elements");
  if (parts.longest() > cuda::policy::longest_part(request.item_bytes))
    return invalid("so many that a block can hold each");
  return ffi::Error::Success();
}

ffi::Error run_topk_in_parts(Stream stream, ffi::AnyBuffer operand, AnyResult values, AnyResult indices,
                             AnyResult workspace, int64_t k, int64_t parts, bool largest, bool sorted) {
  const Decoded decoded = decode_topk(operand, *values, *indices, k, largest, sorted, 0);
  const Request& request = decoded.request;
  if (decoded.error.failure()) return decoded.error;
  if (const ffi::Error error = check_parts(request, parts); error.failure()) return error;
  const int64_t needed = cuda::parts_workspace_bytes(parts, k, request.item_bytes);
  const ffi::Error error = check_workspace(operand, *workspace, needed);
  if (error.failure() || request.rows == 0 || request.k == 0) return error;
  return error_of(cuda::topk_in_parts(request, parts, operand.untyped_data(), values->untyped_data(),
                                      static_cast<int32_t*>(indices->untyped_data()), workspace->untyped_data(),
                                      stream));
}

ffi::Error check_digits_workspace(const ffi::AnyBuffer& operand, const ffi::AnyBuffer& workspace,
                                  const Request& request) {
  return check_workspace(operand, workspace, cuda::digits_workspace_bytes(request.item_bytes));
}

ffi::Error run_topk_by_digits(Stream stream, ffi::AnyBuffer operand, AnyResult values, AnyResult indices,
                              AnyResult workspace, int64_t k, bool largest, bool sorted) {
  const Decoded decoded = decode_topk(operand, *values, *indices, k, largest, sorted, 0);
  const Request& request = decoded.request;
  if (decoded.error.failure()) return decoded.error;
  const ffi::Error error = check_digits_workspace(operand, *workspace, request);
  if (error.failure() || request.rows == 0 || request.k == 0) return error;
  return error_of(cuda::topk_by_digits(request, operand.untyped_data(), values->untyped_data(),
                                       static_cast<int32_t*>(indices->untyped_data()), workspace->untyped_data(),
                                       stream));
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

ffi::Error run_mask_by_digits(Stream stream, ffi::AnyBuffer operand, AnyResult result, AnyResult workspace, int64_t k,
                              bool largest, bool by_magnitude) {
  const Decoded decoded = decode_mask(operand, *result, k, largest, by_magnitude, 0);
  const Request& request = decoded.request;
  if (decoded.error.failure()) return decoded.error;
  const ffi::Error error = check_digits_workspace(operand, *workspace, request);
  if (error.failure() || request.rows == 0 || request.n == 0) return error;
  if (request.k == 0) return error_of(cuda::clear(result->untyped_data(), result->size_bytes(), stream));
  return error_of(cuda::mask_by_digits(request, operand.untyped_data(), static_cast<uint8_t*>(result->untyped_data()),
                                       workspace->untyped_data(), stream));
}

ffi::Error run_sparsify_by_digits(Stream stream, ffi::AnyBuffer operand, AnyResult dense, AnyResult workspace,
                                  int64_t k, bool by_magnitude) {
  const Decoded decoded = decode_sparsify(operand, *dense, k, by_magnitude, 0);
  const Request& request = decoded.request;
  if (decoded.error.failure()) return decoded.error;
  const ffi::Error error = check_digits_workspace(operand, *workspace, request);
  if (error.failure() || request.rows == 0 || request.n == 0) return error;
  if (request.k == 0) return error_of(cuda::clear(dense->untyped_data(), dense->size_bytes(), stream));
  return error_of(cuda::sparsify_by_digits(request, operand.untyped_data(), dense->untyped_data(),
                                           workspace->untyped_data(), stream));
}

XLA_FFI_DEFINE_HANDLER(topk_handler, run_topk, bind_topk(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(topk_in_parts_handler, run_topk_in_parts, bind_topk_in_parts(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(topk_by_digits_handler, run_topk_by_digits, bind_topk_by_digits(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(mask_by_digits_handler, run_mask_by_digits, bind_mask_by_digits(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(sparsify_by_digits_handler, run_sparsify_by_digits, bind_sparsify_by_digits(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(bucketed_handler, run_bucketed, bind_bucketed_with_workspace(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(mask_handler, run_mask, bind_mask(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(sparsify_handler, run_sparsify, bind_sparsify(context()), kTraits);

}  // namespace

Handlers handlers() {
  return {topk_handler,
          bucketed_handler,
          mask_handler,
          sparsify_handler,
          {topk_in_parts_handler, topk_by_digits_handler, mask_by_digits_handler, sparsify_by_digits_handler},
          sparse_handlers()};
}

}  // namespace jax_rtopk
