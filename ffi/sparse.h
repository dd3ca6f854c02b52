// The custom calls of sparse operations: their signatures, and from their buffers to a Product or Neighbors.
//
// As in ffi/decode.h, the checks keep a hand-made custom call or a stale serialized program from reading or writing
// out of bounds. What the index arrays hold the kernels check themselves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "ffi/decode.h"
#include "native/sparse.h"

namespace jax_rtopk {

// Begins the signatures: (context..., factor, factor, indices). XLA's bindings cannot be moved into a parameter.
template <class Binding>
auto bind_factors(Binding&& context) {
  return std::move(context)
      .template Arg<ffi::AnyBuffer>()
      .template Arg<ffi::AnyBuffer>()
      .template Arg<ffi::AnyBuffer>();
}

// (context..., factor, factor, indices, result)
template <class Binding>
auto bind_product(Binding&& context) {
  return bind_factors(std::move(context)).template Ret<ffi::AnyBuffer>();
}

// The same with the entries in the order of their indices: (context..., factor, factor, indices, order, starts, result)
template <class Binding>
auto bind_grouped_product(Binding&& context) {
  return bind_factors(std::move(context))
      .template Arg<ffi::AnyBuffer>()
      .template Arg<ffi::AnyBuffer>()
      .template Ret<ffi::AnyBuffer>();
}

// (context..., factor, factor, indices, indptr, neighbors, out_indptr, out_neighbors, out_edges, result)
template <class Binding>
auto bind_neighbors(Binding&& context) {
  return bind_factors(std::move(context))
      .template Arg<ffi::AnyBuffer>()
      .template Arg<ffi::AnyBuffer>()
      .template Arg<ffi::AnyBuffer>()
      .template Arg<ffi::AnyBuffer>()
      .template Arg<ffi::AnyBuffer>()
      .template Ret<ffi::AnyBuffer>();
}

// The integer arrays of a graph.
struct GraphBuffers {
  const ffi::AnyBuffer &indptr, &neighbors, &out_indptr, &out_neighbors, &out_edges;
};

// What a handler goes on with: a Product or Neighbors, or the error it returns to XLA.
template <class T>
struct DecodedAs {
  T request{};
  ffi::Error error = ffi::Error::Success();
};

namespace internal {

inline std::optional<Float> float_of(ffi::DataType dtype) {
  switch (dtype) {
    case ffi::F16:
      return Float::kF16;
    case ffi::BF16:
      return Float::kBF16;
    case ffi::F32:
      return Float::kF32;
    case ffi::F64:
      return Float::kF64;
    default:
      return std::nullopt;
  }
}

// Finds the first thing that is wrong with the buffers of a sparse operation.
class SparseChecks {
 public:
  // All must be of one float dtype.
  Float floats(std::initializer_list<const ffi::AnyBuffer*> buffers) {
    const ffi::DataType dtype = (*buffers.begin())->element_type();
    const std::optional<Float> type = float_of(dtype);
    if (!type) fail("operands must be float16, bfloat16, float32 or float64, got XLA element type " + text(dtype));
    for (const ffi::AnyBuffer* buffer : buffers) {
      if (buffer->element_type() != dtype) fail("operands and result must be of one float dtype");
    }
    return type.value_or(Float::kF32);
  }

  void int32(const char* name, const ffi::AnyBuffer& buffer) {
    if (buffer.element_type() != ffi::S32) fail(std::string(name) + " must be of dtype int32");
  }

  void rank(const char* name, const ffi::AnyBuffer& buffer, size_t rank) {
    if (buffer.dimensions().size() != rank) {
      fail(std::string(name) + " must have " + std::to_string(rank) + " dimensions, got " +
           to_string(buffer.dimensions()));
    }
  }

  // The dimensions must be those of `like`, with `last` in place of the last one.
  void shape(const char* name, const ffi::AnyBuffer& buffer, const ffi::AnyBuffer& like, int64_t last) {
    if (failed()) return;
    if (!has_shape(like, last, buffer)) {
      fail(std::string(name) + " must have the shape " + to_string(like.dimensions()) + " with " +
           std::to_string(last) + " as its last dimension, got " + to_string(buffer.dimensions()));
    }
  }

  void length(const char* name, int64_t got, int64_t want) {
    if (got != want) {
      fail(std::string(name) + " must be " + std::to_string(want) + " long, got " + std::to_string(got));
    }
  }

  void addressable(const char* name, int64_t count) {
    if (count > std::numeric_limits<int32_t>::max()) {
      fail(std::string(name) + " may be at most 2^31-1 as indices are int32, got " + std::to_string(count));
    }
  }

  void not_in_place(const ffi::AnyBuffer& result, std::initializer_list<const ffi::AnyBuffer*> operands) {
    for (const ffi::AnyBuffer* operand : operands) {
      if (is_operand(*operand, result)) fail(in_place_error("the result"));
    }
  }

  bool failed() const { return !message_.empty(); }
  ffi::Error error() const {
    return failed() ? ffi::Error::InvalidArgument("jax_rtopk: " + message_) : ffi::Error::Success();
  }

 private:
  static std::string text(ffi::DataType dtype) { return std::to_string(static_cast<int>(dtype)); }

