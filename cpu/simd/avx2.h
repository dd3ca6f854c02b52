// AVX2: 32-byte vectors. Masks come from movemask, unsigned comparisons from signed ones, compression from a table of
// permutations.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

namespace jax_rtopk::RTOPK_ISA {

// kCompress[mask] lists the set bits of an 8-bit mask, lowest first.
struct alignas(32) Permutation {
  int32_t lane[8];
};
inline constexpr std::array<Permutation, 256> kCompress = [] {
  std::array<Permutation, 256> table{};
  for (int mask = 0; mask < 256; ++mask) {
    int count = 0;
    for (int lane = 0; lane < 8; ++lane) {
      if (mask >> lane & 1) table[mask].lane[count++] = lane;
    }
  }
  return table;
}();

// kSpread[mask] doubles every bit of a 4-bit mask: the 32-bit halves of 64-bit lanes.
inline constexpr std::array<uint8_t, 16> kSpread = [] {
  std::array<uint8_t, 16> table{};
  for (int mask = 0; mask < 16; ++mask) {
    for (int lane = 0; lane < 4; ++lane) {
      if (mask >> lane & 1) table[mask] = uint8_t(table[mask] | 3 << 2 * lane);
    }
  }
  return table;
}();

inline __m256i permutation(uint32_t mask) { return _mm256_load_si256((const __m256i*)kCompress[mask].lane); }

template <class Word>
struct Vec;

template <>
struct Vec<uint32_t> {
  using Reg = __m256i;
  using Mask = uint32_t;
  static constexpr int kLanes = 8;

  static Reg set1(uint32_t x) { return _mm256_set1_epi32(int(x)); }
  static Reg load(const uint32_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
  static void store(uint32_t* p, Reg x) { _mm256_storeu_si256((__m256i*)p, x); }
  static Reg max(Reg a, Reg b) { return _mm256_max_epu32(a, b); }
  static Mask gt(Reg a, Reg b) { return ~ge(b, a) & 0xFF; }
  static Mask ge(Reg a, Reg b) { return bits(at_least(a, b)); }
  static Reg count_ge(Reg count, Reg a, Reg b) { return _mm256_sub_epi32(count, at_least(a, b)); }

  // For ranking, on keys that to_ordered() has prepared (and undoes): count + 1, or - 1, in lanes where a > b. They are
  // moved by half the range, since the comparison is a signed one.
  static Reg to_ordered(Reg x) { return _mm256_xor_si256(x, _mm256_set1_epi32(int(0x80000000U))); }
  static Reg count_greater(Reg count, Reg a, Reg b) { return _mm256_sub_epi32(count, _mm256_cmpgt_epi32(a, b)); }
  static Reg uncount_greater(Reg count, Reg a, Reg b) { return _mm256_add_epi32(count, _mm256_cmpgt_epi32(a, b)); }
  // + 1 where a > b, or a == b and the lane is after `lane`
  static Reg count_before(Reg count, Reg a, Reg b, int lane) {
    const __m256i after = _mm256_cmpgt_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(lane));
    const __m256i hit = _mm256_or_si256(_mm256_cmpgt_epi32(a, b), _mm256_and_si256(_mm256_cmpeq_epi32(a, b), after));
    return _mm256_sub_epi32(count, hit);
  }

  static int64_t sum(Reg x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
  }
  static uint32_t reduce_max(Reg x) {
    __m128i s = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_max_epu32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_max_epu32(s, _mm_shuffle_epi32(s, 0xB1));
    return uint32_t(_mm_cvtsi128_si32(s));
  }

  static Reg widen(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
  static Reg widen(const uint16_t* p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)); }
  static Reg widen(const uint32_t* p) { return load(p); }
  // Reads `count` < kLanes elements only; the other lanes are 0.
  template <class Bits>
  static Reg widen_first(const Bits* p, int count) {
    Bits lanes[kLanes] = {};
    for (int lane = 0; lane < count; ++lane) lanes[lane] = p[lane];
    return widen(lanes);
  }
  static Reg widen_first(const uint32_t* p, int count) { return _mm256_maskload_epi32((const int*)p, first(count)); }
  template <int kShift>
  static Reg shift_left(Reg x) {
    return _mm256_slli_epi32(x, kShift);
  }
  template <int kShift>
  static Reg shift_right(Reg x) {
    return _mm256_srli_epi32(x, kShift);
  }
  // (x ^ (sign & spread)) ^ flip
  static Reg key(Reg x, Reg spread, Reg flip) {
    return _mm256_xor_si256(_mm256_xor_si256(x, _mm256_and_si256(_mm256_srai_epi32(x, 31), spread)), flip);
  }
  // adds `borrow` where x is negative, between the two steps of key()
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    const Reg sign = _mm256_srai_epi32(x, 31);
    const Reg turned = _mm256_xor_si256(x, _mm256_and_si256(sign, spread));
    return _mm256_xor_si256(_mm256_add_epi32(turned, _mm256_and_si256(sign, borrow)), flip);
  }
  // x where a >= b, else 0
  static Reg where_ge(Reg x, Reg a, Reg b) { return _mm256_and_si256(x, at_least(a, b)); }
  static Reg keep_first(Reg x, int count) { return _mm256_and_si256(x, first(count)); }

  // Writes the lanes of `mask` side by side; may write up to kLanes words.
  static void compress(uint32_t* to, Reg x, Mask mask) { store(to, _mm256_permutevar8x32_epi32(x, permutation(mask))); }
  // The same with each lane's index, `first` being that of lane 0: the permutation itself, moved.
  static void compress_index(int32_t* to, int32_t first, Mask mask) {
    _mm256_storeu_si256((__m256i*)to, _mm256_add_epi32(permutation(mask), _mm256_set1_epi32(first)));
  }

 private:
  static Reg first(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg at_least(Reg a, Reg b) { return _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a); }
  static Mask bits(Reg x) { return Mask(_mm256_movemask_ps(_mm256_castsi256_ps(x))); }
};

