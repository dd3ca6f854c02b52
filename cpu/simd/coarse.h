// Vectors of 16-bit lanes, for ranks: 32 bytes long, or 16 on machines that have none longer.
#pragma once

#include "cpu/simd/select.h"

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace jax_rtopk::RTOPK_ISA {

#if defined(__AVX2__)
inline constexpr int kCoarseLanes = 16;
#else
inline constexpr int kCoarseLanes = 8;
#endif
typedef int16_t CoarseReg __attribute__((vector_size(2 * kCoarseLanes)));

inline CoarseReg set_coarse(int x) { return CoarseReg{} + int16_t(x); }
inline CoarseReg load_coarse(const int16_t* p) {
  CoarseReg x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store_coarse(int16_t* p, CoarseReg x) { std::memcpy(p, &x, sizeof x); }

inline int largest_coarse(CoarseReg x) {
#if defined(__AVX2__)
  const __m128i halves = _mm_max_epi16(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
  // The one horizontal instruction finds the least unsigned lane.
  const __m128i inverted = _mm_sub_epi16(_mm_set1_epi16(32767), halves);
  return 32767 - _mm_extract_epi16(_mm_minpos_epu16(inverted), 0);
#elif defined(__aarch64__)
  return vmaxvq_s16((int16x8_t)x);
#else
  int result = x[0];
  for (int lane = 1; lane < kCoarseLanes; ++lane) result = x[lane] > result ? x[lane] : result;
  return result;
#endif
}

}  // namespace jax_rtopk::RTOPK_ISA
