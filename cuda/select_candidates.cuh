// The second stage of bucketed top-k: the exact selection from a row's candidates, which lie in no particular order.
#pragma once

#include <climits>

#include "cuda/candidates.cuh"
#include "cuda/select_row.cuh"
#include "cuda/sort.cuh"

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
      const Word keys[1] = {i < count_ ? elements_.keys.load(i) : Word(0)};
      visit(s, i, keys);
    }
  }

  // Calls visit(element) for the thread's candidates.
  template <class Visit>
  RTOPK_DEVICE void each(Visit&& visit) const {
    for (unsigned i = rank_; i < count_; i += Team::kThreads) visit(elements_.load(int(i)));
  }

 private:
  Elements<Word> elements_;
  unsigned count_, rank_;
};

// How many of the row's elements `holds` for.
template <class Row, class Team, class Holds>
RTOPK_DEVICE int count_where(const Row& row, Team& team, Holds&& holds) {
  unsigned count = 0;
  row.each([&](const auto& item) { count += holds(item); });
  return int(team.sum(count));
}

// The last of the selected elements: selected are those whose key is larger, and those with its key up to its index.
// Bisection, as equal candidates are few, or the keys are narrow and the row takes longer to read.
template <class Row, class Team>
RTOPK_DEVICE Selected<typename Row::Word> last_selected(const Row& row, Team& team,
                                                        const Bracket<typename Row::Word>& bracket, int k, int n) {
  using Word = typename Row::Word;
  if (bracket.count_lo == k) return {bracket.lo, INT_MAX};
  const int wanted = k - bracket.count_last;
  int low = 0, high = n - 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    const int there = count_where(
        row, team, [&](const Selected<Word>& item) { return item.key == bracket.lo && item.index <= middle; });
    if (there >= wanted) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {bracket.lo, low};
}

// A selected element, and how it is to be ordered among the others.
template <class Word>
struct Ordered {
  Selected<Word> item;
  bool by_key;

  RTOPK_DEVICE bool before(const Ordered& other) const {
    return by_key ? item.before(other.item) : item.index < other.item.index;
  }
};

// Elements as sort_selected wants them.
template <class Word>
struct OrderedElements {
  Elements<Word> elements;
  bool by_key;

  RTOPK_DEVICE Ordered<Word> load(unsigned i) const { return {elements.load(int(i)), by_key}; }
  RTOPK_DEVICE void save(unsigned i, const Ordered<Word>& ordered) const { elements.save(int(i), ordered.item); }
};

// Puts the plan's k first of `candidates` into `selected`: in order, or by index. `n`: the length of the row that they
// come from. `scratch`: as of search_row.
template <class Word, class Team>
RTOPK_DEVICE void select_candidates(const Elements<Word>& candidates, Team& team, const SearchPlan& plan, int n,
                                    bool sorted, int scratch, const Elements<Word>& selected) {
  const CandidateRow<Word, Team> row(candidates, plan.n, team);
  const auto bracket = search_row(row, team, plan, FirstPivots(plan), INT_MAX, scratch);
  const Selected<Word> last = last_selected(row, team, bracket, plan.k, n);
  const auto is_selected = [&](const Selected<Word>& item) { return !last.before(item); };
  unsigned count = 0, total;
  row.each([&](const Selected<Word>& item) { count += is_selected(item); });
  auto place = int(team.sum_before(count, total));
  row.each([&](const Selected<Word>& item) {
    if (is_selected(item)) selected.save(place++, item);
  });
  team.sync();
  sort_selected(team, OrderedElements<Word>{selected, sorted}, unsigned(plan.k));
}

}  // namespace jax_rtopk::cuda
