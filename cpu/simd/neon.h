// NEON, which every arm64 machine has: 16-byte vectors. A mask is the sum of a power of two for each lane, compression
// a table of permutations of bytes.
#pragma once

#include <arm_neon.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace jax_rtopk::RTOPK_ISA {

// kCompress<lanes>[mask] lists the bytes of the lanes whose bits are set in the mask, lowest first.
struct Permutation {
  uint8_t byte[16];
};
template <int lanes>
inline constexpr std::array<Permutation, 1 << lanes> kCompress = [] {
  constexpr int kBytes = 16 / lanes;
  std::array<Permutation, 1 << lanes> table{};
  for (int mask = 0; mask < 1 << lanes; ++mask) {
    int count = 0;
    for (int byte = 0; byte < 16; ++byte) {
      if (mask >> byte / kBytes & 1) table[mask].byte[count++] = uint8_t(byte);
    }
  }
  return table;
}();

template <class Word>
struct Vec;

template <>
struct Vec<uint32_t> {
  using Lane = uint32_t;
  using Reg = uint32x4_t;
  using Index = uint32x4_t;
  using Mask = uint32_t;
  using Choice = uint32x4_t;
  static constexpr int kLanes = 4;

  static Reg set1(Lane x) { return vdupq_n_u32(x); }
  static Reg load(const Lane* p) { return vld1q_u32(p); }
  static void store(Lane* p, Reg x) { vst1q_u32(p, x); }
  static Reg max(Reg a, Reg b) { return vmaxq_u32(a, b); }
  // Maxima of pairs, in order: of the even lanes of `even`, two vectors, each with the odd lane of `odd` behind it.
  static Reg max_of_pairs(const Reg (&even)[2], const Reg (&odd)[2]) {
    return max(vuzp1q_u32(even[0], even[1]), vuzp2q_u32(odd[0], odd[1]));
  }
  static Mask gt(Reg a, Reg b) { return vaddvq_u32(vandq_u32(vcgtq_u32(a, b), Reg{1, 2, 4, 8})); }
  // The same to choose by: a lane of a where it is greater, of b elsewhere.
  static Choice greater(Reg a, Reg b) { return vcgtq_u32(a, b); }
  static Reg choose(Choice choice, Reg a, Reg b) { return vbslq_u32(choice, a, b); }
  // count + 1 in lanes where a > b
  static Reg count_gt(Reg count, Reg a, Reg b) { return vsubq_u32(count, vcgtq_u32(a, b)); }

  static int64_t sum(Reg x) { return vaddvq_u32(x); }
  static Lane reduce_max(Reg x) { return vmaxvq_u32(x); }

  static Reg widen(const uint8_t* p) {
    uint32_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
  }
  static Reg widen(const uint16_t* p) { return vmovl_u16(vld1_u16(p)); }
  static Reg widen(const uint32_t* p) { return vld1q_u32(p); }
  // Reads `count` < kLanes elements only; the other lanes are 0.
  template <class Bits>
  static Reg widen_first(const Bits* p, int count) {
    Bits lanes[kLanes] = {};
    for (int lane = 0; lane < count; ++lane) lanes[lane] = p[lane];
    return widen(lanes);
  }
  template <int kShift>
  static Reg shift_left(Reg x) {
    return vshlq_n_u32(x, kShift);
  }
  template <int kShift>
  static Reg shift_right(Reg x) {
    return vshrq_n_u32(x, kShift);
  }
  // (x ^ (sign & spread)) ^ flip
  static Reg key(Reg x, Reg spread, Reg flip) { return veorq_u32(veorq_u32(x, vandq_u32(sign(x), spread)), flip); }
  // adds `borrow` where x is negative, between the two steps of key()
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    const Reg turned = veorq_u32(x, vandq_u32(sign(x), spread));
    return veorq_u32(vaddq_u32(turned, vandq_u32(sign(x), borrow)), flip);
  }
  // x in the first `count` lanes, `other` in the rest
  static Reg keep_first(Reg x, int count, Reg other) {
    return vbslq_u32(vcgtq_u32(vdupq_n_u32(uint32_t(count)), Reg{0, 1, 2, 3}), x, other);
  }

  // Writes the lanes of `mask` side by side; may write up to kLanes words.
  static void compress(Lane* to, Reg x, Mask mask) { store(to, compressed(x, mask)); }
  // The same with each lane's index, from that of lane 0 on.
  static Index index(int32_t first) { return vaddq_u32(vdupq_n_u32(uint32_t(first)), Index{0, 1, 2, 3}); }
  static Index next(Index index) { return vaddq_u32(index, vdupq_n_u32(kLanes)); }
  static void compress_index(int32_t* to, Index index, Mask mask) {
    vst1q_s32(to, vreinterpretq_s32_u32(compressed(index, mask)));
  }
  // The same with kLanes indices from memory.
  static void compress_copy(int32_t* to, const int32_t* from, Mask mask) {
    compress_index(to, vreinterpretq_u32_s32(vld1q_s32(from)), mask);
  }

 private:
  static Reg sign(Reg x) { return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x), 31)); }
  static Reg compressed(Reg x, Mask mask) {
    return vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(x), vld1q_u8(kCompress<4>[mask].byte)));
  }
};

