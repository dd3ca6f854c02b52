// The images of elements by which the queues of the first stage compare. Any has a Lane, the values of a pack as Lanes,
// the key of a Lane, and `kLowest`, which is less than all that a queue is to keep.
#pragma once

#include <limits>

#include "cuda/row.cuh"

namespace jax_rtopk::cuda {

// The keys themselves.
template <class Bits>
struct KeyLanes {
  using Lane = WordOf<Bits>;
  static constexpr Lane kLowest = 0;

  KeyMap<Bits> map;
  Lane least;  // the first that queues keep

  RTOPK_DEVICE KeyLanes(const KeyMap<Bits>& order, bool) : map{order.spread, order.flip, 0}, least(1) {}

  template <int kCount>
  RTOPK_DEVICE void of(const Pack<Bits, kCount>& bits, Lane (&lanes)[kCount]) const {
    keys_of(map, bits, lanes);
  }
  RTOPK_DEVICE WordOf<Bits> key(Lane lane) const { return lane; }
};

// The bits as signed integers, where the largest are looked for: for nothing more than a load. That is the order of
// signed integers; and of floats without a sign, before which no others come. Where these don't suffice, the row has to
// be read again by its keys.
template <class Bits>
struct SignedLanes {
  using Lane = std::make_signed_t<WordOf<Bits> >;
  static constexpr Lane kLowest = std::numeric_limits<Lane>::min();
  static constexpr int kUnused = 8 * int(sizeof(Lane) - sizeof(Bits));  // low bits, which are 0

  KeyMap<Bits> map;
  Lane least;

  RTOPK_DEVICE SignedLanes(const KeyMap<Bits>& order, bool floats)
      : map{order.spread, order.flip, 0}, least(floats ? Lane(0) : kLowest + 1) {}

  template <int kCount>
  RTOPK_DEVICE void of(const Pack<Bits, kCount>& bits, Lane (&lanes)[kCount]) const {
    if constexpr (sizeof(Bits) == 2 && kCount > 1) {
      uint32_t pairs[kCount / 2];
      memcpy(pairs, &bits, sizeof pairs);
#pragma unroll
      for (int j = 0; j < kCount / 2; ++j) {
        lanes[2 * j] = Lane(pairs[j] << 16);
        lanes[2 * j + 1] = Lane(pairs[j] & 0xffff0000u);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) lanes[j] = Lane(WordOf<Bits>(bits.at[j]) << kUnused);
    }
  }
  RTOPK_DEVICE WordOf<Bits> key(Lane lane) const { return map(Bits(WordOf<Bits>(lane) >> kUnused)); }
};

}  // namespace jax_rtopk::cuda
