// The selection of a row, by whatever team holds it in whatever way: search, then emission (docs/architecture.md,
// Definitions).
#pragma once

#include "cuda/maxima.cuh"
#include "cuda/resolve.cuh"
#include "cuda/row.cuh"
#include "cuda/team.cuh"
#include "native/search.h"

namespace jax_rtopk::cuda {

// How many keys are at or above each of two pivots: of the thread, of the row.
struct Counts {
  unsigned low_of_thread, high_of_thread;
  int low, high;
};

template <class Row, class Team>
RTOPK_DEVICE Counts count(const Row& row, Team& team, const Pivots<typename Row::Word>& pivots) {
  unsigned low = 0, high = 0;
  row.each_pack([&](unsigned, unsigned, const typename Row::Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) {
      low = add_if_at_least(low, keys[j], pivots.low);
      high = add_if_at_least(high, keys[j], pivots.high);
    }
  });
  if constexpr (Row::kShort) {
    const unsigned both = team.sum(low | high << 16);
    return {low, high, int(both & 0xffff), int(both >> 16)};
  } else {
    return {low, high, int(team.sum(low)), int(team.sum(high))};
  }
}

// The lowest index at which `key` is.
template <class Row, class Team>
RTOPK_DEVICE unsigned first_of(const Row& row, Team& team, typename Row::Word key) {
  unsigned index = ~0u;
  row.each_pack([&](unsigned, unsigned first, const typename Row::Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) index = smaller(index, keys[j] == key ? first + unsigned(j) : ~0u);
  });
  return ~team.maximum(~index);
}

// The lowest `room` bits of those set.
RTOPK_DEVICE unsigned first_bits(unsigned bits, int room) {
  if (room <= 0) return 0;
  while (__popc(bits) > room) bits &= ~(0x80000000u >> __clz(int(bits)));
  return bits;
}

// Which elements of a row are chosen: those above `above`, or of these only the `certain` one, and of the others from
// `lo` up the first `room` by index. Or all from `lo` up.
template <class Word>
struct Choice {
  Word lo, above;
  bool all;
  bool single;       // of the elements above, only the certain one
  unsigned certain;  // its index
  int room;
};

// Gives the sink each pack once, in step over the team: take(index of its first element, which elements are chosen, how
// many were chosen before, keys). How many were chosen before, `placed` and what the row has, is only worked out for
// sinks that ask for it, or where it decides what else is chosen.
template <class Row, class Team, class Sink>
RTOPK_DEVICE void emit_chosen(const Row& row, Team& team, const Choice<typename Row::Word>& choice, int placed,
                              Sink& sink) {
  using Word = typename Row::Word;
  const auto [lo, above, all, single, certain, room] = choice;
  const bool ranked = Sink::kRanked || team.any(!all);
  int certain_before = placed, others_before = 0;
  row.each_pack([&](unsigned, unsigned first, const Word(&keys)[Row::kPack]) {
    unsigned reach = 0, sure = 0;
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) reach |= unsigned(keys[j] >= lo) << j;
    reach &= row.view().existing(first);
    if (!ranked) return sink.take(first, reach, 0, keys);
    if (!all) {
#pragma unroll
      for (int j = 0; j < Row::kPack; ++j) sure |= unsigned(keys[j] > above) << j;
    }
    if (single) sure = certain - first < Row::kPack ? 1u << (certain - first) : 0;
    sure = all ? reach : sure & reach;
    const unsigned others = reach & ~sure;
    unsigned total;
    const unsigned before = team.sum_before(unsigned(__popc(sure)) | unsigned(__popc(others)) << 16, total);
    const int sure_rank = certain_before + int(before & 0xffff), other_rank = others_before + int(before >> 16);
    if (all) {
      sink.take(first, reach, sure_rank, keys);
    } else {
      const unsigned chosen = sure | first_bits(others, room - other_rank);
      sink.take(first, chosen, sure_rank + smaller(other_rank, room), keys);
    }
    certain_before += int(total & 0xffff);
    others_before += int(total >> 16);
  });
}

// The k elements that a search has left in a bracket.
template <class Row, class Team, class Sink>
RTOPK_DEVICE void emit(const Row& row, Team& team, const Bracket<typename Row::Word>& bracket, int k, Sink& sink) {
  const bool all = bracket.count_lo == k;                 // all from lo up are chosen
  const bool single = !all && bracket.maximum_is_last();  // the certain one is the first that has the maximum
  const unsigned certain = team.any(single) ? first_of(row, team, bracket.last) : 0;
  const int room = k - (single ? 1 : bracket.count_last);
  emit_chosen(row, team, Choice<typename Row::Word>{bracket.lo, bracket.last, all, single, certain, room}, 0, sink);
}

