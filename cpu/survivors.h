// A buffer of elements that may belong to a row's top-k, by ascending index.
#pragma once

#include <cstdint>

#include "cpu/rank.h"
#include "cpu/row.h"
#include "cpu/row_search.h"

namespace jax_rtopk::RTOPK_ISA {

template <class Word>
class Survivors {
 public:
  using V = Vec<Word>;
  static constexpr int32_t kCapacity = 2048;

  int32_t count() const { return count_; }
  void clear() { count_ = 0; }
  void push(Word key, int32_t index) {
    keys_[count_] = key;
    indices_[count_] = index;
    ++count_;
  }

  // Appends the elements of [begin, end) whose keys are at or above `threshold`. There must be room for all of the
  // range.
  template <class Row>
  void append(const Row& row, int32_t begin, int32_t end, Word threshold) {
    const auto least_key = V::set1(threshold);
    int32_t size = count_;
    row.sweep(begin, end, [&](int32_t i, auto keys, auto inside) {
      const auto reached = V::ge(keys, least_key) & inside;
      V::compress(keys_ + size, keys, reached);
      V::compress_index(indices_ + size, i, reached);
      size += popcount(reached);
    });
    count_ = size;
  }

  // The same where elements that reach the threshold are rare.
  template <class Row>
  void append_rare(const Row& row, int32_t begin, int32_t end, Word threshold) {
    const auto least_key = V::set1(threshold);
    row.sweep(begin, end, [&](int32_t i, auto keys, auto inside) {
      const auto reached = V::ge(keys, least_key) & inside;
      if (reached == 0) return;
      V::compress(keys_ + count_, keys, reached);
      V::compress_index(indices_ + count_, i, reached);
      count_ += popcount(reached);
    });
  }

  // Keeps the k that are selected first, still by ascending index.
  void reduce_to(int32_t k) {
    if (count_ <= k) return;
    int32_t size = 0;
    if (worth_ranking(k)) {
      rank_all<V>(keys_, count_, ranks_);
      for (int32_t i = 0; i < count_; ++i) {
        keys_[size] = keys_[i];
        indices_[size] = indices_[i];
        size += ranks_[i] < Word(k);
      }
    } else {
      const Row<Word> row(KeyMap<Word>{0, 0, 0}, keys_, count_);
      emit(row, search(row, sampling_plan(count_, k), 0), [&](const int32_t* selected, int32_t batch) {
        for (int32_t i = 0; i < batch; ++i, ++size) {
          keys_[size] = keys_[selected[i]];
          indices_[size] = indices_[selected[i]];
        }
      });
    }
    count_ = k;
  }

  // The indices of the k selected first, in order of selection: larger keys first, equal keys by index. Valid until the
  // next call.
  const int32_t* sorted(int32_t k) {
    if (!worth_ranking(k)) reduce_to(k);
    rank_all<V>(keys_, count_, ranks_);
    for (int32_t i = 0; i < count_; ++i) sorted_[ranks_[i]] = indices_[i];
    return sorted_;
  }

  const int32_t* indices() const { return indices_; }

  Word least_key() const {
    Word key = keys_[0];
    for (int32_t i = 1; i < count_; ++i) key = keys_[i] < key ? keys_[i] : key;
    return key;
  }

 private:
  // Ranking takes count^2 comparisons, a search a few sweeps and some fixed cost.
  bool worth_ranking(int32_t k) const { return count_ <= k + k / 2 + 64; }

  // A plan without powers and roots: one element a group, whose ranks are those of the row.
  static SearchPlan sampling_plan(int32_t n, int32_t k) {
    SearchPlan plan{};
    plan.n = n;
    plan.k = k;
    plan.groups = least(n, kGroups);
    plan.chunk = 1;
    plan.sampled = n == plan.groups ? n : 1;
    plan.step = 1;
    plan.slope = float(plan.groups) / float(n);
    plan.rank = float(k) * plan.slope;
    plan.spread = 2.0F;
    return plan;
  }

  int32_t count_ = 0;
  alignas(64) Word keys_[kCapacity + V::kLanes];
  alignas(64) Word ranks_[kCapacity + V::kLanes];
  alignas(64) int32_t indices_[kCapacity + V::kLanes];
  int32_t sorted_[kCapacity];
};

}  // namespace jax_rtopk::RTOPK_ISA
