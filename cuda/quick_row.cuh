// A row in a warp's registers as the quick way wants it (quick.cuh).
#pragma once

#include "cuda/row.cuh"

namespace jax_rtopk::cuda {

// Elements as signed words, in the order of their keys. Floats of which the largest come first are at first their bits
// as they are: that is their order too, as long as only those without a sign matter.
template <class Bits, class Team, int packs, int chunks>
class QuickRow {
  static_assert(sizeof(Bits) == 4);

 public:
  static constexpr int kPacks = packs, kChunks = chunks;
  using View = RowView<Bits>;
  using Word = int32_t;
  static constexpr int kPack = View::kPack;
  static constexpr Word kLeast = INT32_MIN;  // beyond the row's end

  RTOPK_DEVICE explicit QuickRow(unsigned rank) : rank_(rank) {}

  // Rows of floats, the largest first, that fill their lanes.
  RTOPK_DEVICE void load_swiftly(const View& view) {
    const size_t first = first_of(0);
    Pack<Bits> bits[kPacks];  // all loads before the first use, so that they are under way together
#pragma unroll
    for (int s = 0; s < kPacks; ++s) bits[s] = view.data.load_pack(first + size_t(s) * Team::kThreads * kPack);
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) words_[s][j] = Word(bits[s].at[j]);
    }
    trusted_ = 0;
  }

  RTOPK_DEVICE void load(const View& view, const Team& team) {
    const RegisterRow<Bits, Team, kPacks, kChunks> keys(view, team);
    keys.each_pack([&](unsigned s, unsigned, const uint32_t (&of_pack)[kPack]) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) words_[s][j] = word_of(of_pack[j]);
    });
    trusted_ = kLeast;
  }

  // Are the words that are not below this one in order?
  RTOPK_DEVICE bool trusts(Word word) const { return word >= trusted_; }

  // Are they the elements' bits? If these words are in order.
  RTOPK_DEVICE bool has_bits() const { return trusted_ != kLeast; }

  // Makes it so for all.
  RTOPK_DEVICE void order_signs() {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) words_[s][j] = Word(spread_sign(uint32_t(words_[s][j]), 0x7fffffffu));
    }
    trusted_ = kLeast;
  }

  RTOPK_DEVICE static uint32_t key_of(Word word) { return uint32_t(word) ^ 0x80000000u; }

  // As RegisterRow.
  template <class Visit>
  RTOPK_DEVICE void each_pack(Visit&& visit) const {
#pragma unroll
    for (int s = 0; s < kPacks; ++s) visit(unsigned(s), first_of(s), words_[s]);
  }

 private:
  RTOPK_DEVICE static Word word_of(uint32_t key) { return Word(key ^ 0x80000000u); }
  RTOPK_DEVICE unsigned first_of(int s) const { return (unsigned(s) * Team::kThreads + rank_) * kPack; }

  unsigned rank_;
  Word trusted_;
  Word words_[kPacks][kPack];
};

}  // namespace jax_rtopk::cuda
