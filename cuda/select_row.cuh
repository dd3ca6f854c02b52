// The selection of a row, by whatever team holds it in whatever way: search, then emission (docs/architecture.md,
// Definitions).
#pragma once

#include "cuda/maxima.cuh"
#include "cuda/row.cuh"
#include "cuda/team.cuh"
#include "native/search.h"

namespace jax_rtopk::cuda {

struct Counts {
  unsigned low, high;
};

// How many keys of the row are at or above each pivot.
template <class Row, class Team>
RTOPK_DEVICE Counts count(const Row& row, Team& team, const Pivots<typename Row::Word>& pivots) {
  Counts mine{0, 0};
  row.each_pack([&](unsigned, unsigned, const typename Row::Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) {
      mine.low = add_if_at_least(mine.low, keys[j], pivots.low);
      mine.high = add_if_at_least(mine.high, keys[j], pivots.high);
    }
  });
  if constexpr (Row::kShort) {
    const unsigned both = team.sum(mine.low | mine.high << 16);
    return {both & 0xffff, both >> 16};
  } else {
    return {team.sum(mine.low), team.sum(mine.high)};
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

// Gives the sink each pack once, in step over the team: take(index of its first element, which elements are chosen, how
// many were chosen before, keys). How many were chosen before is only worked out for sinks that ask for it, or where it
// decides what else is chosen.
template <class Row, class Team, class Sink>
RTOPK_DEVICE void emit(const Row& row, Team& team, const Search<typename Row::Word>& search, int k, Sink& sink) {
  using Word = typename Row::Word;
  const bool all = search.count_lo() == k;  // all from lo up are chosen
  const Word lo = search.lo(), above = search.last();
  const bool single = !all && search.maximum_is_last();  // the certain one is the first that has the maximum
  const unsigned certain = team.any(single) ? first_of(row, team, above) : 0;
  const int room = k - (single ? 1 : search.count_last());
  const bool ranked = Sink::kRanked || team.any(!all);
  int certain_before = 0, others_before = 0;
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

// `scratch`: shared memory for the group maxima.
template <class Row, class Team, class Sink>
RTOPK_DEVICE void select_row(const Row& row, Team& team, const SearchPlan& plan, int max_iter, int scratch,
                             Sink& sink) {
  using Word = typename Row::Word;
  const GroupMaxima<Team, Word> maxima(row, team, plan, scratch);
  Search<Word> search(plan, maxima.top);
  while (true) {
    const bool more = !search.done() && search.passes() < max_iter;
    if (!team.any(more)) break;
    const Pivots<Word> pivots = search.pivots(maxima.sorted);
    const Counts counts = count(row, team, pivots);
    if (more) search.observe(pivots, int(counts.low), int(counts.high));
  }
  emit(row, team, search, plan.k, sink);
}

}  // namespace jax_rtopk::cuda
