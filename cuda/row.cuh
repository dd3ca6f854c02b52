// Rows: where a team keeps the keys of its row. Both kinds cut it into packs of 16 bytes; pack p belongs to thread p
// mod team size.
#pragma once

#include "cuda/intrinsics.cuh"
#include "native/ordered_key.h"

namespace jax_rtopk::cuda {

// Keys of up to 32 bits are compared as 32-bit words.
template <class Bits>
using WordOf = std::conditional_t<sizeof(Bits) == 8, uint64_t, uint32_t>;

// The operand of a launch, one row of it, and how to read it.
template <class Bits>
struct RowView {
  static constexpr int kPack = 16 / sizeof(Bits);
  using Word = WordOf<Bits>;

  Global<const Bits> data;
  unsigned n;
  bool packed;  // starts on sixteen bytes and ends on a pack
  KeyMap<Bits> map;
  bool plain = false;  // floats, the largest first

  // Elements first, first + 1, ...; zeros beyond the end.
  RTOPK_DEVICE Pack<Bits> load(unsigned first) const {
    Pack<Bits> bits{};
    if (packed) {
      if (first < n) bits = data.load_pack(first);
    } else {
      first = unforeseen(first);
#pragma unroll
      for (int j = 0; j < kPack; ++j) bits.at[j] = first + j < n ? data.load(first + j) : Bits(0);
    }
    return bits;
  }

  // Beyond the end keys are 0: no pivot is as low, so they are never counted nor chosen.
  RTOPK_DEVICE void clear_beyond_end(unsigned first, Word (&keys)[kPack]) const {
#pragma unroll
    for (int j = 0; j < kPack; ++j) keys[j] = first + (packed ? 0 : j) < n ? keys[j] : Word(0);
  }

  // Which elements of a pack exist, a bit each.
  RTOPK_DEVICE unsigned existing(unsigned first) const {
    constexpr unsigned kAll = (1u << kPack) - 1;
    if (first + kPack <= n) return kAll;
    return first < n ? (1u << (n - first)) - 1 : 0;
  }
};

// The keys of a pack.
template <class Bits, int kCount>
RTOPK_DEVICE void keys_of(const KeyMap<Bits>& map, const Pack<Bits, kCount>& bits, WordOf<Bits> (&keys)[kCount]) {
  if (map.borrow != 0) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) keys[j] = map(bits.at[j]);
  } else if constexpr (sizeof(Bits) == 4) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) keys[j] = spread_sign(bits.at[j], map.spread) ^ map.flip;
  } else if constexpr (sizeof(Bits) == 2 && kCount > 1) {  // two at a time
    const uint32_t spread = map.spread * 0x10001u, flip = map.flip * 0x10001u;
    uint32_t pairs[kCount / 2];
    memcpy(pairs, &bits, sizeof pairs);
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const uint32_t both = xor3(pairs[j], signs_of_halves(pairs[j]) & spread, flip);
      keys[2 * j] = both & 0xffff;
      keys[2 * j + 1] = both >> 16;
    }
  } else {
    const KeyMap<Bits> without{map.spread, map.flip, 0};
#pragma unroll
    for (int j = 0; j < kCount; ++j) keys[j] = without(bits.at[j]);
  }
}

// A row in registers: at most kPacks packs a thread, of `chunks` chunks each (SearchPlan).
template <class Bits, class Team, int packs, int chunks = 1>
class RegisterRow {
 public:
  static constexpr int kPacks = packs, kChunks = chunks;
  using View = RowView<Bits>;
  using Word = WordOf<Bits>;
  static constexpr int kPack = View::kPack;
  static constexpr bool kShort = true;  // counts fit in 16 bits
  static_assert(kPacks * kPack * Team::kThreads < 65536);

  RTOPK_DEVICE RegisterRow(const View& view, const Team& team) : view_(view), rank_(unsigned(team.rank())) {
    if (view.packed && view.n == kPacks * Team::kThreads * kPack) {
      Pack<Bits> bits[kPacks];  // all loads before the first use, so that they are under way together
#pragma unroll
      for (int s = 0; s < kPacks; ++s) bits[s] = view.data.load_pack(first_of(s));
      if (sizeof(Bits) == 4 && view.plain) {
#pragma unroll
        for (int s = 0; s < kPacks; ++s) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) keys_[s][j] = key_of_float(uint32_t(bits[s].at[j]));
        }
      } else {
#pragma unroll
        for (int s = 0; s < kPacks; ++s) keys_of(view.map, bits[s], keys_[s]);
      }
    } else {
#pragma unroll
      for (int s = 0; s < kPacks; ++s) {
        keys_of(view.map, view.load(first_of(s)), keys_[s]);
        view.clear_beyond_end(first_of(s), keys_[s]);
      }
    }
  }

  RTOPK_DEVICE const View& view() const { return view_; }

  // Calls visit(round, index of the first element, keys of the pack) for the thread's packs, all threads in step.
  template <class Visit>
  RTOPK_DEVICE void each_pack(Visit&& visit) const {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) visit(unsigned(s), first_of(s), keys_[s]);
  }

  // kAtOnce rounds at a time: visit(index of the first element of the first pack, keys of the packs).
  static constexpr int kAtOnce = kPacks > 1 ? 2 : 1;
  template <class Visit>
  RTOPK_DEVICE void each_packs(Visit&& visit) const {
#pragma unroll
    for (int s = 0; s < kPacks; s += kAtOnce)
      visit(first_of(s), reinterpret_cast<const Word(&)[kAtOnce][kPack]>(keys_[s]));
  }

 private:
  RTOPK_DEVICE unsigned first_of(int s) const { return (unsigned(s) * Team::kThreads + rank_) * kPack; }

  View view_;
  unsigned rank_;
  Word keys_[kPacks][kPack];
};

// A row that stays in global memory and is read anew by each sweep; or a part of it, from a multiple of kPack on to
// where the view ends.
template <class Bits, class Team>
class StreamedRow {
 public:
  static constexpr int kChunks = 1;
  using View = RowView<Bits>;
  using Word = WordOf<Bits>;
  static constexpr int kPack = View::kPack;
  static constexpr bool kShort = false;

  RTOPK_DEVICE StreamedRow(const View& view, const Team& team, unsigned begin = 0)
      : view_(view), begin_(begin), rank_(unsigned(team.rank())) {}

  RTOPK_DEVICE const View& view() const { return view_; }

  template <class Visit>
  RTOPK_DEVICE void each_pack(Visit&& visit) const {
    constexpr unsigned kRound = Team::kThreads * kPack;
    const unsigned rounds = (view_.n - begin_ - 1) / kRound + 1;
    for (unsigned s = 0; s < rounds; ++s) {
      const unsigned first = begin_ + s * kRound + rank_ * kPack;
      Word keys[kPack];
      keys_of(view_.map, view_.load(first), keys);
      view_.clear_beyond_end(first, keys);
      visit(s, first, keys);
    }
  }

  static constexpr int kAtOnce = 1;
  template <class Visit>
  RTOPK_DEVICE void each_packs(Visit&& visit) const {
    each_pack([&](unsigned, unsigned first, const Word(&keys)[kPack]) {
      visit(first, reinterpret_cast<const Word(&)[1][kPack]>(keys));
    });
  }

 private:
  View view_;
  unsigned begin_, rank_;
};

}  // namespace jax_rtopk::cuda
