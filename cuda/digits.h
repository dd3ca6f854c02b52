// Few long rows, by many blocks each: the k-th largest key is found digit by digit, from the histograms of the keys
// that begin with the digits found so far. The histograms are in a workspace, an additional result of the call.
#pragma once

#include <cstdint>

#include "cuda/policy.h"
#include "native/ordered_key.h"

namespace jax_rtopk::cuda {

// The digits of keys, from the highest on.
struct Digits {
  int key_bits, bits;  // of a digit; the last one may begin with bits of the one before

  // Eight bits of a 16-bit float would be little more than its exponent, and most keys have one of a few.
  static constexpr Digits of(int item_bytes) { return {8 * item_bytes, item_bytes == 1 ? 8 : 11}; }

  RTOPK_HD constexpr int count() const { return (key_bits - 1) / bits + 1; }
  RTOPK_HD constexpr int bins() const { return 1 << bits; }

  // Below digit number i lie so many bits.
  RTOPK_HD constexpr int shift(int i) const { return i + 1 == count() ? 0 : key_bits - (i + 1) * bits; }
};

// What is known of a row's k-th largest key after some digits.
struct alignas(16) DigitState {
  uint64_t key;   // the digits found; zeros below
  uint32_t left;  // so many of those that begin with them are selected
};

// Of a part of a row: how many of its keys are above the k-th largest, and how many are equal to it.
struct alignas(8) PartCounts {
  uint32_t above, equal;
};

// Where a launch's histograms, states and counts lie in its workspace.
struct DigitsWorkspace {
  int64_t states_at, counts_at, bytes;

  static constexpr DigitsWorkspace make(int64_t rows, int item_bytes) {
    const Digits digits = Digits::of(item_bytes);
    const int64_t states_at = rows * digits.count() * digits.bins() * int64_t(sizeof(uint32_t));
    const int64_t counts_at = states_at + rows * digits.count() * int64_t(sizeof(DigitState));
    return {states_at, counts_at, counts_at + rows * policy::kMostDigitParts * int64_t(sizeof(PartCounts))};
  }
};

// What a row needs of it. May only become less, as may all that exported programs bring.
constexpr int64_t digits_workspace_bytes(int item_bytes) { return DigitsWorkspace::make(1, item_bytes).bytes; }

}  // namespace jax_rtopk::cuda
