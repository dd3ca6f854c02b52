// AVX-512 (F, BW, VL, DQ): 64-byte vectors, native masks, unsigned comparisons and compression.
#pragma once

#if defined(__clang__)
#include <immintrin.h>
#else
// GCC 12 takes the deliberately undefined operands inside its own AVX-512 intrinsics for a fault (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include <cstdint>

namespace jax_rtopk::RTOPK_ISA {

// The mask in a general register, by force: left to itself GCC 12 may spill the two bytes (or the one) of a mask
// register and read four back.
inline uint32_t in_register(__mmask16 mask) {
  uint32_t bits;
  asm("kmovw %1, %0" : "=r"(bits) : "k"(mask));
  return bits;
}
inline uint32_t in_register(__mmask8 mask) {
  uint32_t bits;
  asm("kmovb %1, %0" : "=r"(bits) : "k"(mask));
  return bits;
}

template <class Word>
struct Vec;

template <>
struct Vec<uint32_t> {
  using Lane = uint32_t;
  using Reg = __m512i;
  using Index = __m512i;
  using Mask = uint32_t;
  using Choice = __mmask16;
  static constexpr int kLanes = 16;

  static Reg set1(Lane x) { return _mm512_set1_epi32(int(x)); }
  static Reg load(const Lane* p) { return _mm512_loadu_si512(p); }
  static void store(Lane* p, Reg x) { _mm512_storeu_si512(p, x); }
  static Reg max(Reg a, Reg b) { return _mm512_max_epu32(a, b); }
  // Maxima of pairs, in order: of the even lanes of `even`, two vectors, each with the odd lane of `odd` behind it.
  static Reg max_of_pairs(const Reg (&even)[2], const Reg (&odd)[2]) {
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    return max(_mm512_permutex2var_epi32(even[0], evens, even[1]), _mm512_permutex2var_epi32(odd[0], odds, odd[1]));
  }
  static Mask gt(Reg a, Reg b) { return in_register(_mm512_cmpgt_epu32_mask(a, b)); }
  // The same to choose by: a lane of a where it is greater, of b elsewhere.
  static Choice greater(Reg a, Reg b) { return _mm512_cmpgt_epu32_mask(a, b); }
  static Reg choose(Choice choice, Reg a, Reg b) { return _mm512_mask_mov_epi32(b, choice, a); }
  // count + 1 in lanes where a > b
  static Reg count_gt(Reg count, Reg a, Reg b) {
    return _mm512_mask_sub_epi32(count, _mm512_cmpgt_epu32_mask(a, b), count, _mm512_set1_epi32(-1));
  }

  static int64_t sum(Reg x) { return _mm512_reduce_add_epi32(x); }
  static Lane reduce_max(Reg x) { return _mm512_reduce_max_epu32(x); }

  static Reg widen(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }
  static Reg widen(const uint16_t* p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)); }
  static Reg widen(const uint32_t* p) { return _mm512_loadu_si512(p); }
  // Reads `count` < kLanes elements only; the other lanes are 0.
  static Reg widen_first(const uint8_t* p, int count) {
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(count), p));
  }
  static Reg widen_first(const uint16_t* p, int count) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(count), p));
  }
  static Reg widen_first(const uint32_t* p, int count) { return _mm512_maskz_loadu_epi32(first(count), p); }
  template <int kShift>
  static Reg shift_left(Reg x) {
    return _mm512_slli_epi32(x, kShift);
  }
  template <int kShift>
  static Reg shift_right(Reg x) {
    return _mm512_srli_epi32(x, kShift);
  }
  // (x ^ (sign & spread)) ^ flip
  static Reg key(Reg x, Reg spread, Reg flip) {
    return _mm512_xor_si512(_mm512_ternarylogic_epi32(x, _mm512_srai_epi32(x, 31), spread, 0x78), flip);
  }
  // adds `borrow` where x is negative, between the two steps of key()
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    const Reg sign = _mm512_srai_epi32(x, 31);
    const Reg turned = _mm512_ternarylogic_epi32(x, sign, spread, 0x78);
    return _mm512_xor_si512(_mm512_add_epi32(turned, _mm512_and_si512(sign, borrow)), flip);
  }
  // x in the first `count` lanes, `other` in the rest
  static Reg keep_first(Reg x, int count, Reg other) { return _mm512_mask_mov_epi32(other, first(count), x); }

  // Writes the lanes of `mask` side by side; may write up to kLanes words.
  static void compress(Lane* to, Reg x, Mask mask) { store(to, _mm512_maskz_compress_epi32(__mmask16(mask), x)); }
  // The same with each lane's index, from that of lane 0 on.
  static Index index(int32_t first) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(lane, _mm512_set1_epi32(first));
  }
  static Index next(Index index) { return _mm512_add_epi32(index, _mm512_set1_epi32(kLanes)); }
  static void compress_index(int32_t* to, Index index, Mask mask) {
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(__mmask16(mask), index));
  }
  // The same with kLanes indices from memory.
  static void compress_copy(int32_t* to, const int32_t* from, Mask mask) {
    compress_index(to, _mm512_loadu_si512(from), mask);
  }

 private:
  static __mmask16 first(int count) { return __mmask16((1U << count) - 1); }
};