// The same where all elements from `lo` up are chosen, which is not 0: take_from(index of the first element of a pack,
// lo, how many were chosen before, keys).
template <class Row, class Team, class Sink>
RTOPK_DEVICE void emit_from(const Row& row, Team& team, typename Row::Word lo, Sink& sink) {
  using Word = typename Row::Word;
  unsigned before_round = 0;
  row.each_packs([&](unsigned first, const Word(&keys)[Row::kAtOnce][Row::kPack]) {
    unsigned place[2] = {0, 0};
    if constexpr (Sink::kRanked) {
      unsigned chosen[2] = {0, 0}, total;
#pragma unroll
      for (int s = 0; s < Row::kAtOnce; ++s) {
#pragma unroll
        for (int j = 0; j < Row::kPack; ++j) chosen[s] = add_if_at_least(chosen[s], keys[s][j], lo);
      }
      const unsigned before = team.sum_before(chosen[0] | chosen[1] << 16, total);
      place[0] = before_round + (before & 0xffff);
      place[1] = before_round + (total & 0xffff) + (before >> 16);
      before_round += (total & 0xffff) + (total >> 16);
    }
#pragma unroll
    for (int s = 0; s < Row::kAtOnce; ++s)
      sink.take_from(first + unsigned(s) * Team::kThreads * Row::kPack, lo, int(place[s]), keys[s]);
  });
}

// The largest key of the row.
template <class Row, class Team>
RTOPK_DEVICE typename Row::Word largest(const Row& row, Team& team) {
  typename Row::Word top = 0;
  row.each_pack([&](unsigned, unsigned, const typename Row::Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) top = larger(top, keys[j]);
  });
  return team.maximum(top);
}

// The bracket that is left of a row by its search: from its `lo` up exactly k elements lie, or it is a single key, or
// max_iter has ended the search. `scratch`: shared memory for the group maxima, later for the elements of the bracket.
template <class Row, class Team>
RTOPK_DEVICE Bracket<typename Row::Word> search_row(const Row& row, Team& team, const SearchPlan& plan,
                                                    const FirstPivots& first, int max_iter, int scratch) {
  using Word = typename Row::Word;
  const int k = plan.k;
  const auto maxima = group_maxima(row, team, plan, scratch);
  // The search's first pass, which nearly always suffices: so it is written out, without what a search has to keep in
  // mind.
  const Pivots<Word> pivots{maxima.at(first.low), maxima.at(first.high)};
  const Counts counts = count(row, team, pivots);
  Bracket<Word> bracket{pivots.low, Word(pivots.high - 1), counts.low, counts.high};
  const bool found = pivots.low > 0 && counts.low >= k && counts.high < k && bracket.resolved();
  if (!team.any(!found)) {
    resolve(row, team, k, true, counts.low_of_thread - counts.high_of_thread, scratch, bracket);
  } else {
    Search<Word> search(plan, largest(row, team));
    if (pivots.low > 0 && pivots.low < pivots.high) search.observe(pivots, counts.low, counts.high);
    while (true) {
      const bool more = search.goes_on(max_iter) && !search.resolved();
      if (!team.any(more)) break;
      // Pivots of 0 tell a search nothing: so a team that has done waits without a branch, after which the compiler
      // would not know any more that the warp's lanes are together.
      const Pivots<Word> pivots_of_more = search.pivots(maxima);
      const Pivots<Word> next{more ? pivots_of_more.low : Word(0), more ? pivots_of_more.high : Word(0)};
      const Counts there = count(row, team, next);
      search.observe(next, there.low, there.high);
    }
    bracket = search.bracket();
    const bool resolved = bracket.resolved() && !search.done();
    if (team.any(resolved)) resolve(row, team, k, resolved, count_inside(row, bracket), scratch, bracket);
  }
  return bracket;
}

template <class Row, class Team, class Sink>
RTOPK_DEVICE void select_row(const Row& row, Team& team, const SearchPlan& plan, const FirstPivots& first, int max_iter,
                             int scratch, Sink& sink) {
  const auto bracket = search_row(row, team, plan, first, max_iter, scratch);
  if (team.any(bracket.count_lo != plan.k || bracket.lo == 0)) {
    emit(row, team, bracket, plan.k, sink);
  } else {
    emit_from(row, team, bracket.lo, sink);
  }
}

}  // namespace jax_rtopk::cuda
