// A row in a warp's registers as the quick way wants it (quick.cuh).
#pragma once

#include "cuda/row.cuh"

namespace jax_rtopk::cuda {

// Elements as signed words, in the order of their keys. Floats of which the largest come first are at first their bits
// as they are: that is their order too, as long as only those without a sign matter.
//
// Where an element leaves room, its index is in the word, too: then all words differ, and are in order of selection.
template <class Bits, class Team, int packs, int chunks>
class QuickRow {
  static_assert(sizeof(Bits) == 2 || sizeof(Bits) == 4);

 public:
  static constexpr int kPacks = packs, kChunks = chunks;
  using View = RowView<Bits>;
  using Word = int32_t;
  static constexpr int kPack = View::kPack;
  static constexpr Word kLeast = INT32_MIN;  // beyond the row's end
  static constexpr bool kIndexed = sizeof(Bits) == 2;
  static constexpr uint32_t kIndexMask = kIndexed ? 0xffffu : 0;

  RTOPK_DEVICE explicit QuickRow(unsigned rank) : rank_(rank) {}

  // Rows of floats, the largest first, that start on sixteen bytes and end on a pack; `full`: that fill their lanes.
  // Beyond the end are ones: what the order of floats has last, and without order is negative.
  template <bool full>
  RTOPK_DEVICE void load_swiftly(const View& view) {
    const size_t first = first_of(0);
    Pack<Bits> bits[kPacks];  // all loads before the first use, so that they are under way together
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      const size_t place = first + size_t(s) * Team::kThreads * kPack;
      bits[s] = full ? view.data.load_pack(place) : load_pack_or_ones(view.data, place, view.n);
    }
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
      uint32_t parts[4];
      memcpy(parts, &bits[s], sizeof parts);
      if constexpr (kIndexed) {
        // The complements of two neighbours' indices; unforeseen, or they would be made anew for each.
        uint32_t below = unforeseen(0xfffeffffu - first_of(s) * 0x10001u);
#pragma unroll
        for (int j = 0; j < kPack; j += 2) {
          words_[s][j] = Word(join_halves<0>(parts[j / 2], below));
          words_[s][j + 1] = Word(join_halves<1>(parts[j / 2], below));
          below -= 0x20002u;
        }
      } else {
        memcpy(words_[s], parts, sizeof parts);
      }
    }
    trusted_ = 0;
  }

  RTOPK_DEVICE void load(const View& view, const Team& team) {
    const RegisterRow<Bits, Team, kPacks, kChunks> keys(view, team);
    keys.each_pack([&](unsigned s, unsigned first, const uint32_t (&of_pack)[kPack]) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        if constexpr (kIndexed) {
          const uint32_t index = first + unsigned(j);
          words_[s][j] = index < view.n ? Word(((of_pack[j] << 16) | (~index & kIndexMask)) ^ 0x80000000u) : kLeast;
        } else {
          words_[s][j] = Word(of_pack[j] ^ 0x80000000u);
        }
      }
    });
    trusted_ = kLeast;
  }

  // Are the words in order that are not below this one, which is the same in all lanes?
  RTOPK_DEVICE bool trusts(Word word) const { return lanes_from(word, trusted_) != 0; }

  // Are they the elements' bits? If these words are in order.
  RTOPK_DEVICE bool has_bits() const { return trusted_ != kLeast; }

  // Makes it so for all.
  RTOPK_DEVICE void order_signs() {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        words_[s][j] = Word(spread_sign(uint32_t(words_[s][j]), 0x7fffffffu & ~kIndexMask));
    }
    trusted_ = kLeast;
  }

  RTOPK_DEVICE static uint32_t key_of(Word word) {
    return kIndexed ? (uint32_t(word) ^ 0x80000000u) >> 16 : uint32_t(word) ^ 0x80000000u;
  }
  RTOPK_DEVICE static uint32_t bits_of(Word word) { return kIndexed ? uint32_t(word) >> 16 : uint32_t(word); }
  RTOPK_DEVICE static int32_t index_in(Word word) { return int32_t(complement_in<kIndexMask>(uint32_t(word))); }

  // As RegisterRow.
  template <class Visit>
  RTOPK_DEVICE void each_pack(Visit&& visit) const {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) visit(unsigned(s), first_of(s), words_[s]);
  }

 private:
  RTOPK_DEVICE unsigned first_of(int s) const { return (unsigned(s) * Team::kThreads + rank_) * kPack; }

  unsigned rank_;
  Word trusted_;
  Word words_[kPacks][kPack];
};

}  // namespace jax_rtopk::cuda
