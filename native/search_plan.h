// What the threshold search knows before it has seen a row: how to cut it into groups, and what ranks to expect among
// the groups' maxima.
//
// If each element exceeds a threshold with probability q, the maximum of g elements does with probability 1-(1-q)^g,
// whatever the distribution. So the rank of the k-th largest element among the maxima can be told from n and k alone.
// Computed once per call, on the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "native/ordered_key.h"

namespace jax_rtopk {

inline constexpr int kGroups = 32;

// A bracket of at most so many elements is resolved: they are few enough to be ordered among themselves, without
// another pass over the row. So a search that has come so far gives the exact answer.
inline constexpr int kResolved = 64;

struct SearchPlan {
  int32_t n;
  int32_t k;
  int32_t groups;   // how many groups the row is cut into: min(n, kGroups)
  int32_t chunk;    // consecutive elements, at most 16 bytes, that a GPU's lane holds together
  int32_t sampled;  // elements of each group whose maximum is taken; n: all of them
  int32_t step;     // every so many of a group's elements one is sampled, a power of two
  float rank;       // expected rank of the k-th largest element among the group maxima, counted from 0
  float spread;     // half the distance, in ranks, between the two pivots of the first pass
  float slope;      // ranks per element near the k-th largest
  float deviation;  // standard deviation of the rank, from row to row

  // Chunks go to the groups in turn, and the elements of a chunk to groups far apart, so that neighbours, which are
  // often alike, do not meet in one. With chunk c = i / chunk and place p = i % chunk of element i:
  //   group = (c + group_shift() * p) % groups,      position in its group = c / groups * chunk + p.
  RTOPK_HD int32_t group_shift() const { return groups / chunk; }
  RTOPK_HD bool samples(int32_t position) const {
    return (position & (step - 1)) == 0 && position < int64_t(sampled) * step;
  }

  // Of a place among the maxima that was worked out in fractions.
  RTOPK_HD int index_at(float place) const {
    const float end = float(groups - 1);
    return int(place < 0.0F ? 0.0F : (place > end ? end : place));
  }

  // 0 < k <= n. Not for sources that are compiled for several instruction sets: it is not always inlined.
  static SearchPlan make(int32_t n, int32_t k, int item_bytes) {
    SearchPlan plan{};
    plan.n = n;
    plan.k = k;
    plan.groups = n < kGroups ? n : kGroups;
    plan.chunk = 16 / item_bytes;
    while (plan.chunk > 1 && int64_t(plan.chunk) * plan.groups > n) plan.chunk /= 2;
    plan.sampled = n;
    plan.step = 1;
    if (plan.groups == n) {  // the maxima are the row itself
      plan.rank = float(k) - 0.5F;
      plan.spread = 0.0F;
      plan.slope = 1.0F;
      return plan;
    }
    const double groups = plan.groups;
    const double exceed = double(k) / n;
    double size = n / groups;
    if (std::pow(1 - exceed, size) < 0.2) {  // too few maxima would fall below the threshold: sample less of each group
      size = 1;
      while (std::pow(1 - exceed, 2 * size) >= 0.2) size *= 2;
      plan.sampled = int32_t(size);
      while (2 * plan.step * plan.sampled <= n / plan.groups) plan.step *= 2;
    }
    const double spared = std::pow(1 - exceed, size);  // a group has no element above the threshold
    const double both_spared =
        n == k ? 0.0 : spared * spared * std::pow(1 - size * k / ((n - size) * (double(n) - k)), size);
    const double variance = groups * spared + groups * (groups - 1) * both_spared - groups * spared * (groups * spared);
    // Rounded: where the first pass counts must not hang on the last bit of a platform's pow.
    plan.rank = float(std::floor(groups * (1 - spared) * 1024 + 0.5) / 1024);
    plan.slope = float(groups * size / n * std::pow(1 - exceed, size - 1));
    // So far that the k-th largest lies between the pivots nearly always, if these then leave few enough elements; else
    // as far as tells most.
    const double deviation = std::sqrt(variance > 0 ? variance : 0.0);
    plan.deviation = float(deviation);
    const double wide = std::fmin(2.5 * deviation, 0.3 * kResolved * plan.slope);
    plan.spread = float(std::floor(std::fmax(0.9 * deviation, wide) * 1024 + 0.5) / 1024);
    return plan;
  }
};

// Which of the group maxima, from the largest, are the first pass's pivots.
struct FirstPivots {
  int low, high;
  RTOPK_HD explicit FirstPivots(const SearchPlan& plan)
      : low(plan.index_at(plan.rank + plan.spread)), high(plan.index_at(plan.rank - plan.spread)) {}
};

}  // namespace jax_rtopk
