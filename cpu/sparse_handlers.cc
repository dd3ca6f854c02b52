// FFI handlers of the sparse operations for the CPU.
#include <cstring>

#include "cpu/sparse.h"
#include "cpu/xla_context.h"
#include "ffi/handlers.h"
#include "ffi/sparse_calls.h"

namespace jax_rtopk {
namespace {

struct Cpu {
  using Context = ffi::ThreadPool;
  template <class Request>
  using Operation = void (*)(const Request&, void*, Parallel&);

  static constexpr Operation<Product> gather_sum = jax_rtopk::gather_sum;
  static constexpr Operation<Product> sampled_dot = jax_rtopk::sampled_dot;
  static constexpr Operation<Neighbors> neighbor_sum = jax_rtopk::neighbor_sum;
  static constexpr Operation<Neighbors> neighbor_dot = jax_rtopk::neighbor_dot;
  static constexpr Operation<Neighbors> edge_dot = jax_rtopk::edge_dot;

  template <class Request>
  static ffi::Error run(const DecodedAs<Request>& decoded, Context& pool, ffi::AnyBuffer& result,
                        Operation<Request> operation) {
    if (decoded.error.failure() || result.element_count() == 0) return decoded.error;
    if (decoded.request.empty()) {
      std::memset(result.untyped_data(), 0, result.size_bytes());
      return ffi::Error::Success();
    }
    prefer_huge_pages_for(result);
    Parallel parallel = parallel_over(pool);
    return guarded([&] { operation(decoded.request, result.untyped_data(), parallel); });
  }
};

using Calls = SparseCalls<Cpu>;

ffi::Error run_scatter_add(ffi::ThreadPool pool, ffi::AnyBuffer values, ffi::AnyBuffer rows, ffi::AnyBuffer indices,
                           AnyResult weight) {
  return Cpu::run<Product>(decode_product(values, rows, *weight, indices, *weight), pool, *weight, scatter_add);
}

XLA_FFI_DEFINE_HANDLER(gather_sum_handler, Calls::gather_sum, bind_product(context()));
XLA_FFI_DEFINE_HANDLER(sampled_dot_handler, Calls::sampled_dot, bind_product(context()));
XLA_FFI_DEFINE_HANDLER(scatter_add_handler, run_scatter_add, bind_product(context()));
XLA_FFI_DEFINE_HANDLER(neighbor_sum_handler, Calls::neighbor_sum, bind_neighbors(context()));
XLA_FFI_DEFINE_HANDLER(neighbor_dot_handler, Calls::neighbor_dot, bind_neighbors(context()));
XLA_FFI_DEFINE_HANDLER(edge_dot_handler, Calls::edge_dot, bind_neighbors(context()));

}  // namespace

SparseHandlers sparse_handlers() {
  return {gather_sum_handler,   sampled_dot_handler,  scatter_add_handler,
          neighbor_sum_handler, neighbor_dot_handler, edge_dot_handler};
}

}  // namespace jax_rtopk
