// Orders many selected elements: a least-significant-digit radix sort, which is stable, so that equal keys stay by
// index.
//
// The leading sixteen bits of the range that the keys span tell almost all of them apart. So the first two passes sort
// by these, and whatever they leave, if it is little, is put right one by one; if it is much, all digits are sorted.
#pragma once

#include <cstdint>
#include <utility>
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
    Word least = elements_[0].key, greatest = least;
    for (const Element& element : elements_) {
      least = element.key < least ? element.key : least;
      greatest = element.key > greatest ? element.key : greatest;
    }
    const Word range = greatest - least;
    const int shift = range >> kLeading == 0 ? 0 : 64 - __builtin_clzll(range) - kLeading;
    sort_by<2>(greatest, shift);
    if (shift > 0 && !settle()) sort_by<int(sizeof(Word))>(greatest, 0);
    return elements_.data();
  }

 private:
  static constexpr int kBits = 8, kRadix = 1 << kBits, kLeading = 2 * kBits;

  // Sorts by so many digits, from `shift` on, of how far a key is below the greatest.
  template <int kDigits>
  void sort_by(Word greatest, int shift) {
    const auto digit_of = [=](Word key, int digit) {
      return unsigned((greatest - key) >> (shift + kBits * digit)) & (kRadix - 1);
    };
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
  }

  // Puts right what is not in order. Returns false if it is so much that it is not worth it.
  bool settle() {
    size_t swaps_left = elements_.size() / 2;
    for (size_t i = 1; i < elements_.size(); ++i) {
      for (size_t to = i; to > 0 && elements_[to - 1].key < elements_[to].key; --to) {
        if (swaps_left-- == 0) return false;
        std::swap(elements_[to - 1], elements_[to]);
      }
    }
    return true;
  }

  std::vector<Element> elements_, other_;
};

}  // namespace jax_rtopk::RTOPK_ISA
