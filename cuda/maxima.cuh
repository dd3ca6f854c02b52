// The maxima of a row's groups, sorted: what the search takes its first pivots from (native/search.h).
#pragma once

#include "cuda/row.cuh"
#include "cuda/sort.cuh"
#include "cuda/team.cuh"
#include "native/search_plan.h"

namespace jax_rtopk::cuda {

// A maximum a lane. For teams of whole warps: the questions are answered by votes.
template <class Word>
struct LaneMaxima {
  Word mine;

  RTOPK_DEVICE Word at(int i) const { return __shfl_sync(kFullMask, mine, i); }
  RTOPK_DEVICE int above(Word key) const { return __popc(__ballot_sync(kFullMask, mine > key)); }
  RTOPK_DEVICE int from(Word key) const { return __popc(__ballot_sync(kFullMask, mine >= key)); }
};

// Maxima in shared memory. For teams smaller than a warp, which may ask different questions at a time.
template <class Word>
struct SharedMaxima {
  Shared<Word> sorted;  // kGroups of them

  RTOPK_DEVICE Word at(int i) const { return sorted.load(i); }
  RTOPK_DEVICE int above(Word key) const {
    return first_where([key](Word maximum) { return !(maximum > key); });
  }
  RTOPK_DEVICE int from(Word key) const {
    return first_where([key](Word maximum) { return !(maximum >= key); });
  }

 private:
  template <class Holds>
  RTOPK_DEVICE int first_where(Holds&& holds) const {
    int first = 0;
#pragma unroll
    for (int step = kGroups / 2; step > 0; step /= 2)
      if (!holds(sorted.load(first + step - 1))) first += step;
    if (!holds(sorted.load(first))) ++first;
    return first;
  }
};

// The sampled maximum of each of the kEach groups that this lane answers for, within its warp, and the largest key that
// the thread holds.
//
// The chunks of a row belong to the groups in turn. So a team's packs of one round hold a set of groups, of which each
// lane has kChunks; after kSets rounds it is the first set's turn again. But that is the group of a chunk's place 0:
// place p counts for the group that is kShift * p lanes further, into the next set where the lanes end.
template <int kEach, class Row, class Team>
RTOPK_DEVICE typename Row::Word thread_maxima(const Row& row, const Team& team, const SearchPlan& plan,
                                              typename Row::Word (&maxima)[kEach]) {
  using Word = typename Row::Word;
  constexpr int kChunks = Row::kChunks, kSets = kEach / kChunks, kChunk = Row::kPack / kChunks;
  constexpr int kShift = kGroups / Row::kPack, kLanes = Team::kLanes;
  Word sampled[kSets][Row::kPack], top = 0;
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
#pragma unroll
    for (int j = 0; j < Row::kPack; ++j) sampled[set][j] = 0;
  }
  if (plan.sampled >= plan.n) {
    row.each_pack([&](unsigned round, unsigned, const Word(&keys)[Row::kPack]) {
#pragma unroll
      for (int j = 0; j < Row::kPack; ++j) sampled[round % kSets][j] = larger(sampled[round % kSets][j], keys[j]);
    });
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int j = 0; j < Row::kPack; ++j) top = larger(top, sampled[set][j]);
    }
  } else {
    row.each_pack([&](unsigned round, unsigned, const Word(&keys)[Row::kPack]) {
      // Of place 0 in its group.
      const int position = int(round / kSets * Team::kWarps + unsigned(team.warp())) * kChunk;
#pragma unroll
      for (int j = 0; j < Row::kPack; ++j) {
        top = larger(top, keys[j]);
        Word& maximum = sampled[round % kSets][j];
        if (plan.samples(position + j % kChunk)) maximum = larger(maximum, keys[j]);
      }
    });
  }
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Word& maximum = maxima[set * kChunks + chunk];
      maximum = sampled[set][chunk * kChunk];
