// The end of a search: the few elements of a bracket are put in order, which tells the k-th largest key of the row.
#pragma once

#include "cuda/ordered.cuh"
#include "cuda/row.cuh"
#include "native/search.h"

namespace jax_rtopk::cuda {

// How many keys of the thread lie in a bracket, zeros left out.
template <class Row>
RTOPK_DEVICE unsigned count_inside(const Row& row, const Bracket<typename Row::Word>& bracket) {
  using Word = typename Row::Word;
  const Word lo = larger(bracket.lo, Word(1)), after = bracket.last + 1;  // 0 if there is no key after the last
  unsigned from_lo = 0, from_after = 0;
  row.each_pack([&](unsigned, unsigned, const Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) {
      from_lo = add_if_at_least(from_lo, keys[j], lo);
      from_after = add_if_at_least(from_after, keys[j], after);
    }
  });
  return after == 0 ? from_lo : from_lo - from_after;
}

// The `count` words of a bracket of `width` elements, the others being 0, in order, in whatever way.
template <class Word>
struct Words {
  Shared<Word> words;
  int width, count;

  RTOPK_DEVICE Word load(int i) const { return i < count ? words.load(i) : Word(0); }

  // As sort_selected wants it.
  RTOPK_DEVICE Selected<Word> load(unsigned i) const { return {words.load(int(i)), 0}; }
  RTOPK_DEVICE void save(unsigned i, const Selected<Word>& item) const { words.store(int(i), item.key); }
};

// The bracket narrowed to the one key at `need`, counted from 1, among sorted words.
template <class Word, class Sorted>
RTOPK_DEVICE Bracket<Word> narrowed(const Bracket<Word>& bracket, const Sorted& sorted, int width, int need) {
  const Word key = sorted.at(need - 1);
  return {key, key, bracket.count_last + smaller(sorted.from(key), width), bracket.count_last + sorted.above(key)};
}

// Sorts them in as few registers a lane as do, from kEach on; in shared memory if those were too many.
template <int kEach, class Team, class Word>
RTOPK_DEVICE Bracket<Word> sort_and_narrow(Team& team, const Words<Word>& words, int need,
                                           const Bracket<Word>& bracket) {
  constexpr int kLanes = Team::kLanes, kMostEach = 4;
  const int lane = this_lane() % kLanes;
  if constexpr (kEach > kMostEach) {
    for (int i = lane; i < kResolved; i += kLanes)
      if (i >= words.count) words.words.store(i, 0);
    __syncwarp();
    WarpTeam<kLanes> of_warp;  // in a block each warp would have to do it alone
    sort_selected(of_warp, words, unsigned(kResolved));
    return narrowed(bracket, SharedWords<Word, kResolved>(words.words), words.width, need);
  } else {
    if (kEach * kLanes < kResolved && team.any(words.width > kEach * kLanes))
      return sort_and_narrow<2 * kEach>(team, words, need, bracket);
    Word mine[kEach];
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) mine[slot] = words.load(lane * kEach + slot);
    return narrowed(bracket, LaneWords<kLanes, Word, kEach>(mine), words.width, need);
  }
}

// Narrows a resolved bracket to the k-th largest key. `inside`: how many of the thread's keys lie in it, zeros left
// out: they come last, and cannot be told from what is beyond the row's end. `scratch`: shared memory for kResolved
// words of the team. Teams of a warp whose bracket is not `resolved` keep it.
template <class Row, class Team>
RTOPK_DEVICE void resolve(const Row& row, Team& team, int k, bool resolved, unsigned inside, int scratch,
                          Bracket<typename Row::Word>& bracket) {
  using Word = typename Row::Word;
  const int width = resolved ? bracket.width() : 0, need = resolved ? k - bracket.count_last : 1;
  const Shared<Word> words(size_t(scratch), kResolved);
  unsigned count;
  const auto place = int(team.sum_before(resolved ? inside : 0, count));
  team.sync();  // with those who still use what was there
  Appender<Word> appender(words, place);
  const Word lo = resolved ? larger(bracket.lo, Word(1)) : Word(1), last = resolved ? bracket.last : Word(0);
  row.each_pack([&](unsigned, unsigned, const Word(&keys)[Row::kPack]) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) appender.append_if_between(keys[j], lo, last);
  });
  team.sync();
  const Bracket<Word> end = sort_and_narrow<1>(team, Words<Word>{words, width, int(count)}, need, bracket);
  if (resolved) bracket = end;
}

}  // namespace jax_rtopk::cuda
