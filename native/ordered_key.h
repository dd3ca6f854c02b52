// Ordered keys: the unsigned image of a value whose integer order is the order of selection.
//
// Selection on every back end works on keys only: a larger key is selected earlier, equal keys go to the lower index.
// The image of a float follows IEEE 754 total order (-NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN), as jax.lax.top_k
// does.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define RTOPK_HD __host__ __device__ __forceinline__
#else
#define RTOPK_HD inline __attribute__((always_inline))
#endif

namespace jax_rtopk {

// How the bits of a dtype are to be read. Its width is that of the unsigned type that carries the bits; bool is an
// unsigned byte.
enum class Kind : uint8_t { kFloat, kSigned, kUnsigned };

// The map from bits to keys as three constants, so that one kernel serves every kind and direction:
//   key = ((bits ^ (sign & spread)) + (sign & borrow)) ^ flip      with sign = all ones where the sign bit is set, else
//   0.
template <class Bits>
struct KeyMap {
  static_assert(std::is_unsigned_v<Bits>);
  using Signed = std::make_signed_t<Bits>;
  static constexpr int kWidth = 8 * sizeof(Bits);
  static constexpr Bits kSignBit = Bits(Bits(1) << (kWidth - 1));
  static constexpr Bits kOnes = Bits(~Bits(0));

  Bits spread;  // xored into values whose sign bit is set
  Bits flip;    // xored into every value
  Bits borrow;  // added to values whose sign bit is set: 1 completes the two's complement negation of |int|

  // `smallest` selects the smallest elements first; `by_magnitude` orders by absolute value.
  RTOPK_HD static constexpr KeyMap make(Kind kind, bool smallest, bool by_magnitude) {
    KeyMap map{0, 0, 0};
    if (by_magnitude) {
      if (kind == Kind::kFloat) map.spread = kSignBit;
      if (kind == Kind::kSigned) map.spread = kOnes, map.borrow = 1;
    } else {
      if (kind == Kind::kFloat) map.spread = Bits(kOnes ^ kSignBit), map.flip = kSignBit;
      if (kind == Kind::kSigned) map.flip = kSignBit;
    }
    if (smallest) map.flip = Bits(~map.flip);
    return map;
  }

  RTOPK_HD Bits operator()(Bits bits) const {
    const Bits sign = Bits(Signed(bits) >> (kWidth - 1));
    return Bits(Bits((bits ^ (sign & spread)) + (sign & borrow)) ^ flip);
  }

  // The bits of a key, unless the order is by magnitude: that loses the sign.
  RTOPK_HD Bits bits(Bits key) const {
    const Bits turned = Bits(key ^ flip);
    const Bits sign = Bits(Signed(turned) >> (kWidth - 1));
    return Bits(turned ^ (sign & spread));
  }
};

}  // namespace jax_rtopk