template <>
struct Vec<uint64_t> {
  using Lane = uint64_t;
  using Reg = __m512i;
  using Index = __m256i;
  using Mask = uint32_t;
  using Choice = __mmask8;
  static constexpr int kLanes = 8;

  static Reg set1(Lane x) { return _mm512_set1_epi64((long long)x); }
  static Reg load(const Lane* p) { return _mm512_loadu_si512(p); }
  static void store(Lane* p, Reg x) { _mm512_storeu_si512(p, x); }
  static Reg max(Reg a, Reg b) { return _mm512_max_epu64(a, b); }
  static Reg max_of_pairs(const Reg (&even)[2], const Reg (&odd)[2]) {
    const __m512i evens = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i odds = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    return max(_mm512_permutex2var_epi64(even[0], evens, even[1]), _mm512_permutex2var_epi64(odd[0], odds, odd[1]));
  }
  static Mask gt(Reg a, Reg b) { return in_register(_mm512_cmpgt_epu64_mask(a, b)); }
  static Choice greater(Reg a, Reg b) { return _mm512_cmpgt_epu64_mask(a, b); }
  static Reg choose(Choice choice, Reg a, Reg b) { return _mm512_mask_mov_epi64(b, choice, a); }
  static Reg count_gt(Reg count, Reg a, Reg b) {
    return _mm512_mask_sub_epi64(count, _mm512_cmpgt_epu64_mask(a, b), count, _mm512_set1_epi64(-1));
  }

  static int64_t sum(Reg x) { return _mm512_reduce_add_epi64(x); }
  static Lane reduce_max(Reg x) { return _mm512_reduce_max_epu64(x); }

  static Reg widen(const uint16_t* p) { return _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i*)p)); }
  static Reg widen(const uint64_t* p) { return _mm512_loadu_si512(p); }
  static Reg widen_first(const uint64_t* p, int count) { return _mm512_maskz_loadu_epi64(first(count), p); }
  static Reg key(Reg x, Reg spread, Reg flip) {
    return _mm512_xor_si512(_mm512_ternarylogic_epi64(x, _mm512_srai_epi64(x, 63), spread, 0x78), flip);
  }
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    const Reg sign = _mm512_srai_epi64(x, 63);
    const Reg turned = _mm512_ternarylogic_epi64(x, sign, spread, 0x78);
    return _mm512_xor_si512(_mm512_add_epi64(turned, _mm512_and_si512(sign, borrow)), flip);
  }
  static Reg keep_first(Reg x, int count, Reg other) { return _mm512_mask_mov_epi64(other, first(count), x); }

  static void compress(Lane* to, Reg x, Mask mask) { store(to, _mm512_maskz_compress_epi64(__mmask8(mask), x)); }
  static Index index(int32_t first) {
    return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  }
  static Index next(Index index) { return _mm256_add_epi32(index, _mm256_set1_epi32(kLanes)); }
  static void compress_index(int32_t* to, Index index, Mask mask) {
    _mm256_storeu_si256((__m256i*)to, _mm256_maskz_compress_epi32(__mmask8(mask), index));
  }
  static void compress_copy(int32_t* to, const int32_t* from, Mask mask) {
    compress_index(to, _mm256_loadu_si256((const __m256i*)from), mask);
  }

 private:
  static __mmask8 first(int count) { return __mmask8((1U << count) - 1); }
};

}  // namespace jax_rtopk::RTOPK_ISA
