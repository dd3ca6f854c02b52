// The choice among the kernels of each width, which lie in sources of their own: they compile side by side.
#include "cuda/kernels.h"

#include "cuda/launch.h"

namespace jax_rtopk::cuda {

template <class Bits>
std::string topk_as(const Request&, const void*, void*, int32_t*, Stream);
template <class Bits>
std::string topk_in_parts_as(const Request&, int64_t, const void*, void*, int32_t*, void*, Stream);
template <class Bits>
std::string bucketed_as(const Request&, const Buckets&, const void*, void*, int32_t*, void*, int64_t, Stream);
template <class Bits>
std::string topk_by_digits_as(const Request&, const void*, void*, int32_t*, void*, Stream);
template <class Bits>
std::string mask_by_digits_as(const Request&, const void*, uint8_t*, void*, Stream);
template <class Bits>
std::string sparsify_by_digits_as(const Request&, const void*, void*, void*, Stream);
template <class Bits>
std::string mask_as(const Request&, const void*, uint8_t*, Stream);
template <class Bits>
std::string sparsify_as(const Request&, const void*, void*, Stream);

namespace {

// act.template operator()<Bits>() for the width of the request's elements.
template <class Act>
std::string by_width(const Request& request, Act&& act) {
  switch (request.item_bytes) {
    case 1:
      return act.template operator()<uint8_t>();
    case 2:
      return act.template operator()<uint16_t>();
    case 4:
      return act.template operator()<uint32_t>();
    default:
      return act.template operator()<uint64_t>();
  }
}

}  // namespace

std::string topk(const Request& request, const void* operand, void* values, int32_t* indices, Stream stream) {
  return by_width(request, [&]<class Bits>() { return topk_as<Bits>(request, operand, values, indices, stream); });
}

std::string topk_in_parts(const Request& request, int64_t parts, const void* operand, void* values, int32_t* indices,
                          void* workspace, Stream stream) {
  return by_width(request, [&]<class Bits>() {
    return topk_in_parts_as<Bits>(request, parts, operand, values, indices, workspace, stream);
  });
}

std::string bucketed(const Request& request, const Buckets& buckets, const void* operand, void* values,
                     int32_t* indices, void* workspace, int64_t workspace_bytes, Stream stream) {
  return by_width(request, [&]<class Bits>() {
    return bucketed_as<Bits>(request, buckets, operand, values, indices, workspace, workspace_bytes, stream);
  });
}

std::string mask(const Request& request, const void* operand, uint8_t* mask, Stream stream) {
  return by_width(request, [&]<class Bits>() { return mask_as<Bits>(request, operand, mask, stream); });
}

std::string sparsify(const Request& request, const void* operand, void* dense, Stream stream) {
  return by_width(request, [&]<class Bits>() { return sparsify_as<Bits>(request, operand, dense, stream); });
}

std::string topk_by_digits(const Request& request, const void* operand, void* values, int32_t* indices, void* workspace,
                           Stream stream) {
  return by_width(request, [&]<class Bits>() {
    return topk_by_digits_as<Bits>(request, operand, values, indices, workspace, stream);
  });
}

std::string mask_by_digits(const Request& request, const void* operand, uint8_t* mask, void* workspace, Stream stream) {
  return by_width(request,
                  [&]<class Bits>() { return mask_by_digits_as<Bits>(request, operand, mask, workspace, stream); });
}

std::string sparsify_by_digits(const Request& request, const void* operand, void* dense, void* workspace,
                               Stream stream) {
  return by_width(
      request, [&]<class Bits>() { return sparsify_by_digits_as<Bits>(request, operand, dense, workspace, stream); });
}

std::string clear(void* data, size_t bytes, Stream stream) { return fill_with_zeros(data, bytes, stream); }

}  // namespace jax_rtopk::cuda
