// Sinks: what becomes of the chosen elements of a row. A sink of a launch makes a sink for each row, which takes the
// row pack by pack.
#pragma once

#include "cuda/policy.h"
#include "cuda/row.cuh"
#include "cuda/sort.cuh"

namespace jax_rtopk::cuda {

// Selected elements in shared memory.
template <class Word>
struct SharedStore {
  Shared<Selected<Word>> items;

  RTOPK_DEVICE SharedStore(int offset, int count) : items(size_t(offset), count) {}
  RTOPK_DEVICE Selected<Word> load(unsigned i) const { return items.load(int(i)); }
  RTOPK_DEVICE void save(unsigned i, const Selected<Word>& item) const { items.store(int(i), item); }
};

// Selected elements in the results themselves.
template <class Bits>
struct GlobalStore {
  Global<Bits> values;
  Global<int32_t> indices;
  KeyMap<Bits> map;

  RTOPK_DEVICE GlobalStore hidden(int64_t count) const { return {values.hidden(count), indices.hidden(count), map}; }

  RTOPK_DEVICE Selected<WordOf<Bits>> load(unsigned i) const { return {map(values.load(i)), indices.load(i)}; }
  RTOPK_DEVICE void save(unsigned i, const Selected<WordOf<Bits>>& item) const {
    values.store(i, map.bits(Bits(item.key)));
    indices.store(i, item.index);
  }
};

// values[rows, k] and indices[rows, k].
template <class Bits>
struct PairSink {
  using Word = WordOf<Bits>;
  static constexpr int kHeld = 0;  // elements in registers beside the keys

  Global<Bits> values;
  Global<int32_t> indices;
  int k;
  int room;  // of the stage: places in shared memory where a row's results meet, to be sorted, and stored coalesced
  bool sorted;
  unsigned ranks = 0;  // the sum of 0 .. k - 1, where results are ranked

  // Is it enough to take bits where there are some?
  RTOPK_DEVICE bool takes_bits() const { return !sorted; }

  // Sorted results of a row that a warp has are put in order by rank if there is one for each lane at most and keys
  // have 32 bits: a network would have to move 64 for each. Ranking reads so many places of the stage at a time.
  static constexpr int kRankStep = 16;
  static constexpr bool can_rank(int64_t n, int64_t k) {
    return sizeof(Bits) == 4 && n > policy::kSharedWarp && n <= policy::warp_row_max(4) && k <= kWarp;
  }
  static constexpr int room_to_rank(int k) { return (k + kRankStep - 1) / kRankStep * kRankStep; }

  template <class Team>
  class OfRow {
   public:
    static constexpr bool kRanked = true;

    RTOPK_DEVICE OfRow(const PairSink& sink, int64_t row, const RowView<Bits>& view, int stage, bool active)
        : sink_(sink),
          results_{sink.values.part(row * sink.k, sink.k), sink.indices.part(row * sink.k, sink.k), view.map},
          stage_(stage, sink.room),
          active_(active) {}

    RTOPK_DEVICE void take(unsigned first, unsigned chosen, int before, const Word (&keys)[RowView<Bits>::kPack]) {
#pragma unroll
      for (int j = 0; j < RowView<Bits>::kPack; ++j) {
        if (!(chosen >> j & 1)) continue;
        const Selected<Word> item{keys[j], int32_t(first + j)};
        if (staged()) {
          stage_.save(unsigned(before), item);
        } else if (active_) {
          results_.save(unsigned(before), item);
        }
        ++before;
      }
    }

    // Those of a pack that are not below lo, which is not 0; as many were chosen `before`.
    RTOPK_DEVICE void take_from(unsigned first, Word lo, int before, const Word (&keys)[RowView<Bits>::kPack]) {
      if (staged()) {
        Appender<Selected<Word>> appender(stage_.items, before);
#pragma unroll
        for (int j = 0; j < RowView<Bits>::kPack; ++j)
          appender.append_if_at_least(Selected<Word>{keys[j], int32_t(first + j)}, lo);
      } else {
        unsigned chosen = 0;
#pragma unroll
        for (int j = 0; j < RowView<Bits>::kPack; ++j) chosen |= unsigned(keys[j] >= lo) << j;
        take(first, chosen, before, keys);
      }
    }

    // The selected survivors of a row (quick.cuh) whose words are their bits, in order of index.
    template <class Row, class Survivors>
    RTOPK_DEVICE void take_bits(const Row&, const Survivors& survivors) {
      const auto results = results_.hidden(sink_.k);
      survivors.each([&](unsigned i, int32_t word, int32_t index) {
        store_if_at_least(word, survivors.last(), results.values, Row::bits_of(word), results.indices, index, i);
      });
    }

