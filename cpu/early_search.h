// The search over the rows of a batch, which may stop early; it is also how the exact answer is found where much
// of a row is selected, or too much for the survivors' buffers (policy.h).
//
// A pass over a row that fits its survivors' buffer, as one that is short or half of which is selected, keeps the
// elements that it counts. Once these are enough, no later pass needs the rest of the row. The first pass nearly always
// suffices, so it does without what a search has to keep in mind.
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
  using Word = typename Row::Word;

  GroupMaxima<Row>& maxima() { return maxima_; }

  // The first pass, in two steps, after the maxima.
  void begin(const Row& row, const SearchPlan& plan, const FirstPivots& first, Survivors<Row>& survivors) {
    pivots_ = {maxima_.pick(first.low), maxima_.pick(first.high)};
    kept_ = pivots_.low > 0 && keep(row, plan, survivors);
  }
  // Says whether it suffices: the survivors include what is selected, and are few enough to tell it.
  bool suffices(const Row& row, const SearchPlan& plan, Survivors<Row>& survivors) {
    // Whatever the other pivot is, a bracket among so few is resolved.
    bool enough = kept_ && survivors.count() <= kResolved;
    if (!enough) {
      maxima_.arrange();
      search_.emplace(row, plan, maxima_);
      if (pivots_.low > 0 && pivots_.low < pivots_.high) answer(row, survivors);
      enough = kept_ && search_->resolved();
    }
    if (enough) survivors.expect(Row::lane_of(pivots_.low), maxima_.greatest());
    return enough;
  }

  // Survivors among which the answer must be need no further search: they are few.
  bool goes_on(int max_iter) const { return search_->goes_on(max_iter) && !(kept_ && search_->resolved()); }

  // A further pass, in two steps.
  void ask(const Row& row, const SearchPlan& plan, Survivors<Row>& survivors) {
    pivots_ = search_->pivots();
    if (!kept_) kept_ = keep(row, plan, survivors);
  }
  void answer(const Row& row, const Survivors<Row>& survivors) { search_->observe(pivots_, count(row, survivors)); }

  // Whether the k first survivors are what is selected. If not, the emission tells what is.
  bool finish(Survivors<Row>& survivors) {
    if (kept_ && !search_->resolved()) survivors.keep(search_->emission());
    return kept_;
  }

  Emission<Row> emission() const { return search_->emission(); }

 private:
  // Keeps the elements from the lower pivot on. Says whether they are enough.
  bool keep(const Row& row, const SearchPlan& plan, Survivors<Row>& survivors) const {
    if (row.n() > survivors.capacity()) return false;
    survivors.clear();
    survivors.append_above(row, 0, row.n(), Row::lane_of(pivots_.low - 1));
    return survivors.count() >= plan.k;
  }

  // How many elements are at or above each pivot.
  Counts count(const Row& row, const Survivors<Row>& survivors) const {
    return kept_ ? survivors.count_from(pivots_) : count_from(row, pivots_);
  }

  GroupMaxima<Row> maxima_;
  std::optional<RowSearch<Row>> search_;
  Pivots<Word> pivots_;
  bool kept_;
};

// Returns a bit for each row: whether its k first survivors are what is selected.
template <class Row, class RowAt>
uint32_t search(Batch& batch, RowAt row, const SearchPlan& plan, int max_iter, EarlySearch<Row>* searches,
                Survivors<Row>* survivors) {
  batch.each([&](int i) {
    GroupMaxima<Row>& maxima = searches[i].maxima();
    batch.fetched() ? maxima.template sweep<false>(row(i), plan) : maxima.template sweep<true>(row(i), plan);
  });
  batch.each([&](int i) {
    searches[i].maxima().join(plan);
    searches[i].maxima().measure(plan);
  });
  batch.each([&](int i) { searches[i].maxima().rank(); });
  const FirstPivots first(plan);
  batch.each([&](int i) { searches[i].begin(row(i), plan, first, survivors[i]); });
  uint32_t kept = 0;
  batch.each([&](int i) { kept |= uint32_t(searches[i].suffices(row(i), plan, survivors[i])) << i; });
  const uint32_t searched = ~kept & ((1U << batch.rows()) - 1);
  if (searched == 0) return kept;

  uint32_t active;
  do {
    active = 0;
    batch.each([&](int i) {
      if (!(searched >> i & 1) || !searches[i].goes_on(max_iter)) return;
      searches[i].ask(row(i), plan, survivors[i]);
      active |= 1U << i;
    });
    batch.each([&](int i) {
      if (active >> i & 1) searches[i].answer(row(i), survivors[i]);
    });
  } while (active != 0);
  batch.each([&](int i) {
    if (searched >> i & 1) kept |= uint32_t(searches[i].finish(survivors[i])) << i;
  });
  return kept;
}

}  // namespace jax_rtopk::RTOPK_ISA