template <>
struct Vec<uint64_t> {
  using Lane = uint64_t;
  using Reg = uint64x2_t;
  using Index = uint32x2_t;
  using Mask = uint32_t;
  using Choice = uint64x2_t;
  static constexpr int kLanes = 2;

  static Reg set1(Lane x) { return vdupq_n_u64(x); }
  static Reg load(const Lane* p) { return vld1q_u64(p); }
  static void store(Lane* p, Reg x) { vst1q_u64(p, x); }
  static Reg max(Reg a, Reg b) { return vbslq_u64(vcgtq_u64(a, b), a, b); }
  static Reg max_of_pairs(const Reg (&even)[2], const Reg (&odd)[2]) {
    return max(vuzp1q_u64(even[0], even[1]), vuzp2q_u64(odd[0], odd[1]));
  }
  static Mask gt(Reg a, Reg b) { return Mask(vaddvq_u64(vandq_u64(vcgtq_u64(a, b), Reg{1, 2}))); }
  static Choice greater(Reg a, Reg b) { return vcgtq_u64(a, b); }
  static Reg choose(Choice choice, Reg a, Reg b) { return vbslq_u64(choice, a, b); }
  static Reg count_gt(Reg count, Reg a, Reg b) { return vsubq_u64(count, vcgtq_u64(a, b)); }

  static int64_t sum(Reg x) { return int64_t(vaddvq_u64(x)); }
  static Lane reduce_max(Reg x) {
    const Lane first = vgetq_lane_u64(x, 0), second = vgetq_lane_u64(x, 1);
    return first > second ? first : second;
  }

  static Reg widen(const uint16_t* p) {
    uint32_t lanes;
    std::memcpy(&lanes, p, sizeof lanes);
    return vmovl_u32(vget_low_u32(vmovl_u16(vcreate_u16(lanes))));
  }
  static Reg widen(const uint64_t* p) { return vld1q_u64(p); }
  static Reg widen_first(const uint64_t* p, int count) {
    uint64_t lanes[kLanes] = {};
    for (int lane = 0; lane < count; ++lane) lanes[lane] = p[lane];
    return widen(lanes);
  }
  static Reg key(Reg x, Reg spread, Reg flip) { return veorq_u64(veorq_u64(x, vandq_u64(sign(x), spread)), flip); }
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    const Reg turned = veorq_u64(x, vandq_u64(sign(x), spread));
    return veorq_u64(vaddq_u64(turned, vandq_u64(sign(x), borrow)), flip);
  }
  static Reg keep_first(Reg x, int count, Reg other) {
    return vbslq_u64(vcgtq_u64(vdupq_n_u64(uint64_t(count)), Reg{0, 1}), x, other);
  }

  static void compress(Lane* to, Reg x, Mask mask) {
    store(to, vreinterpretq_u64_u8(vqtbl1q_u8(vreinterpretq_u8_u64(x), vld1q_u8(kCompress<2>[mask].byte))));
  }
  static Index index(int32_t first) { return vadd_u32(vdup_n_u32(uint32_t(first)), Index{0, 1}); }
  static Index next(Index index) { return vadd_u32(index, vdup_n_u32(kLanes)); }
  static void compress_index(int32_t* to, Index index, Mask mask) {
    vst1_s32(to, vreinterpret_s32_u8(vtbl1_u8(vreinterpret_u8_u32(index), vld1_u8(kCompress<4>[mask].byte))));
  }
  static void compress_copy(int32_t* to, const int32_t* from, Mask mask) {
    compress_index(to, vreinterpret_u32_s32(vld1_s32(from)), mask);
  }

 private:
  static Reg sign(Reg x) { return vreinterpretq_u64_s64(vshrq_n_s64(vreinterpretq_s64_u64(x), 63)); }
};

}  // namespace jax_rtopk::RTOPK_ISA
