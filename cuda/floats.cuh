// Floats as elements, and what they are added up in: float, or double.
#pragma once

#include <type_traits>

#include "cuda/device.cuh"

namespace jax_rtopk::cuda {

// The bits of 16-bit floats.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class To, class From>
RTOPK_DEVICE To as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

RTOPK_DEVICE float widen(float x) { return x; }
RTOPK_DEVICE double widen(double x) { return x; }
RTOPK_DEVICE float widen(BFloat x) { return as<float>(uint32_t(x.bits) << 16); }
RTOPK_DEVICE float widen(Half x) {
  const uint32_t sign = uint32_t(x.bits & 0x8000u) << 16, magnitude = uint32_t(x.bits & 0x7fffu) << 13;
  uint32_t word = magnitude + ((127u - 15u) << 23);
  if (magnitude >= 31u << 23) {  // infinite or no number
    word += (127u - 15u) << 23;
  } else if (magnitude < 1u << 23) {  // a denormal: with its bits behind a leading one, less that one
    word = as<uint32_t>(as<float>(magnitude + (113u << 23)) - as<float>(113u << 23));
  }
  return as<float>(word | sign);
}

// To the nearest, ties to even.
template <class T>
RTOPK_DEVICE T narrow(Sum<T> x) {
  if constexpr (std::is_same_v<T, BFloat>) {
    const auto bits = as<uint32_t>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {uint16_t(bits >> 16 | 0x40u)};
    return {uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
  } else if constexpr (std::is_same_v<T, Half>) {
    const auto bits = as<uint32_t>(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t half = (magnitude - ((127u - 15u) << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    if (magnitude >= 143u << 23) {
      half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (magnitude < 113u << 23) {  // added to 1/2 the last bit of a float is that of a denormal half
      half = as<uint32_t>(as<float>(magnitude) + .5f) - (126u << 23);
    }
    return {uint16_t(half | (bits >> 16 & 0x8000u))};
  } else {
    return x;
  }
}

}  // namespace jax_rtopk::cuda
