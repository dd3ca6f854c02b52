// Orders many selected elements: a least-significant-digit radix sort, which is stable, so that equal keys stay by
// index.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/simd/select.h"

namespace jax_rtopk::RTOPK_ISA {

template <class Word>
class RadixSort {
 public:
  struct Element {
    Word key;
    int32_t index;
  };

  // The elements to be sorted, in ascending order of index; good until the next call.
  Element* elements(int32_t count) {
    elements_.resize(size_t(count));
    other_.resize(size_t(count));
    return elements_.data();
  }

  // Largest keys first. Returns the sorted elements, good until the next call.
  const Element* sort_descending() {
    uint32_t counts[kDigits][kRadix] = {};
    for (const Element& element : elements_) {
      for (int digit = 0; digit < kDigits; ++digit) ++counts[digit][digit_of(element.key, digit)];
    }
    for (int digit = 0; digit < kDigits; ++digit) {
      if (counts[digit][digit_of(elements_[0].key, digit)] == elements_.size()) continue;  // all the same
      uint32_t begin = 0;
      for (uint32_t& count : counts[digit]) {
        const uint32_t end = begin + count;
        count = begin;
        begin = end;
      }
      for (const Element& element : elements_) other_[counts[digit][digit_of(element.key, digit)]++] = element;
      elements_.swap(other_);
    }
    return elements_.data();
  }

 private:
  static constexpr int kBits = 8, kRadix = 1 << kBits, kDigits = int(sizeof(Word));
  static unsigned digit_of(Word key, int digit) { return unsigned(~key >> (kBits * digit)) & (kRadix - 1); }

  std::vector<Element> elements_, other_;
};

}  // namespace jax_rtopk::RTOPK_ISA
