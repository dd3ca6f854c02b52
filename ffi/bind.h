// The signatures of the custom calls of docs/architecture.md: operands, results and attributes, in the order in which
// handlers take them. Each back end passes `context`, a binding that holds what it needs besides (a stream, a thread
// pool).
#pragma once

#include <cstdint>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace jax_rtopk {

// Begins all signatures: (context..., operand, result). XLA's bindings cannot be moved into a parameter.
template <class Binding>
auto bind_result(Binding&& context) {
  return std::move(context).template Arg<xla::ffi::AnyBuffer>().template Ret<xla::ffi::AnyBuffer>();
}

// Begins those of what returns values and indices.
template <class Binding>
auto bind_pairs(Binding&& context) {
  return bind_result(std::move(context)).template Ret<xla::ffi::AnyBuffer>();
}

// (context..., operand, values, indices, k, largest, sorted, max_iter)
template <class Binding>
auto bind_topk(Binding&& context) {
  return bind_pairs(std::move(context))
      .template Attr<int64_t>("k")
      .template Attr<bool>("largest")
      .template Attr<bool>("sorted")
      .template Attr<int64_t>("max_iter");
}

// The same, exact, with a third result: (context..., operand, values, indices, workspace, k, parts, largest, sorted)
template <class Binding>
auto bind_topk_in_parts(Binding&& context) {
  return bind_pairs(std::move(context))
      .template Ret<xla::ffi::AnyBuffer>()
      .template Attr<int64_t>("k")
      .template Attr<int64_t>("parts")
      .template Attr<bool>("largest")
      .template Attr<bool>("sorted");
}

// By digits, exact too: (context..., operand, values, indices, workspace, k, largest, sorted)
template <class Binding>
auto bind_topk_by_digits(Binding&& context) {
  return bind_pairs(std::move(context))
      .template Ret<xla::ffi::AnyBuffer>()
      .template Attr<int64_t>("k")
      .template Attr<bool>("largest")
      .template Attr<bool>("sorted");
}

template <class Binding>
auto bind_bucketed_attributes(Binding&& results) {
  return std::move(results)
      .template Attr<int64_t>("k")
      .template Attr<int64_t>("num_buckets")
      .template Attr<int64_t>("bucket_k")
      .template Attr<bool>("largest")
      .template Attr<bool>("sorted");
}

// (context..., operand, values, indices, k, num_buckets, bucket_k, largest, sorted)
template <class Binding>
auto bind_bucketed(Binding&& context) {
  return bind_bucketed_attributes(bind_pairs(std::move(context)));
}

// The same with a third result: (context..., operand, values, indices, workspace, k, ...)
template <class Binding>
auto bind_bucketed_with_workspace(Binding&& context) {
  return bind_bucketed_attributes(bind_pairs(std::move(context)).template Ret<xla::ffi::AnyBuffer>());
}

// (context..., operand, mask, k, largest, by_magnitude, max_iter)
template <class Binding>
auto bind_mask(Binding&& context) {
  return bind_result(std::move(context))
      .template Attr<int64_t>("k")
      .template Attr<bool>("largest")
      .template Attr<bool>("by_magnitude")
      .template Attr<int64_t>("max_iter");
}

// By digits: (context..., operand, mask, workspace, k, largest, by_magnitude)
template <class Binding>
auto bind_mask_by_digits(Binding&& context) {
  return bind_result(std::move(context))
      .template Ret<xla::ffi::AnyBuffer>()
      .template Attr<int64_t>("k")
      .template Attr<bool>("largest")
      .template Attr<bool>("by_magnitude");
}

// (context..., operand, dense, k, by_magnitude, max_iter)
template <class Binding>
auto bind_sparsify(Binding&& context) {
  return bind_result(std::move(context))
      .template Attr<int64_t>("k")
      .template Attr<bool>("by_magnitude")
      .template Attr<int64_t>("max_iter");
}

// By digits: (context..., operand, dense, workspace, k, by_magnitude)
template <class Binding>
auto bind_sparsify_by_digits(Binding&& context) {
  return bind_result(std::move(context))
      .template Ret<xla::ffi::AnyBuffer>()
      .template Attr<int64_t>("k")
      .template Attr<bool>("by_magnitude");
}

}  // namespace jax_rtopk
