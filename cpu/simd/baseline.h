// Any machine: the compiler's generic 16-byte vectors (SSE2, NEON), masks and compression lane by lane.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace jax_rtopk::RTOPK_ISA {

template <class Word>
struct Vec {
  typedef Word Reg __attribute__((vector_size(16)));
  using Mask = uint32_t;
  using Signed = std::make_signed_t<Word>;
  typedef Signed SignedReg __attribute__((vector_size(16)));
  static constexpr int kLanes = int(16 / sizeof(Word));

  static Reg set1(Word x) { return Reg{} + x; }
  static Reg load(const Word* p) {
    Reg x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(Word* p, Reg x) { std::memcpy(p, &x, sizeof x); }
  static Reg max(Reg a, Reg b) { return a > b ? a : b; }
  static Mask gt(Reg a, Reg b) { return bits(a > b); }
  static Mask ge(Reg a, Reg b) { return bits(a >= b); }
  // count + 1 in every lane where a >= b
  static Reg count_ge(Reg count, Reg a, Reg b) { return count - Reg(a >= b); }

  // For ranking, on keys that to_ordered() has prepared (and undoes): count + 1, or - 1, in lanes where a > b.
  static Reg to_ordered(Reg x) { return x; }
  static Reg count_greater(Reg count, Reg a, Reg b) { return count - Reg(a > b); }
  static Reg uncount_greater(Reg count, Reg a, Reg b) { return count + Reg(a > b); }
  // + 1 where a > b, or a == b and the lane is after `lane`
  static Reg count_before(Reg count, Reg a, Reg b, int lane) {
    Reg after{};
    for (int i = lane + 1; i < kLanes; ++i) after[i] = Word(~Word(0));
    return count - (Reg(a > b) | (Reg(a == b) & after));
  }

  static int64_t sum(Reg x) {
    int64_t total = 0;
    for (int lane = 0; lane < kLanes; ++lane) total += int64_t(x[lane]);
    return total;
  }
  static Word reduce_max(Reg x) {
    Word most = x[0];
    for (int lane = 1; lane < kLanes; ++lane) most = x[lane] > most ? x[lane] : most;
    return most;
  }

  template <class Bits>
  static Reg widen(const Bits* p) {
    Reg x{};
    for (int lane = 0; lane < kLanes; ++lane) x[lane] = p[lane];
    return x;
  }
  static Reg widen(const Word* p) { return load(p); }
  // Reads `count` < kLanes elements only; the other lanes are 0.
  template <class Bits>
  static Reg widen_first(const Bits* p, int count) {
    Reg x{};
    for (int lane = 0; lane < count; ++lane) x[lane] = p[lane];
    return x;
  }
  template <int kShift>
  static Reg shift_left(Reg x) {
    return x << kShift;
  }
  template <int kShift>
  static Reg shift_right(Reg x) {
    return x >> kShift;
  }
  // (x ^ (sign & spread)) ^ flip
  static Reg key(Reg x, Reg spread, Reg flip) { return x ^ (sign(x) & spread) ^ flip; }
  // adds `borrow` where x is negative, between the two steps of key()
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    return ((x ^ (sign(x) & spread)) + (sign(x) & borrow)) ^ flip;
  }
  // x where a >= b, else 0
  static Reg where_ge(Reg x, Reg a, Reg b) { return x & Reg(a >= b); }
  static Reg keep_first(Reg x, int count) {
    for (int lane = count; lane < kLanes; ++lane) x[lane] = 0;
    return x;
  }

  // Writes the lanes of `mask` side by side; may write up to kLanes words.
  static void compress(Word* to, Reg x, Mask mask) {
    for (int lane = 0; lane < kLanes; ++lane) {
      *to = x[lane];
      to += mask >> lane & 1;
    }
  }
  // The same with each lane's index, `first` being that of lane 0.
  static void compress_index(int32_t* to, int32_t first, Mask mask) {
    for (int lane = 0; lane < kLanes; ++lane) {
      *to = first + lane;
      to += mask >> lane & 1;
    }
  }

 private:
  static Reg sign(Reg x) { return Reg(SignedReg(x) >> int(8 * sizeof(Word) - 1)); }
  static Mask bits(SignedReg x) {
    Mask mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) mask |= Mask(x[lane] & 1) << lane;
    return mask;
  }
};

}  // namespace jax_rtopk::RTOPK_ISA