    // The same of any row, for results by index or sorted.
    template <class Row, class Survivors>
    RTOPK_DEVICE void take_survivors(Team& team, const Row&, const Survivors& survivors) {
      if (!sink_.sorted) {
        return survivors.each([&](unsigned i, int32_t word, int32_t index) {
          const Bits bits = results_.map.bits(Bits(Row::key_of(word)));
          store_if_at_least(word, survivors.last(), results_.values, bits, results_.indices, index, i);
        });
      }
      team.sync();  // with those who still load survivors
      survivors.each([&](unsigned i, int32_t word, int32_t index) {
        store_if_at_least(word, survivors.last(), stage_.items, i, {Row::key_of(word), index});
      });
      finish_sorted(team);
    }

    RTOPK_DEVICE void finish(Team& team) {
      if (sink_.sorted) return finish_sorted(team);
      team.sync();
      if (!staged()) return;
      save_stage(team);
      team.sync();  // before the next row is staged
    }

   private:
    static constexpr bool kInWarp = Team::kWarps == 1;  // whose rows are always staged
    static constexpr bool kInRegisters = kInWarp && sizeof(Bits) < 8;

    static constexpr bool kIsRanked = Team::kThreads == kWarp && sizeof(Bits) == 4;

    RTOPK_DEVICE bool staged() const { return kInWarp || sink_.room > 0; }

    RTOPK_DEVICE void finish_sorted(Team& team) {
      const auto k = unsigned(sink_.k);
      if (kIsRanked) fill_stage(team, k);
      team.sync();
      if (!staged()) return sort_selected(team, results_, k);
      if (kIsRanked && k <= Team::kThreads) {
        save_by_rank(team, k);
      } else if (kInRegisters && k <= Team::kThreads) {
        sort_in_registers<1>(team, k);
      } else if (kInRegisters && k <= 2 * Team::kThreads) {
        sort_in_registers<2>(team, k);
      } else if (kInRegisters && k <= 4 * Team::kThreads) {
        sort_in_registers<4>(team, k);
      } else {
        sort_selected(team, stage_, k);
        save_stage(team);
      }
      team.sync();  // before the next row is staged
    }

    RTOPK_DEVICE void save_stage(Team& team) {
      if (!active_) return;
      for (unsigned i = unsigned(team.rank()); i < unsigned(sink_.k); i += Team::kThreads)
        results_.save(i, stage_.load(i));
    }

    // Elements that no other comes after, behind the k that are staged in order of index.
    RTOPK_DEVICE void fill_stage(Team& team, unsigned k) {
      const auto i = unsigned(team.rank());
      if (i >= k && i < unsigned(sink_.room)) stage_.save(i, {0, 0});
    }

    // From the stage to the results, an element a lane: its rank is the number of those above it.
    RTOPK_DEVICE void save_by_rank(Team& team, unsigned k) {
      if constexpr (kIsRanked) {
        const auto lane = unsigned(team.rank());
        const Selected<Word> own = lane < k ? stage_.load(lane) : Selected<Word>{~Word(0), 0};  // rank 0
        static_assert(2 * kRankStep == kWarp);
        unsigned rank = add_those_above<0, kRankStep>(0, stage_.items, own.key);
        if (k > kRankStep) rank = add_those_above<kRankStep, kRankStep>(rank, stage_.items, own.key);
        if (unlikely(sum_of_warp(rank) != sink_.ranks)) {  // some are equal: the earlier index first
          unsigned i = 0;
#pragma unroll 1
          do rank += i < lane && stage_.load(i).key == own.key;
          while (++i < k);
        }
        if (active_ && lane < k) results_.save(rank, own);
      }
    }

    // From the stage to the results, kEach elements a lane.
    template <int kEach>
    RTOPK_DEVICE void sort_in_registers(Team& team, unsigned k) {
      if constexpr (kInRegisters) {
        using Order = cuda::Order<sizeof(Bits)>;
        typename Order::Word orders[kEach];
        const unsigned first = unsigned(team.rank()) * kEach;
#pragma unroll
        for (int slot = 0; slot < kEach; ++slot)
          orders[slot] = first + slot < k ? Order::of(stage_.load(first + slot)) : 0;
        sort_descending<Team::kThreads>(orders);
#pragma unroll
        for (int slot = 0; slot < kEach; ++slot)
          if (active_ && first + slot < k) results_.save(first + slot, Order::item(orders[slot]));
      }
    }

    const PairSink& sink_;
    GlobalStore<Bits> results_;
    SharedStore<Word> stage_;
    bool active_;
  };
};

// mask[rows, n]: 1 where chosen.
template <class Bits>
struct MaskSink {
  static constexpr int kHeld = 0;

  RTOPK_DEVICE bool takes_bits() const { return true; }

  Global<uint8_t> mask;
  int64_t n;
  bool packed;  // as the operand's, for the flags of a pack

  template <class Team>
  class OfRow {
   public:
    static constexpr bool kRanked = false;
    static constexpr int kPack = RowView<Bits>::kPack;