template <>
struct Vec<uint64_t> {
  using Reg = __m256i;
  using Mask = uint32_t;
  static constexpr int kLanes = 4;

  static Reg set1(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
  static Reg load(const uint64_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
  static void store(uint64_t* p, Reg x) { _mm256_storeu_si256((__m256i*)p, x); }
  static Reg max(Reg a, Reg b) { return _mm256_blendv_epi8(b, a, above(a, b)); }
  static Mask gt(Reg a, Reg b) { return bits(above(a, b)); }
  static Mask ge(Reg a, Reg b) { return ~gt(b, a) & 0xF; }
  static Reg count_ge(Reg count, Reg a, Reg b) {
    return _mm256_add_epi64(_mm256_sub_epi64(count, _mm256_set1_epi64x(-1)), above(b, a));
  }

  static Reg to_ordered(Reg x) { return _mm256_xor_si256(x, _mm256_set1_epi64x((long long)0x8000000000000000ULL)); }
  static Reg count_greater(Reg count, Reg a, Reg b) { return _mm256_sub_epi64(count, _mm256_cmpgt_epi64(a, b)); }
  static Reg uncount_greater(Reg count, Reg a, Reg b) { return _mm256_add_epi64(count, _mm256_cmpgt_epi64(a, b)); }
  static Reg count_before(Reg count, Reg a, Reg b, int lane) {
    const __m256i after = _mm256_cmpgt_epi64(_mm256_setr_epi64x(0, 1, 2, 3), _mm256_set1_epi64x(lane));
    const __m256i hit = _mm256_or_si256(_mm256_cmpgt_epi64(a, b), _mm256_and_si256(_mm256_cmpeq_epi64(a, b), after));
    return _mm256_sub_epi64(count, hit);
  }

  static int64_t sum(Reg x) {
    const __m128i s = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_cvtsi128_si64(_mm_add_epi64(s, _mm_unpackhi_epi64(s, s)));
  }
  static uint64_t reduce_max(Reg x) {
    alignas(32) uint64_t lanes[4];
    _mm256_store_si256((__m256i*)lanes, x);
    uint64_t most = lanes[0];
    for (const uint64_t lane : lanes) most = lane > most ? lane : most;
    return most;
  }

  static Reg widen(const uint64_t* p) { return load(p); }
  static Reg widen_first(const uint64_t* p, int count) {
    return _mm256_maskload_epi64((const long long*)p, first(count));
  }
  static Reg key(Reg x, Reg spread, Reg flip) {
    return _mm256_xor_si256(_mm256_xor_si256(x, _mm256_and_si256(sign(x), spread)), flip);
  }
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    const Reg turned = _mm256_xor_si256(x, _mm256_and_si256(sign(x), spread));
    return _mm256_xor_si256(_mm256_add_epi64(turned, _mm256_and_si256(sign(x), borrow)), flip);
  }
  static Reg where_ge(Reg x, Reg a, Reg b) { return _mm256_andnot_si256(above(b, a), x); }
  static Reg keep_first(Reg x, int count) { return _mm256_and_si256(x, first(count)); }

  static void compress(uint64_t* to, Reg x, Mask mask) {
    store(to, _mm256_permutevar8x32_epi32(x, permutation(kSpread[mask])));
  }
  static void compress_index(int32_t* to, int32_t first, Mask mask) {
    const __m128i lanes = _mm_load_si128((const __m128i*)kCompress[mask].lane);
    _mm_storeu_si128((__m128i*)to, _mm_add_epi32(lanes, _mm_set1_epi32(first)));
  }

 private:
  static Reg first(int count) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3)); }
  static Reg sign(Reg x) { return _mm256_cmpgt_epi64(_mm256_setzero_si256(), x); }
  static Reg above(Reg a, Reg b) {
    const Reg bias = _mm256_set1_epi64x((long long)0x8000000000000000ULL);
    return _mm256_cmpgt_epi64(_mm256_xor_si256(a, bias), _mm256_xor_si256(b, bias));
  }
  static Mask bits(Reg x) { return Mask(_mm256_movemask_pd(_mm256_castsi256_pd(x))); }
};

}  // namespace jax_rtopk::RTOPK_ISA
