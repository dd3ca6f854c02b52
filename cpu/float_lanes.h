// Vectors of floats to add up in, float or double, by the compiler's own vector types; 16-bit floats are widened to
// float. Of a multiply and an add each rounds, whatever the instruction set has: no fused multiply-add.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace jax_rtopk::RTOPK_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

// The bits of 16-bit floats.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

// What elements are added up in.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
inline constexpr int kLanes = kVectorBytes / int(sizeof(Sum<T>));

template <class S>
struct Vector;
template <>
struct Vector<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct Vector<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vec = typename Vector<Sum<T>>::Type;

// Words of 32 bits and the floats that they are, a vector of them each, or one.
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
using Floats = Vec<float>;

template <class To, class From>
To as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline Words splat(uint32_t word) { return Words{} + word; }

inline Floats widen(BFloat, Words bits) { return as<Floats>(bits << 16); }

inline Floats widen(Half, Words bits) {
  const Words magnitude = (bits & 0x7fff) << 13;
  const Words normal = magnitude + ((127 - 15) << 23);
  const Words infinite_or_nan = normal + ((127 - 15) << 23);
  // A float with the mantissa behind a leading one, less that one: exact, and no denormal is touched.
  const Words tiny = as<Words>(as<Floats>(magnitude + (113 << 23)) - as<Floats>(splat(113 << 23)));
  const Words finite = magnitude < splat(1 << 23) ? tiny : normal;
  return as<Floats>((magnitude >= splat(31 << 23) ? infinite_or_nan : finite) | (bits & 0x8000) << 16);
}

// To the nearest, ties to even.
inline Words narrow(BFloat, Floats floats) {
  const Words bits = as<Words>(floats), magnitude = bits & 0x7fffffff;
  const Words rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return magnitude > splat(0x7f800000) ? bits >> 16 | 0x40 : rounded;
}

inline Words narrow(Half, Floats floats) {
  const Words bits = as<Words>(floats), magnitude = bits & 0x7fffffff;
  const Words normal = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Added to 1/2 the last bit of a float is that of a denormal half.
  const Words tiny = as<Words>(as<Floats>(magnitude) + as<Floats>(splat(126u << 23))) - (126u << 23);
  const Words finite = magnitude < splat(113 << 23) ? tiny : normal;
  const Words large = magnitude > splat(0x7f800000) ? splat(0x7e00) : splat(0x7c00);
  return (magnitude >= splat(143u << 23) ? large : finite) | (bits >> 16 & 0x8000);
}

template <class T>
Vec<T> load(const T* from) {
  if constexpr (sizeof(T) == 2) {
    Halves bits;
    std::memcpy(&bits, from, sizeof bits);
    return widen(T{}, __builtin_convertvector(bits, Words));
  } else {
    Vec<T> lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
  }
}

template <class T>
void store(T* to, Vec<T> lanes) {
  if constexpr (sizeof(T) == 2) {
    const Halves bits = __builtin_convertvector(narrow(T{}, lanes), Halves);
    std::memcpy(to, &bits, sizeof bits);
  } else {
    std::memcpy(to, &lanes, sizeof lanes);
  }
}

// The first `count` elements, and zeros in the other lanes.
template <class T>
Vec<T> load_first(const T* from, int64_t count) {
  if (count == kLanes<T>) return load(from);
  T elements[kLanes<T>] = {};
  std::memcpy(elements, from, size_t(count) * sizeof(T));
  return load(elements);
}

template <class T>
void store_first(T* to, int64_t count, Vec<T> lanes) {
  if (count == kLanes<T>) return store(to, lanes);
  T elements[kLanes<T>];
  store(elements, lanes);
  std::memcpy(to, elements, size_t(count) * sizeof(T));
}

template <class T>
Sum<T> load_one(const T* from) {
  if constexpr (sizeof(T) == 2) {
    return load_first(from, 1)[0];
  } else {
    return *from;
  }
}

}  // namespace jax_rtopk::RTOPK_ISA
