// The second stage of bucketed top-k: the exact selection from a row's candidates, which lie in no particular order.
#pragma once

#include <climits>

#include "cuda/candidate_order.cuh"
#include "cuda/candidates.cuh"
#include "cuda/select_row.cuh"

namespace jax_rtopk::cuda {

// The candidates as a row for the search, a pack being a single one.
template <class Word_, class Team>
class CandidateRow {
 public:
  static constexpr int kChunks = 1, kPack = 1;
  static constexpr bool kShort = false;
  using Word = Word_;

  RTOPK_DEVICE CandidateRow(const Elements<Word>& elements, int count, const Team& team)
      : elements_(elements), count_(unsigned(count)), rank_(unsigned(team.rank())) {}

  // As RegisterRow.
  template <class Visit>
  RTOPK_DEVICE void each_pack(Visit&& visit) const {
    const unsigned rounds = (count_ - 1) / Team::kThreads + 1;
    for (unsigned s = 0; s < rounds; ++s) {
      const unsigned i = s * Team::kThreads + rank_;
      const Word keys[1] = {i < count_ ? elements_.load(i).key : Word(0)};
      visit(s, i, keys);
    }
  }

  // Calls visit(element) for those of the thread's candidates that do not come after `last`.
  template <class Visit>
  RTOPK_DEVICE void each_up_to(const Selected<Word>& last, Visit&& visit) const {
    for (unsigned i = rank_; i < count_; i += Team::kThreads) {
      const Selected<Word> item = elements_.load(i);
      if (!last.before(item)) visit(item);
    }
  }

 private:
  Elements<Word> elements_;
  unsigned count_, rank_;
};

// The last of the selected elements: selected are those whose key is larger, and those with its key up to its index.
// Bisection, as equal candidates are few, or the keys are narrow and the row takes longer to read.
template <class Row, class Team>
RTOPK_DEVICE Selected<typename Row::Word> last_selected(const Row& row, Team& team,
                                                        const Bracket<typename Row::Word>& bracket, int k, int n) {
  using Word = typename Row::Word;
  if (bracket.count_lo == k) return {bracket.lo, INT_MAX};
  int low = 0, high = n - 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    unsigned count = 0;
    row.each_up_to(Selected<Word>{bracket.lo, middle}, [&](const Selected<Word>&) { ++count; });
    if (int(team.sum(count)) >= k) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {bracket.lo, low};
}

// Puts the plan's k first of `candidates` into `selected`: in order, or by index. `n`: the length of the row that they
// come from. `scratch`: as of search_row.
template <class Word, class Team>
RTOPK_DEVICE_LARGE void select_candidates(const Elements<Word>& candidates, Team& team, const SearchPlan& plan, int n,
                                          bool sorted, int scratch, const Elements<Word>& selected) {
  const CandidateRow<Word, Team> row(candidates, plan.n, team);
  const auto bracket = search_row(row, team, plan, FirstPivots(plan), INT_MAX, scratch);
  const Selected<Word> last = last_selected(row, team, bracket, plan.k, n);
  unsigned count = 0, total;
  row.each_up_to(last, [&](const Selected<Word>&) { ++count; });
  auto place = int(team.sum_before(count, total));
  row.each_up_to(last, [&](const Selected<Word>& item) { selected.store(place++, item); });
  team.sync();
  put_in_order(team, selected, plan.k, sorted);
}

}  // namespace jax_rtopk::cuda
