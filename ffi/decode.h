// From the buffers and attributes of a custom call to a Request. Shared by the handlers of every back end.
//
// jax_rtopk checks its arguments in Python, at trace time, with better messages. These checks keep a hand-made custom
// call or a stale serialized program from reading or writing out of bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "native/buckets.h"
#include "native/request.h"
#include "xla/ffi/api/ffi.h"

namespace jax_rtopk {

namespace ffi = ::xla::ffi;

using AnyResult = ffi::Result<ffi::AnyBuffer>;

// What a handler goes on with: a request, or the error it returns to XLA.
struct Decoded {
  Request request{};
  ffi::Error error = ffi::Error::Success();
};

namespace internal {

struct Item {
  Kind kind;
  int bytes;
};

inline std::optional<Item> item_of(ffi::DataType dtype) {
  switch (dtype) {
    case ffi::F8E4M3FN:
    case ffi::F8E5M2:
      return Item{Kind::kFloat, 1};
    case ffi::F16:
    case ffi::BF16:
      return Item{Kind::kFloat, 2};
    case ffi::F32:
      return Item{Kind::kFloat, 4};
    case ffi::F64:
      return Item{Kind::kFloat, 8};
    case ffi::S8:
      return Item{Kind::kSigned, 1};
    case ffi::S16:
      return Item{Kind::kSigned, 2};
    case ffi::S32:
      return Item{Kind::kSigned, 4};
    case ffi::S64:
      return Item{Kind::kSigned, 8};
    case ffi::PRED:
    case ffi::U8:
      return Item{Kind::kUnsigned, 1};
    case ffi::U16:
      return Item{Kind::kUnsigned, 2};
    case ffi::U32:
      return Item{Kind::kUnsigned, 4};
    case ffi::U64:
      return Item{Kind::kUnsigned, 8};
    default:
      return std::nullopt;
  }
}

inline std::string to_string(ffi::AnyBuffer::Dimensions dimensions) {
  std::string text = "[";
  for (const int64_t dimension : dimensions) text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  return text + "]";
}

inline Decoded invalid(const std::string& message) {
  return {{}, ffi::Error::InvalidArgument("jax_rtopk: " + message)};
}

// Whether `result` has the operand's shape, with `row` in place of the last dimension.
inline bool has_shape(const ffi::AnyBuffer& operand, int64_t row, const ffi::AnyBuffer& result) {
  const auto want = operand.dimensions(), got = result.dimensions();
  return got.size() == want.size() && got.back() == row && std::equal(want.begin(), want.end() - 1, got.begin());
}

inline std::string shape_error(const char* name, const ffi::AnyBuffer& operand, int64_t row,
                               const ffi::AnyBuffer& result) {
  return std::string(name) + " must have the operand's shape " + to_string(operand.dimensions()) + " with " +
         std::to_string(row) + " as its last dimension, got " + to_string(result.dimensions());
}

// Kernels read a row while they write its results, so a call that was made to work in place would destroy its operand.
inline bool is_operand(const ffi::AnyBuffer& operand, const ffi::AnyBuffer& result) {
  return result.element_count() > 0 && result.untyped_data() == operand.untyped_data();
}

inline std::string in_place_error(const char* name) {
  return std::string(name) + " must not be the operand's own buffer: drop input_output_aliases from the custom call";
}

inline Decoded decode_operand(const ffi::AnyBuffer& operand, int64_t k, int64_t max_iter) {
  const std::optional<Item> item = item_of(operand.element_type());
  if (!item) {
    return invalid("the operand must be of a real dtype of 1, 2, 4 or 8 bytes, got XLA element type " +
                   std::to_string(static_cast<int>(operand.element_type())));
  }
  const auto dimensions = operand.dimensions();
  if (dimensions.size() == 0) return invalid("the operand must have at least one dimension, got a scalar");
  const int64_t n = dimensions.back();
  if (n > std::numeric_limits<int32_t>::max()) {
    return invalid("rows may be at most 2^31-1 long since indices are int32, got " + std::to_string(n));
  }
  if (k < 0 || k > n) {
    return invalid("k must be between 0 and the row length " + std::to_string(n) + ", got " + std::to_string(k));
  }
  if (max_iter < 0) return invalid("max_iter must be at least 0 (0: exact), got " + std::to_string(max_iter));

  Decoded decoded;
  Request& request = decoded.request;
  request.kind = item->kind;
  request.item_bytes = item->bytes;
  request.rows = 1;
  for (size_t i = 0; i + 1 < dimensions.size(); ++i) request.rows *= dimensions[i];
  request.n = n;
  request.k = k;
  request.largest = true;
  request.max_iter = max_iter;
  return decoded;
}

}  // namespace internal

inline Decoded decode_topk(const ffi::AnyBuffer& operand, const ffi::AnyBuffer& values, const ffi::AnyBuffer& indices,
                           int64_t k, bool largest, bool sorted, int64_t max_iter) {
  Decoded decoded = internal::decode_operand(operand, k, max_iter);
  if (decoded.error.failure()) return decoded;
  if (values.element_type() != operand.element_type()) return internal::invalid("values must have the operand's dtype");
  if (indices.element_type() != ffi::S32) return internal::invalid("indices must be of dtype int32");
  if (!internal::has_shape(operand, k, values)) {
    return internal::invalid(internal::shape_error("values", operand, k, values));
  }
  if (!internal::has_shape(operand, k, indices)) {
    return internal::invalid(internal::shape_error("indices", operand, k, indices));
  }
  if (internal::is_operand(operand, values)) return internal::invalid(internal::in_place_error("values"));
  if (internal::is_operand(operand, indices)) return internal::invalid(internal::in_place_error("indices"));
  decoded.request.largest = largest;
  decoded.request.sorted = sorted;
  return decoded;
}

inline Decoded decode_bucketed(const ffi::AnyBuffer& operand, const ffi::AnyBuffer& values,
                               const ffi::AnyBuffer& indices, int64_t k, const Buckets& buckets, bool largest,
                               bool sorted) {
  Decoded decoded = decode_topk(operand, values, indices, k, largest, sorted, 0);
  if (decoded.error.failure()) return decoded;
  const int64_t n = decoded.request.n;
  if (buckets.count < 1 || buckets.count > n) {
    return internal::invalid("num_buckets must be between 1 and the row length " + std::to_string(n) + ", got " +
                             std::to_string(buckets.count));
  }
  if (buckets.kept < 1 || buckets.kept > n / buckets.count) {
    return internal::invalid("bucket_k must be between 1 and the size of the smallest bucket, " +
                             std::to_string(n / buckets.count) + ", got " + std::to_string(buckets.kept));
  }
  if (buckets.candidates() < k) {
    return internal::invalid("num_buckets * bucket_k must be at least k=" + std::to_string(k) + ", got " +
                             std::to_string(buckets.candidates()));
  }
  return decoded;
}

// The error of a workspace that doesn't have `needed` bytes for each row, a multiple of `unit`, or success.
inline ffi::Error check_workspace(const ffi::AnyBuffer& operand, const ffi::AnyBuffer& workspace, int64_t needed,
                                  int64_t unit = 1) {
  if (workspace.element_type() != ffi::U8) return internal::invalid("workspace must be of dtype uint8").error;
  const auto dimensions = workspace.dimensions();
  const int64_t bytes = dimensions.size() == 0 ? 0 : dimensions.back();
  if (!internal::has_shape(operand, bytes, workspace)) {
    return internal::invalid(internal::shape_error("workspace", operand, needed, workspace)).error;
  }
  if (bytes < needed || bytes % unit != 0) {
    const std::string multiple = unit == 1 ? "" : ", a multiple of " + std::to_string(unit);
    return internal::invalid("workspace must have at least " + std::to_string(needed) + " bytes a row" + multiple +
                             ", got " + std::to_string(bytes))
        .error;
  }
  if (internal::is_operand(operand, workspace)) return internal::invalid(internal::in_place_error("workspace")).error;
  return ffi::Error::Success();
}

inline Decoded decode_mask(const ffi::AnyBuffer& operand, const ffi::AnyBuffer& mask, int64_t k, bool largest,
                           bool by_magnitude, int64_t max_iter) {
  Decoded decoded = internal::decode_operand(operand, k, max_iter);
  if (decoded.error.failure()) return decoded;
  if (mask.element_type() != ffi::PRED) return internal::invalid("mask must be of dtype bool");
  if (!internal::has_shape(operand, decoded.request.n, mask)) {
    return internal::invalid(internal::shape_error("mask", operand, decoded.request.n, mask));
  }
  if (internal::is_operand(operand, mask)) return internal::invalid(internal::in_place_error("mask"));
  decoded.request.largest = largest;
  decoded.request.by_magnitude = by_magnitude;
  return decoded;
}

inline Decoded decode_sparsify(const ffi::AnyBuffer& operand, const ffi::AnyBuffer& dense, int64_t k, bool by_magnitude,
                               int64_t max_iter) {
  Decoded decoded = internal::decode_operand(operand, k, max_iter);
  if (decoded.error.failure()) return decoded;
  if (dense.element_type() != operand.element_type()) return internal::invalid("dense must have the operand's dtype");
  if (!internal::has_shape(operand, decoded.request.n, dense)) {
    return internal::invalid(internal::shape_error("dense", operand, decoded.request.n, dense));
  }
  if (internal::is_operand(operand, dense)) return internal::invalid(internal::in_place_error("dense"));
  decoded.request.by_magnitude = by_magnitude;
  return decoded;
}

}  // namespace jax_rtopk
