// A set of indices of a row, which puts them in order: one bit for each element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/simd/select.h"

namespace jax_rtopk::RTOPK_ISA {

class IndexSet {
 public:
  // Of indices below n.
  explicit IndexSet(int64_t n) : words_(size_t((n + kBits - 1) / kBits)) {}

  void insert(int32_t index) { words_[size_t(index / kBits)] |= uint64_t(1) << (index % kBits); }

  // Writes all of them, ascending, and leaves the set empty.
  void drain(int32_t* to) {
    int64_t first = 0;
    for (uint64_t& word : words_) {
      for (; word != 0; word &= word - 1) *to++ = int32_t(first + __builtin_ctzll(word));
      first += kBits;
    }
  }

 private:
  static constexpr int32_t kBits = 64;
  std::vector<uint64_t> words_;
};

}  // namespace jax_rtopk::RTOPK_ISA
