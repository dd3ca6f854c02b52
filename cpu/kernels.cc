// Placeholder kernels: partial_sort on (key, index), exact whatever max_iter says.
#include "cpu/kernels.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace jax_rtopk {
namespace {

// Calls f(row, selected) with each row's k selected indices, in the order that the request asks for.
template <class Bits, class F>
void select(const Request& request, const Bits* operand, Parallel& parallel, F f) {
  const auto map = KeyMap<Bits>::make(request.kind, !request.largest, request.by_magnitude);
  parallel.run(request.rows, [&](int64_t row) {
    const Bits* bits = operand + row * request.n;
    std::vector<int32_t> order(request.n);
    std::iota(order.begin(), order.end(), 0);
    const auto middle = order.begin() + request.k;
    std::partial_sort(order.begin(), middle, order.end(), [&](int32_t a, int32_t b) {
      const Bits key_a = map(bits[a]), key_b = map(bits[b]);
      return key_a != key_b ? key_a > key_b : a < b;
    });
    if (!request.sorted) std::sort(order.begin(), middle);
    order.erase(middle, order.end());
    f(row, order);
  });
}

// Calls f with a value of the unsigned type that carries the operand's bits.
template <class F>
void with_bits(int item_bytes, F f) {
  switch (item_bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

}  // namespace

void topk(const Request& request, const void* operand, void* values, int32_t* indices, Parallel& parallel) {
  with_bits(request.item_bytes, [&](auto bits) {
    using Bits = decltype(bits);
    const auto* in = static_cast<const Bits*>(operand);
    select(request, in, parallel, [&](int64_t row, const std::vector<int32_t>& selected) {
      for (int64_t i = 0; i < request.k; ++i) {
        static_cast<Bits*>(values)[row * request.k + i] = in[row * request.n + selected[i]];
        indices[row * request.k + i] = selected[i];
      }
    });
  });
}

void mask(const Request& request, const void* operand, uint8_t* mask, Parallel& parallel) {
  with_bits(request.item_bytes, [&](auto bits) {
    using Bits = decltype(bits);
    select(request, static_cast<const Bits*>(operand), parallel, [&](int64_t row, const std::vector<int32_t>& selected) {
      std::memset(mask + row * request.n, 0, request.n);
      for (const int32_t i : selected) mask[row * request.n + i] = 1;
    });
  });
}

void sparsify(const Request& request, const void* operand, void* dense, Parallel& parallel) {
  with_bits(request.item_bytes, [&](auto bits) {
    using Bits = decltype(bits);
    const auto* in = static_cast<const Bits*>(operand);
    auto* out = static_cast<Bits*>(dense);
    select(request, in, parallel, [&](int64_t row, const std::vector<int32_t>& selected) {
      std::fill_n(out + row * request.n, request.n, Bits(0));
      for (const int32_t i : selected) out[row * request.n + i] = in[row * request.n + i];
    });
  });
}

const char* simd_level() { return "baseline"; }

}  // namespace jax_rtopk