#pragma unroll
      for (int place = 1; place < kChunk; ++place) {
        constexpr int kTurns = kSets * kGroups;  // keeps what is subtracted from positive
        const int sets = kShift * place / kLanes, lanes = kShift * place % kLanes;
        const int j = chunk * kChunk + place;
        const Word near = sampled[(set + kTurns - sets) % kSets][j];
        if (lanes == 0) {
          maximum = larger(maximum, near);
          continue;
        }
        const Word far = sampled[(set + kTurns - sets - 1) % kSets][j];
        const int lane = this_lane() % kLanes;
        const Word sent = lane < kLanes - lanes ? near : far;
        maximum = larger(maximum, __shfl_sync(kFullMask, sent, (lane - lanes) & (kLanes - 1), kLanes));
      }
    }
  }
  return top;
}

// Sorted maxima of a row and its largest key. `scratch` is the offset of kMaximaBytes of shared memory that the team
// has for it.
template <class Team, class Word>
struct GroupMaxima;

// A warp: a group a lane.
template <class Word>
struct GroupMaxima<WarpTeam<kWarp>, Word> {
  static constexpr int kBytes = 0;
  LaneMaxima<Word> sorted;
  Word top;

  template <class Row>
  RTOPK_DEVICE GroupMaxima(const Row& row, WarpTeam<kWarp>& team, const SearchPlan& plan, int) {
    Word mine[1];
    top = team.maximum(thread_maxima(row, team, plan, mine));
    sort_descending<kWarp>(mine);
    sorted.mine = mine[0];
  }
};

// Fewer lanes: each has kGroups / kLanes groups.
template <int kLanes, class Word>
struct GroupMaxima<WarpTeam<kLanes>, Word> {
  static constexpr int kBytes = kGroups * int(sizeof(Word));
  SharedMaxima<Word> sorted;
  Word top;

  template <class Row>
  RTOPK_DEVICE GroupMaxima(const Row& row, WarpTeam<kLanes>& team, const SearchPlan& plan, int scratch)
      : sorted{{size_t(scratch), kGroups}} {
    constexpr int kEach = kGroups / kLanes;
    Word mine[kEach];
    top = team.maximum(thread_maxima(row, team, plan, mine));
    sort_descending<kLanes>(mine);
    team.sync();  // with the search of the last row
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) sorted.sorted.store(team.rank() * kEach + slot, mine[slot]);
    team.sync();
  }
};

// A block: lane i of each warp has a share of group i. Each warp gathers and sorts for itself.
template <int kThreads, class Word>
struct GroupMaxima<BlockTeam<kThreads>, Word> {
  static constexpr int kWarps = BlockTeam<kThreads>::kWarps;
  static constexpr int kBytes = (kWarps * kGroups + kWarps) * int(sizeof(Word));
  LaneMaxima<Word> sorted;
  Word top;

  template <class Row>
  RTOPK_DEVICE GroupMaxima(const Row& row, BlockTeam<kThreads>& team, const SearchPlan& plan, int scratch) {
    const Shared<Word> shares(size_t(scratch), kWarps * kGroups);
    const Shared<Word> tops(size_t(scratch) + kWarps * kGroups * sizeof(Word), kWarps);
    WarpTeam<kWarp> warp;
    Word mine[1];
    const Word top_of_warp = warp.maximum(thread_maxima(row, team, plan, mine));
    team.sync();  // with the gathering of the last row
    shares.store(team.warp() * kWarp + this_lane(), mine[0]);
    if (this_lane() == 0) tops.store(team.warp(), top_of_warp);
    team.sync();
    for (int other = 0; other < kWarps; ++other) mine[0] = larger(mine[0], shares.load(other * kWarp + this_lane()));
    top = warp.maximum(this_lane() < kWarps ? tops.load(this_lane()) : Word(0));
    sort_descending<kWarp>(mine);
    sorted.mine = mine[0];
  }
};

}  // namespace jax_rtopk::cuda
