// FFI handlers of the sparse operations for the CPU.
#include <cstring>

#include "cpu/sparse.h"
#include "cpu/xla_context.h"
#include "ffi/handlers.h"
#include "ffi/sparse.h"

namespace jax_rtopk {
namespace {

using Buffer = ffi::AnyBuffer;

template <class Request>
ffi::Error run(const DecodedAs<Request>& decoded, ffi::ThreadPool& pool, Buffer& result,
               void (*kernel)(const Request&, void*, Parallel&)) {
  if (decoded.error.failure() || result.element_count() == 0) return decoded.error;
  if (decoded.request.empty()) {
    std::memset(result.untyped_data(), 0, result.size_bytes());
    return ffi::Error::Success();
  }
  prefer_huge_pages_for(result);
  Parallel parallel = parallel_over(pool);
  return guarded([&] { kernel(decoded.request, result.untyped_data(), parallel); });
}

ffi::Error run_gather_sum(ffi::ThreadPool pool, Buffer values, Buffer weight, Buffer indices, AnyResult rows) {
  return run(decode_product(values, *rows, weight, indices, *rows), pool, *rows, gather_sum);
}

ffi::Error run_sampled_dot(ffi::ThreadPool pool, Buffer rows, Buffer weight, Buffer indices, AnyResult values) {
  return run(decode_product(*values, rows, weight, indices, *values), pool, *values, sampled_dot);
}

ffi::Error run_scatter_add(ffi::ThreadPool pool, Buffer values, Buffer rows, Buffer indices, AnyResult weight) {
  return run(decode_product(values, rows, *weight, indices, *weight), pool, *weight, scatter_add);
}

ffi::Error run_neighbor_sum(ffi::ThreadPool pool, Buffer weights, Buffer values, Buffer indices, Buffer indptr,
                            Buffer neighbors, Buffer out_indptr, Buffer out_neighbors, Buffer out_edges,
                            AnyResult dense) {
  const GraphBuffers graph{indptr, neighbors, out_indptr, out_neighbors, out_edges};
  return run(decode_neighbors(weights, values, *dense, indices, graph, *dense), pool, *dense, neighbor_sum);
}

ffi::Error run_neighbor_dot(ffi::ThreadPool pool, Buffer weights, Buffer dense, Buffer indices, Buffer indptr,
                            Buffer neighbors, Buffer out_indptr, Buffer out_neighbors, Buffer out_edges,
                            AnyResult values) {
  const GraphBuffers graph{indptr, neighbors, out_indptr, out_neighbors, out_edges};
  return run(decode_neighbors(weights, *values, dense, indices, graph, *values), pool, *values, neighbor_dot);
}

ffi::Error run_edge_dot(ffi::ThreadPool pool, Buffer values, Buffer dense, Buffer indices, Buffer indptr,
                        Buffer neighbors, Buffer out_indptr, Buffer out_neighbors, Buffer out_edges,
                        AnyResult weights) {
  const GraphBuffers graph{indptr, neighbors, out_indptr, out_neighbors, out_edges};
  return run(decode_neighbors(*weights, values, dense, indices, graph, *weights), pool, *weights, edge_dot);
}

XLA_FFI_DEFINE_HANDLER(gather_sum_handler, run_gather_sum, bind_product(context()));
XLA_FFI_DEFINE_HANDLER(sampled_dot_handler, run_sampled_dot, bind_product(context()));
XLA_FFI_DEFINE_HANDLER(scatter_add_handler, run_scatter_add, bind_product(context()));
XLA_FFI_DEFINE_HANDLER(neighbor_sum_handler, run_neighbor_sum, bind_neighbors(context()));
XLA_FFI_DEFINE_HANDLER(neighbor_dot_handler, run_neighbor_dot, bind_neighbors(context()));
XLA_FFI_DEFINE_HANDLER(edge_dot_handler, run_edge_dot, bind_neighbors(context()));

}  // namespace

SparseHandlers sparse_handlers() {
  return {gather_sum_handler,   sampled_dot_handler,  scatter_add_handler,
          neighbor_sum_handler, neighbor_dot_handler, edge_dot_handler};
}

}  // namespace jax_rtopk
