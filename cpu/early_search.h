// The search over the rows of a batch, which may stop early; for k above kMaxRankedK it is how the exact answer is
// found.
//
// A pass over a short row keeps the elements that it counts. Once these are enough, no later pass needs the rest of the
// row.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/batch.h"
#include "cpu/group_maxima.h"
#include "cpu/policy.h"
#include "cpu/row_search.h"
#include "cpu/survivors.h"

namespace jax_rtopk::RTOPK_ISA {

template <class Row>
class EarlySearch {
 public:
  GroupMaxima<Row>& maxima() { return maxima_; }

  // After the maxima.
  void start(const Row& row, const SearchPlan& plan) {
    search_.emplace(row, plan, maxima_);
    kept_ = false;
  }

  // Survivors among which the answer must be need no further search: they are few.
  bool goes_on(int max_iter) const { return search_->goes_on(max_iter) && !(kept_ && search_->resolved()); }

  // The first half of a pass.
  void ask(const Row& row, const SearchPlan& plan, Survivors<Row>& survivors) {
    search_->ask();
    if (kept_ || plan.k > kMaxRankedK || row.n() > Survivors<Row>::kCapacity) return;
    survivors.clear();
    survivors.append_above(row, 0, row.n(), search_->low());
    kept_ = survivors.count() >= plan.k;
  }

  // The second.
  void answer(const Row& row, const Survivors<Row>& survivors) {
    const auto low = search_->low(), high = search_->high();
    search_->answer(kept_ ? survivors.count_above(low, high) : count_above(row, low, high));
  }

  // Whether the k first survivors are what is selected. If not, the emission tells what is.
  bool finish(Survivors<Row>& survivors) {
    if (kept_ && !search_->resolved()) survivors.keep(search_->emission());
    return kept_;
  }

  Emission<Row> emission() const { return search_->emission(); }

 private:
  GroupMaxima<Row> maxima_;
  std::optional<RowSearch<Row>> search_;
  bool kept_ = false;
};

// Returns a bit for each row: whether its k first survivors are what is selected.
template <class Row, class RowAt>
uint32_t search(Batch& batch, RowAt row, const SearchPlan& plan, int max_iter, EarlySearch<Row>* searches,
                Survivors<Row>* survivors) {
  batch.each([&](int i) { searches[i].maxima().sweep(row(i), plan); });
  batch.each([&](int i) { searches[i].maxima().join(plan); });
  batch.each([&](int i) { searches[i].maxima().measure(plan); });
  batch.each([&](int i) { searches[i].maxima().rank(); });
  batch.each([&](int i) { searches[i].maxima().order(); });
  batch.each([&](int i) {
    searches[i].maxima().settle();
    searches[i].start(row(i), plan);
  });
  uint32_t active;
  do {
    active = 0;
    batch.each([&](int i) {
      if (!searches[i].goes_on(max_iter)) return;
      searches[i].ask(row(i), plan, survivors[i]);
      active |= 1U << i;
    });
    batch.each([&](int i) {
      if (active >> i & 1) searches[i].answer(row(i), survivors[i]);
    });
  } while (active != 0);
  uint32_t kept = 0;
  batch.each([&](int i) { kept |= uint32_t(searches[i].finish(survivors[i])) << i; });
  return kept;
}

}  // namespace jax_rtopk::RTOPK_ISA
