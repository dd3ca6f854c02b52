// AVX2: 32-byte vectors. Masks come from movemask, compression from a table of permutations. Only signed integers are
// compared in one instruction, so lanes are signed.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

namespace jax_rtopk::RTOPK_ISA {

// kCompress[mask] lists the set bits of an 8-bit mask, lowest first.
struct Permutation {
  uint8_t lane[8];
};
inline constexpr std::array<Permutation, 256> kCompress = [] {
  std::array<Permutation, 256> table{};
  for (int mask = 0; mask < 256; ++mask) {
    int count = 0;
    for (int lane = 0; lane < 8; ++lane) {
      if (mask >> lane & 1) table[mask].lane[count++] = uint8_t(lane);
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

inline __m256i permutation(uint32_t mask) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)kCompress[mask].lane));
}

template <class Word>
struct Vec;

template <>
struct Vec<uint32_t> {
  using Lane = int32_t;
  using Reg = __m256i;
  using Index = __m256i;
  using Mask = uint32_t;
  using Choice = __m256i;
  static constexpr int kLanes = 8;

  static Reg set1(Lane x) { return _mm256_set1_epi32(x); }
  static Reg load(const Lane* p) { return _mm256_loadu_si256((const __m256i*)p); }
  static void store(Lane* p, Reg x) { _mm256_storeu_si256((__m256i*)p, x); }
  static Reg max(Reg a, Reg b) { return _mm256_max_epi32(a, b); }
  // Maxima of pairs, in order: of the even lanes of `even`, two vectors, each with the odd lane of `odd` behind it.
  static Reg max_of_pairs(const Reg (&even)[2], const Reg (&odd)[2]) {
    const __m256 evens = _mm256_shuffle_ps(_mm256_castsi256_ps(even[0]), _mm256_castsi256_ps(even[1]), 0x88);
    const __m256 odds = _mm256_shuffle_ps(_mm256_castsi256_ps(odd[0]), _mm256_castsi256_ps(odd[1]), 0xDD);
    return _mm256_permute4x64_epi64(max(_mm256_castps_si256(evens), _mm256_castps_si256(odds)), 0xD8);
  }
  static Mask gt(Reg a, Reg b) { return Mask(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b)))); }
  // The same to choose by: a lane of a where it is greater, of b elsewhere.
  static Choice greater(Reg a, Reg b) { return _mm256_cmpgt_epi32(a, b); }
  static Reg choose(Choice choice, Reg a, Reg b) { return _mm256_blendv_epi8(b, a, choice); }
  // count + 1 in lanes where a > b
  static Reg count_gt(Reg count, Reg a, Reg b) { return _mm256_sub_epi32(count, _mm256_cmpgt_epi32(a, b)); }

  static int64_t sum(Reg x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
  }
  static Lane reduce_max(Reg x) {
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
  }

  static Reg widen(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
  static Reg widen(const uint16_t* p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)); }
  static Reg widen(const uint32_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
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
  // x in the first `count` lanes, `other` in the rest
  static Reg keep_first(Reg x, int count, Reg other) { return _mm256_blendv_epi8(other, x, first(count)); }

  // Writes the lanes of `mask` side by side; may write up to kLanes words.
  static void compress(Lane* to, Reg x, Mask mask) { store(to, _mm256_permutevar8x32_epi32(x, permutation(mask))); }
  // The same with each lane's index: the permutation itself, moved.
  static Index index(int32_t first) { return _mm256_set1_epi32(first); }
  static Index next(Index index) { return _mm256_add_epi32(index, _mm256_set1_epi32(kLanes)); }
  static void compress_index(int32_t* to, Index index, Mask mask) {
    _mm256_storeu_si256((__m256i*)to, _mm256_add_epi32(permutation(mask), index));
  }
  // The same with kLanes indices from memory.
  static void compress_copy(int32_t* to, const int32_t* from, Mask mask) { compress(to, load(from), mask); }

 private:
  static Reg first(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

template <>
struct Vec<uint64_t> {
  using Lane = int64_t;
  using Reg = __m256i;
  using Index = __m128i;
  using Mask = uint32_t;
  using Choice = __m256i;
  static constexpr int kLanes = 4;

  static Reg set1(Lane x) { return _mm256_set1_epi64x((long long)x); }
  static Reg load(const Lane* p) { return _mm256_loadu_si256((const __m256i*)p); }
  static void store(Lane* p, Reg x) { _mm256_storeu_si256((__m256i*)p, x); }
  static Reg max(Reg a, Reg b) { return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)); }
  static Reg max_of_pairs(const Reg (&even)[2], const Reg (&odd)[2]) {
    const __m256i evens = _mm256_unpacklo_epi64(even[0], even[1]), odds = _mm256_unpackhi_epi64(odd[0], odd[1]);
    return _mm256_permute4x64_epi64(max(evens, odds), 0xD8);
  }
  static Mask gt(Reg a, Reg b) { return Mask(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(a, b)))); }
  static Choice greater(Reg a, Reg b) { return _mm256_cmpgt_epi64(a, b); }
  static Reg choose(Choice choice, Reg a, Reg b) { return _mm256_blendv_epi8(b, a, choice); }
  static Reg count_gt(Reg count, Reg a, Reg b) { return _mm256_sub_epi64(count, _mm256_cmpgt_epi64(a, b)); }

  static int64_t sum(Reg x) {
    const __m128i s = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_cvtsi128_si64(_mm_add_epi64(s, _mm_unpackhi_epi64(s, s)));
  }
  static Lane reduce_max(Reg x) {
    alignas(32) Lane lanes[4];
    store(lanes, x);
    Lane most = lanes[0];
    for (const Lane lane : lanes) most = lane > most ? lane : most;
    return most;
  }

  static Reg widen(const uint16_t* p) { return _mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i*)p)); }
  static Reg widen(const uint64_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
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
  static Reg keep_first(Reg x, int count, Reg other) { return _mm256_blendv_epi8(other, x, first(count)); }

  static void compress(Lane* to, Reg x, Mask mask) {
    store(to, _mm256_permutevar8x32_epi32(x, permutation(kSpread[mask])));
  }
  static Index index(int32_t first) { return _mm_set1_epi32(first); }
  static Index next(Index index) { return _mm_add_epi32(index, _mm_set1_epi32(kLanes)); }
  static void compress_index(int32_t* to, Index index, Mask mask) {
    _mm_storeu_si128((__m128i*)to, _mm_add_epi32(_mm256_castsi256_si128(permutation(mask)), index));
  }
  static void compress_copy(int32_t* to, const int32_t* from, Mask mask) {
    const __m128 indices = _mm_loadu_ps((const float*)from);
    _mm_storeu_ps((float*)to, _mm_permutevar_ps(indices, _mm256_castsi256_si128(permutation(mask))));
  }

 private:
  static Reg first(int count) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3)); }
  static Reg sign(Reg x) { return _mm256_cmpgt_epi64(_mm256_setzero_si256(), x); }
};

}  // namespace jax_rtopk::RTOPK_ISA
