// FFI handlers for the CPU: decode the call, then hand plain pointers and XLA's thread pool to the kernels.
#include "ffi/handlers.h"

#include <cstring>

#include "cpu/kernels.h"
#include "cpu/xla_context.h"
#include "ffi/bind.h"
#include "ffi/decode.h"

namespace jax_rtopk {
namespace {

ffi::Error run_topk(ffi::ThreadPool pool, ffi::AnyBuffer operand, AnyResult values, AnyResult indices, int64_t k,
                    bool largest, bool sorted, int64_t max_iter) {
  const Decoded decoded = decode_topk(operand, *values, *indices, k, largest, sorted, max_iter);
  const Request& request = decoded.request;
  if (decoded.error.failure() || request.rows == 0 || request.k == 0) return decoded.error;
  prefer_huge_pages_for(*values);
  prefer_huge_pages_for(*indices);
  Parallel parallel = parallel_over(pool);
  return guarded([&] {
    topk(request, operand.untyped_data(), values->untyped_data(), static_cast<int32_t*>(indices->untyped_data()),
         parallel);
  });
}

ffi::Error run_bucketed(ffi::ThreadPool pool, ffi::AnyBuffer operand, AnyResult values, AnyResult indices, int64_t k,
                        int64_t num_buckets, int64_t bucket_k, bool largest, bool sorted) {
  const Buckets buckets{num_buckets, bucket_k};
  const Decoded decoded = decode_bucketed(operand, *values, *indices, k, buckets, largest, sorted);
  const Request& request = decoded.request;
  if (decoded.error.failure() || request.rows == 0 || request.k == 0) return decoded.error;
  prefer_huge_pages_for(*values);
  prefer_huge_pages_for(*indices);
  Parallel parallel = parallel_over(pool);
  return guarded([&] {
    bucketed(request, buckets, operand.untyped_data(), values->untyped_data(),
             static_cast<int32_t*>(indices->untyped_data()), parallel);
  });
}

ffi::Error run_mask(ffi::ThreadPool pool, ffi::AnyBuffer operand, AnyResult result, int64_t k, bool largest,
                    bool by_magnitude, int64_t max_iter) {
  const Decoded decoded = decode_mask(operand, *result, k, largest, by_magnitude, max_iter);
  const Request& request = decoded.request;
  if (decoded.error.failure() || request.rows == 0 || request.n == 0) return decoded.error;
  if (request.k == 0) {
    std::memset(result->untyped_data(), 0, result->size_bytes());
    return ffi::Error::Success();
  }
  prefer_huge_pages_for(*result);
  Parallel parallel = parallel_over(pool);
  return guarded(
      [&] { mask(request, operand.untyped_data(), static_cast<uint8_t*>(result->untyped_data()), parallel); });
}

ffi::Error run_sparsify(ffi::ThreadPool pool, ffi::AnyBuffer operand, AnyResult dense, int64_t k, bool by_magnitude,
                        int64_t max_iter) {
  const Decoded decoded = decode_sparsify(operand, *dense, k, by_magnitude, max_iter);
  const Request& request = decoded.request;
  if (decoded.error.failure() || request.rows == 0 || request.n == 0) return decoded.error;
  if (request.k == 0) {
    std::memset(dense->untyped_data(), 0, dense->size_bytes());
    return ffi::Error::Success();
  }
  prefer_huge_pages_for(*dense);
  Parallel parallel = parallel_over(pool);
  return guarded([&] { sparsify(request, operand.untyped_data(), dense->untyped_data(), parallel); });
}

XLA_FFI_DEFINE_HANDLER(topk_handler, run_topk, bind_topk(context()));
XLA_FFI_DEFINE_HANDLER(bucketed_handler, run_bucketed, bind_bucketed(context()));
XLA_FFI_DEFINE_HANDLER(mask_handler, run_mask, bind_mask(context()));
XLA_FFI_DEFINE_HANDLER(sparsify_handler, run_sparsify, bind_sparsify(context()));

}  // namespace

Handlers handlers() { return {topk_handler, bucketed_handler, mask_handler, sparsify_handler, {}, sparse_handlers()}; }

}  // namespace jax_rtopk