    RTOPK_DEVICE OfRow(const MaskSink& sink, int64_t row, const RowView<Bits>& view, int, bool active)
        : mask_(sink.mask.part(row * sink.n, sink.n)), packed_(sink.packed), n_(active ? view.n : 0) {}

    RTOPK_DEVICE void take(unsigned first, unsigned chosen, int, const WordOf<Bits> (&)[kPack]) {
      Pack<uint8_t, kPack> flags;
#pragma unroll
      for (int j = 0; j < kPack; ++j) flags.at[j] = uint8_t(chosen >> j & 1);
      store_run(mask_, first, n_, packed_, flags);
    }

    RTOPK_DEVICE void take_from(unsigned first, WordOf<Bits> lo, int, const WordOf<Bits> (&keys)[kPack]) {
      Pack<uint8_t, kPack> flags;
#pragma unroll
      for (int j = 0; j < kPack; ++j) flags.at[j] = uint8_t(keys[j] >= lo);
      store_run(mask_, first, n_, packed_, flags);
    }

    // The selected elements of a row, those from the last of the survivors up (quick.cuh).
    template <class Row, class Survivors>
    RTOPK_DEVICE void take_bits(const Row& row, const Survivors& survivors) {
      row.each_pack([&](unsigned, unsigned first, const int32_t (&words)[kPack]) {
        Pack<uint8_t, kPack> flags;
#pragma unroll
        for (int j = 0; j < kPack; ++j) flags.at[j] = uint8_t(words[j] >= survivors.last());
        store_run(mask_, first, n_, packed_, flags);
      });
    }
    template <class Row, class Survivors>
    RTOPK_DEVICE void take_survivors(Team&, const Row& row, const Survivors& survivors) {
      take_bits(row, survivors);
    }

    RTOPK_DEVICE void finish(Team&) {}

   private:
    Global<uint8_t> mask_;
    bool packed_;
    unsigned n_;
  };
};

// dense[rows, n]: the element where chosen, else 0.
template <class Bits>
struct DenseSink {
  static constexpr int kHeld = 16 / sizeof(Bits);

  RTOPK_DEVICE bool takes_bits() const { return true; }

  Global<Bits> dense;
  int64_t n;
  bool packed;
  bool reload;  // keys don't tell the elements

  template <class Team>
  class OfRow {
   public:
    static constexpr bool kRanked = false;
    static constexpr int kPack = RowView<Bits>::kPack;

    RTOPK_DEVICE OfRow(const DenseSink& sink, int64_t row, const RowView<Bits>& view, int, bool active)
        : view_(view),
          dense_(sink.dense.part(row * sink.n, sink.n)),
          packed_(sink.packed),
          reload_(sink.reload),
          n_(active ? view.n : 0) {}

    RTOPK_DEVICE void take(unsigned first, unsigned chosen, int, const WordOf<Bits> (&keys)[kPack]) {
      take_where(first, keys, [&](int j) { return (chosen >> j & 1) != 0; });
    }

    RTOPK_DEVICE void take_from(unsigned first, WordOf<Bits> lo, int, const WordOf<Bits> (&keys)[kPack]) {
      take_where(first, keys, [&](int j) { return keys[j] >= lo; });
    }

    // The selected elements of a row, those from the last of the survivors up (quick.cuh).
    template <class Row, class Survivors>
    RTOPK_DEVICE void take_bits(const Row& row, const Survivors& survivors) {
      row.each_pack([&](unsigned, unsigned first, const int32_t (&words)[kPack]) {
        WordOf<Bits> keys[kPack];
#pragma unroll
        for (int j = 0; j < kPack; ++j) keys[j] = Row::key_of(words[j]);
        take_where(first, keys, [&](int j) { return words[j] >= survivors.last(); });
      });
    }
    template <class Row, class Survivors>
    RTOPK_DEVICE void take_survivors(Team&, const Row& row, const Survivors& survivors) {
      take_bits(row, survivors);
    }

    RTOPK_DEVICE void finish(Team&) {}

   private:
    template <class Chosen>
    RTOPK_DEVICE void take_where(unsigned first, const WordOf<Bits> (&keys)[kPack], Chosen&& chosen) {
      Pack<Bits> out;
      if (reload_) {
        out = view_.load(first);
      } else {
#pragma unroll
        for (int j = 0; j < kPack; ++j) out.at[j] = view_.map.bits(Bits(keys[j]));
      }
#pragma unroll
      for (int j = 0; j < kPack; ++j) out.at[j] = chosen(j) ? out.at[j] : Bits(0);
      store_run(dense_, first, n_, packed_, out);
    }

    RowView<Bits> view_;
    Global<Bits> dense_;
    bool packed_, reload_;
    unsigned n_;
  };
};

}  // namespace jax_rtopk::cuda
