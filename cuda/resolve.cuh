// The end of a search: the few elements of a bracket are put in order, which tells the k-th largest key of the row.
#pragma once

#include "cuda/ordered.cuh"
#include "cuda/row.cuh"
#include "native/search.h"

namespace jax_rtopk::cuda {

// How many keys of the thread lie in a bracket, zeros left out.
template <class Row>
RTOPK_DEVICE unsigned count_inside(const Row& row, const Bracket<typename Row::Word>& bracket) {
  unsigned inside = 0;
  row.each_pack([&](unsigned, unsigned, const typename Row::Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j)
      inside += unsigned(keys[j] >= bracket.lo && keys[j] <= bracket.last && keys[j] > 0);
  });
  return inside;
}

// The bracket of which both ends are the one key at `need`, counted from 1, among `width` words in order.
template <class Word, class Words>
RTOPK_DEVICE Bracket<Word> at_end(const Bracket<Word>& bracket, const Words& words, int width, int need) {
  const Word key = words.at(need - 1);
  return {key, key, bracket.count_last + smaller(words.from(key), width), bracket.count_last + words.above(key)};
}

// Narrows a resolved bracket to the k-th largest key. `inside`: how many of the thread's keys lie in it, zeros left
// out: they come last, and cannot be told from what is beyond the row's end. `scratch`: shared memory for kGroups words
// of the team. Teams of a warp whose bracket is not `resolved` keep it.
template <class Row, class Team>
RTOPK_DEVICE void resolve(const Row& row, Team& team, int k, bool resolved, unsigned inside, int scratch,
                          Bracket<typename Row::Word>& bracket) {
  using Word = typename Row::Word;
  static_assert(kResolved == kGroups);
  constexpr int kLanes = Team::kLanes, kEach = kGroups / kLanes;
  const int width = resolved ? bracket.width() : 0, need = resolved ? k - bracket.count_last : 1;
  const Shared<Word> words(size_t(scratch), kResolved);
  unsigned total;
  const auto place = int(team.sum_before(resolved ? inside : 0, total));
  const auto count = int(total);
  team.sync();  // with those who still use what was there
  Appender<Word> appender(words, place);
  const Word lo = resolved ? larger(bracket.lo, Word(1)) : Word(1), last = resolved ? bracket.last : Word(0);
  row.each_pack([&](unsigned, unsigned, const Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) appender.append_if_between(keys[j], lo, last);
  });
  team.sync();
  const int lane = this_lane() % kLanes;
  Bracket<Word> end;
  if (kEach == 1 || !team.any(width > kLanes)) {
    Word mine[1]{lane < count ? words.load(lane) : Word(0)};
    sort_descending<kLanes>(mine);
    end = at_end(bracket, LaneWords<kLanes, Word>(mine[0]), width, need);
  } else {
    Word mine[kEach];
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot)
      mine[slot] = lane * kEach + slot < count ? words.load(lane * kEach + slot) : Word(0);
    end = at_end(bracket, ordered<kLanes>(mine, words), width, need);
  }
  if (resolved) bracket = end;
}

}  // namespace jax_rtopk::cuda
