// FFI handlers of the sparse operations for CUDA.
#include <string>

#include "cuda/kernels.h"
#include "cuda/sparse.h"
#include "cuda/xla_context.h"
#include "ffi/handlers.h"
#include "ffi/sparse_calls.h"

namespace jax_rtopk {
namespace {

using cuda::Stream;

struct Cuda {
  using Context = Stream;
  template <class Request>
  using Operation = std::string (*)(const Request&, void*, Stream);

  static constexpr Operation<Product> gather_sum = cuda::gather_sum;
  static constexpr Operation<Product> sampled_dot = cuda::sampled_dot;
  static constexpr Operation<Neighbors> neighbor_sum = cuda::neighbor_sum;
  static constexpr Operation<Neighbors> neighbor_dot = cuda::neighbor_dot;
  static constexpr Operation<Neighbors> edge_dot = cuda::edge_dot;

  template <class Request, class Act>
  static ffi::Error run(const DecodedAs<Request>& decoded, Stream stream, ffi::AnyBuffer& result, Act&& operation) {
    if (decoded.error.failure() || result.element_count() == 0) return decoded.error;
    if (decoded.request.empty()) return error_of(cuda::clear(result.untyped_data(), result.size_bytes(), stream));
    return error_of(operation(decoded.request, result.untyped_data(), stream));
  }
};

using Calls = SparseCalls<Cuda>;

ffi::Error run_scatter_add(Stream stream, ffi::AnyBuffer values, ffi::AnyBuffer rows, ffi::AnyBuffer indices,
                           ffi::AnyBuffer order, ffi::AnyBuffer starts, AnyResult weight) {
  const DecodedAs<Product> decoded = decode_product(values, rows, *weight, indices, *weight);
  if (decoded.error.failure()) return decoded.error;
  const ffi::Error error = check_groups(decoded.request, order, starts, *weight);
  if (error.failure()) return error;
  return Cuda::run(decoded, stream, *weight, [&](const Product& product, void* result, Stream stream) {
    return cuda::scatter_add(product, static_cast<const int32_t*>(order.untyped_data()),
                             static_cast<const int32_t*>(starts.untyped_data()), result, stream);
  });
}

XLA_FFI_DEFINE_HANDLER(gather_sum_handler, Calls::gather_sum, bind_product(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(sampled_dot_handler, Calls::sampled_dot, bind_product(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(scatter_add_handler, run_scatter_add, bind_grouped_product(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(neighbor_sum_handler, Calls::neighbor_sum, bind_neighbors(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(neighbor_dot_handler, Calls::neighbor_dot, bind_neighbors(context()), kTraits);
XLA_FFI_DEFINE_HANDLER(edge_dot_handler, Calls::edge_dot, bind_neighbors(context()), kTraits);

}  // namespace

SparseHandlers sparse_handlers() {
  return {gather_sum_handler,   sampled_dot_handler,  scatter_add_handler,
          neighbor_sum_handler, neighbor_dot_handler, edge_dot_handler};
}

}  // namespace jax_rtopk