  void fail(const std::string& message) {
    if (!failed()) message_ = message;
  }

  std::string message_;
};

inline int64_t rows_of(const ffi::AnyBuffer& buffer) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < buffer.dimensions().size(); ++i) rows *= buffer.dimensions()[i];
  return rows;
}

inline const void* unless_result(const ffi::AnyBuffer& buffer, const ffi::AnyBuffer& result) {
  return &buffer == &result ? nullptr : buffer.untyped_data();
}

inline const int32_t* integers(const ffi::AnyBuffer& buffer) {
  return static_cast<const int32_t*>(buffer.untyped_data());
}

}  // namespace internal

// `result` is one of the first three.
inline DecodedAs<Product> decode_product(const ffi::AnyBuffer& values, const ffi::AnyBuffer& rows,
                                         const ffi::AnyBuffer& weight, const ffi::AnyBuffer& indices,
                                         const ffi::AnyBuffer& result) {
  internal::SparseChecks checks;
  const Float type = checks.floats({&values, &rows, &weight});
  checks.int32("indices", indices);
  checks.rank("weight", weight, 2);
  if (indices.dimensions().size() == 0) checks.rank("indices", indices, 1);
  if (checks.failed()) return {{}, checks.error()};
  const int64_t k = indices.dimensions().back(), n = weight.dimensions()[0], d = weight.dimensions()[1];
  checks.shape("values", values, indices, k);
  checks.shape("the rows", rows, indices, d);
  checks.addressable("n", n);
  for (const ffi::AnyBuffer* factor : {&values, &rows, &weight}) {
    if (factor != &result) checks.not_in_place(result, {factor, &indices});
  }
  if (checks.failed()) return {{}, checks.error()};
  return {{type, internal::rows_of(indices), k, n, d, internal::unless_result(values, result),
           internal::unless_result(rows, result), internal::unless_result(weight, result), internal::integers(indices)},
          ffi::Error::Success()};
}

// An error if these are not int32[entries] and int32[n + 1], or are the result, or success.
inline ffi::Error check_groups(const Product& product, const ffi::AnyBuffer& order, const ffi::AnyBuffer& starts,
                               const ffi::AnyBuffer& result) {
  internal::SparseChecks checks;
  checks.int32("order", order);
  checks.int32("starts", starts);
  checks.rank("order", order, 1);
  checks.rank("starts", starts, 1);
  if (checks.failed()) return checks.error();
  checks.addressable("the number of entries", product.count * product.k);
  checks.length("order", order.dimensions()[0], product.count * product.k);
  checks.length("starts", starts.dimensions()[0], product.n + 1);
  checks.not_in_place(result, {&order, &starts});
  return checks.error();
}

// `result` is one of the first three.
inline DecodedAs<Neighbors> decode_neighbors(const ffi::AnyBuffer& weights, const ffi::AnyBuffer& values,
                                             const ffi::AnyBuffer& dense, const ffi::AnyBuffer& indices,
                                             const GraphBuffers& graph, const ffi::AnyBuffer& result) {
  internal::SparseChecks checks;
  const Float type = checks.floats({&weights, &values, &dense});
  const std::pair<const char*, const ffi::AnyBuffer*> vectors[] = {{"indptr", &graph.indptr},
                                                                   {"neighbors", &graph.neighbors},
                                                                   {"out_indptr", &graph.out_indptr},
                                                                   {"out_neighbors", &graph.out_neighbors},
                                                                   {"out_edges", &graph.out_edges}};
  checks.int32("indices", indices);
  checks.rank("indices", indices, 2);
  checks.rank("weights", weights, 1);
  checks.rank("dense", dense, 2);
  for (const auto& [name, vector] : vectors) {
    checks.int32(name, *vector);
    checks.rank(name, *vector, 1);
  }
  if (checks.failed()) return {{}, checks.error()};
  const int64_t targets = dense.dimensions()[0], n = dense.dimensions()[1];
  const int64_t sources = indices.dimensions()[0], k = indices.dimensions()[1], edges = weights.dimensions()[0];
  checks.shape("values", values, indices, k);
  const int64_t lengths[] = {targets + 1, edges, sources + 1, edges, edges};
  for (int i = 0; i < 5; ++i) checks.length(vectors[i].first, vectors[i].second->dimensions()[0], lengths[i]);
  checks.addressable("n", n);
  checks.addressable("the number of nodes", std::max(targets, sources));
  checks.addressable("the number of edges", edges);
  for (const ffi::AnyBuffer* factor : {&weights, &values, &dense}) {
    if (factor != &result) checks.not_in_place(result, {factor, &indices});
  }
  for (const auto& [name, vector] : vectors) checks.not_in_place(result, {vector});
  if (checks.failed()) return {{}, checks.error()};
  return {{type, targets, sources, edges, k, n, internal::unless_result(weights, result),
           internal::unless_result(values, result), internal::unless_result(dense, result), internal::integers(indices),
           internal::integers(graph.indptr), internal::integers(graph.neighbors), internal::integers(graph.out_indptr),
           internal::integers(graph.out_neighbors), internal::integers(graph.out_edges)},
          ffi::Error::Success()};
}

}  // namespace jax_rtopk
