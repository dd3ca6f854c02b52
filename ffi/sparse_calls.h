// The handlers of the sparse operations but for what a back end does: Backend::run decodes nothing and launches all.
#pragma once

#include "ffi/sparse.h"

namespace jax_rtopk {

// Backend has a type Context, and run(DecodedAs<...>, Context, result, operation), which runs one of the operations of
// its namespace of that name.
template <class Backend>
struct SparseCalls {
  using Context = typename Backend::Context;
  using Buffer = ffi::AnyBuffer;

  static ffi::Error gather_sum(Context context, Buffer values, Buffer weight, Buffer indices, AnyResult rows) {
    return Backend::run(decode_product(values, *rows, weight, indices, *rows), context, *rows, Backend::gather_sum);
  }

  static ffi::Error sampled_dot(Context context, Buffer rows, Buffer weight, Buffer indices, AnyResult values) {
    return Backend::run(decode_product(*values, rows, weight, indices, *values), context, *values,
                        Backend::sampled_dot);
  }

  static ffi::Error neighbor_sum(Context context, Buffer weights, Buffer values, Buffer indices, Buffer indptr,
                                 Buffer neighbors, Buffer out_indptr, Buffer out_neighbors, Buffer out_edges,
                                 AnyResult dense) {
    const GraphBuffers graph{indptr, neighbors, out_indptr, out_neighbors, out_edges};
    return Backend::run(decode_neighbors(weights, values, *dense, indices, graph, *dense), context, *dense,
                        Backend::neighbor_sum);
  }

  static ffi::Error neighbor_dot(Context context, Buffer weights, Buffer dense, Buffer indices, Buffer indptr,
                                 Buffer neighbors, Buffer out_indptr, Buffer out_neighbors, Buffer out_edges,
                                 AnyResult values) {
    const GraphBuffers graph{indptr, neighbors, out_indptr, out_neighbors, out_edges};
    return Backend::run(decode_neighbors(weights, *values, dense, indices, graph, *values), context, *values,
                        Backend::neighbor_dot);
  }

  static ffi::Error edge_dot(Context context, Buffer values, Buffer dense, Buffer indices, Buffer indptr,
                             Buffer neighbors, Buffer out_indptr, Buffer out_neighbors, Buffer out_edges,
                             AnyResult weights) {
    const GraphBuffers graph{indptr, neighbors, out_indptr, out_neighbors, out_edges};
    return Backend::run(decode_neighbors(*weights, values, dense, indices, graph, *weights), context, *weights,
                        Backend::edge_dot);
  }
};

}  // namespace jax_rtopk
