// Any machine: the compiler's generic 16-byte vectors (SSE2 on x86-64), masks and compression lane by lane. Lanes are
// signed, as SSE2 compares nothing else.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace jax_rtopk::RTOPK_ISA {

template <class Word>
struct Vec {
  using Lane = std::make_signed_t<Word>;
  typedef Lane Reg __attribute__((vector_size(16)));
  using Index = int32_t;
  using Mask = uint32_t;
  using Choice = Reg;
  static constexpr int kLanes = int(16 / sizeof(Word));

  static Reg set1(Lane x) { return Reg{} + x; }
  static Reg load(const Lane* p) {
    Reg x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(Lane* p, Reg x) { std::memcpy(p, &x, sizeof x); }
  static Reg max(Reg a, Reg b) { return a > b ? a : b; }
  // Maxima of pairs, in order: of the even lanes of `even`, two vectors, each with the odd lane of `odd` behind it.
  static Reg max_of_pairs(const Reg (&even)[2], const Reg (&odd)[2]) {
    Reg evens, odds;
    for (int lane = 0; lane < kLanes; ++lane) {
      evens[lane] = even[2 * lane / kLanes][2 * lane % kLanes];
      odds[lane] = odd[2 * lane / kLanes][2 * lane % kLanes + 1];
    }
    return max(evens, odds);
  }
  static Mask gt(Reg a, Reg b) {
    const Reg greater = a > b;
    Mask mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) mask |= Mask(greater[lane] & 1) << lane;
    return mask;
  }
  // The same to choose by: a lane of a where it is greater, of b elsewhere.
  static Choice greater(Reg a, Reg b) { return a > b; }
  static Reg choose(Choice choice, Reg a, Reg b) { return (a & choice) | (b & ~choice); }
  // count + 1 in lanes where a > b
  static Reg count_gt(Reg count, Reg a, Reg b) { return count - Reg(a > b); }

  static int64_t sum(Reg x) {
    int64_t total = 0;
    for (int lane = 0; lane < kLanes; ++lane) total += int64_t(x[lane]);
    return total;
  }
  static Lane reduce_max(Reg x) {
    Lane most = x[0];
    for (int lane = 1; lane < kLanes; ++lane) most = x[lane] > most ? x[lane] : most;
    return most;
  }

  template <class Bits>
  static Reg widen(const Bits* p) {
    Reg x{};
    for (int lane = 0; lane < kLanes; ++lane) x[lane] = Lane(p[lane]);
    return x;
  }
  static Reg widen(const Word* p) {
    Reg x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  // Reads `count` < kLanes elements only; the other lanes are 0.
  template <class Bits>
  static Reg widen_first(const Bits* p, int count) {
    Reg x{};
    for (int lane = 0; lane < count; ++lane) x[lane] = Lane(p[lane]);
    return x;
  }
  template <int kShift>
  static Reg shift_left(Reg x) {
    return Reg(Unsigned(x) << kShift);
  }
  template <int kShift>
  static Reg shift_right(Reg x) {
    return Reg(Unsigned(x) >> kShift);
  }
  // (x ^ (sign & spread)) ^ flip
  static Reg key(Reg x, Reg spread, Reg flip) { return x ^ (sign(x) & spread) ^ flip; }
  // adds `borrow` where x is negative, between the two steps of key()
  static Reg key(Reg x, Reg spread, Reg borrow, Reg flip) {
    return Reg(Unsigned(x ^ (sign(x) & spread)) + Unsigned(sign(x) & borrow)) ^ flip;
  }
  // x in the first `count` lanes, `other` in the rest
  static Reg keep_first(Reg x, int count, Reg other) {
    for (int lane = count; lane < kLanes; ++lane) x[lane] = other[lane];
    return x;
  }

  // Writes the lanes of `mask` side by side; may write up to kLanes words.
  static void compress(Lane* to, Reg x, Mask mask) {
    for (int lane = 0; lane < kLanes; ++lane) {
      *to = x[lane];
      to += mask >> lane & 1;
    }
  }
  // The same with each lane's index, from that of lane 0 on.
  static Index index(int32_t first) { return first; }
  static Index next(Index index) { return index + kLanes; }
  static void compress_index(int32_t* to, Index index, Mask mask) {
    for (int lane = 0; lane < kLanes; ++lane) {
      *to = index + lane;
      to += mask >> lane & 1;
    }
  }
  // The same with kLanes indices from memory.
  static void compress_copy(int32_t* to, const int32_t* from, Mask mask) {
    for (int lane = 0; lane < kLanes; ++lane) {
      *to = from[lane];
      to += mask >> lane & 1;
    }
  }

 private:
  typedef Word Unsigned __attribute__((vector_size(16)));
  static Reg sign(Reg x) { return x >> int(8 * sizeof(Word) - 1); }
};

}  // namespace jax_rtopk::RTOPK_ISA
