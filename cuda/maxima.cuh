// The maxima of a row's groups, sorted: what the search takes its first pivots from (native/search.h).
#pragma once

#include "cuda/ordered.cuh"
#include "cuda/row.cuh"
#include "cuda/team.cuh"
#include "native/search_plan.h"

namespace jax_rtopk::cuda {

// From the maxima of the places in a lane's packs, by sets of groups, to those of groups.
template <int kChunks, int kLanes, class Word, int kSets, int kPack, int kEach>
RTOPK_DEVICE void meet_in_groups(Word (&sampled)[kSets][kPack], Word (&maxima)[kEach]) {
  constexpr int kChunk = kPack / kChunks, kShift = kGroups / kPack;
  if constexpr (kEach == 1 && kLanes == kWarp && kPack <= 8) {  // of 16, the compiler would not unroll the loops
    // Places that are half a chunk apart meet first, then those a quarter apart, and so on.
#pragma unroll
    for (int half = kChunk / 2; half > 0; half /= 2) {
      const int lane = this_lane() + kWarp - kShift * half;  // a shuffle takes it modulo 32
#pragma unroll
      for (int place = 0; place < half; ++place)
        sampled[0][place] = larger(sampled[0][place], kShift * half == kWarp / 2
                                                          ? from_partner<kLanes, kWarp / 2>(sampled[0][place + half])
                                                          : from_lane<kLanes>(sampled[0][place + half], lane));
    }
    maxima[0] = sampled[0][0];
  } else {
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
          maximum = larger(maximum, from_lane<kLanes>(sent, (lane - lanes) & (kLanes - 1)));
        }
      }
    }
  }
}

// The sampled maximum of each of the kEach groups that this lane answers for, within its warp.
//
// The chunks of a row belong to the groups in turn. So a team's packs of one round hold a set of groups, of which each
// lane has kChunks; after kSets rounds it is the first set's turn again. But that is the group of a chunk's place 0:
// place p counts for the group that is kShift * p lanes further, into the next set where the lanes end.
// `kWhole`: of all of each group, whatever the plan says.
template <bool kWhole = false, int kEach, class Row, class Team>
RTOPK_DEVICE void thread_maxima(const Row& row, const Team& team, const SearchPlan& plan,
                                typename Row::Word (&maxima)[kEach]) {
  using Word = typename Row::Word;
  constexpr int kSets = kEach / Row::kChunks, kChunk = Row::kPack / Row::kChunks;
  constexpr Word kLeast = std::is_signed_v<Word> ? Word(Word(1) << (8 * sizeof(Word) - 1)) : Word(0);
  const auto meet = [&](auto&& is_sampled) {
    Word sampled[kSets][Row::kPack];
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int j = 0; j < Row::kPack; ++j) sampled[set][j] = kLeast;
    }
    row.each_pack([&](unsigned round, unsigned, const Word(&keys)[Row::kPack]) {
      // Of place 0 in its group.
      const int position = int(round / kSets * Team::kWarps + unsigned(team.warp())) * kChunk;
#pragma unroll
      for (int j = 0; j < Row::kPack; ++j) {
        Word& maximum = sampled[round % kSets][j];
        if (is_sampled(position + j % kChunk)) maximum = larger(maximum, keys[j]);
      }
    });
    meet_in_groups<Row::kChunks, Team::kLanes>(sampled, maxima);
  };
  if (kWhole || likely(plan.sampled >= plan.n)) {
    meet([](int) { return true; });
  } else {
    meet([&](int position) { return plan.samples(position); });
  }
}

// That of a lane which answers for one group.
template <bool kWhole = false, class Row, class Team>
RTOPK_DEVICE typename Row::Word thread_maximum(const Row& row, const Team& team, const SearchPlan& plan) {
  typename Row::Word maximum[1];
  thread_maxima<kWhole>(row, team, plan, maximum);
  return maximum[0];
}

// The maxima in order. `scratch` is the offset of shared memory of the team's.
template <int kLanes, class Row>
RTOPK_DEVICE auto group_maxima(const Row& row, WarpTeam<kLanes>& team, const SearchPlan& plan, int scratch) {
  using Word = typename Row::Word;
  Word mine[kGroups / kLanes];
  thread_maxima(row, team, plan, mine);
  return ordered<kLanes>(mine, Shared<Word>(size_t(scratch), kGroups));
}

// In a block lane i of each warp has a share of group i. Each warp gathers and sorts for itself.
template <int kThreads, class Row>
RTOPK_DEVICE auto group_maxima(const Row& row, BlockTeam<kThreads>& team, const SearchPlan& plan, int scratch) {
  using Word = typename Row::Word;
  constexpr int kWarps = BlockTeam<kThreads>::kWarps;
  const Shared<Word> shares(size_t(scratch), kWarps * kGroups);
  Word mine[1];
  thread_maxima(row, team, plan, mine);
  team.sync();  // with the gathering of the last row
  shares.store(team.warp() * kWarp + this_lane(), mine[0]);
  team.sync();
  for (int other = 0; other < kWarps; ++other) mine[0] = larger(mine[0], shares.load(other * kWarp + this_lane()));
  return ordered<kWarp>(mine, shares);
}
template <class Team, class Word>
RTOPK_HD constexpr int block_maxima_bytes() {
  return Team::kThreads * int(sizeof(Word));  // a word a thread
}

}  // namespace jax_rtopk::cuda
