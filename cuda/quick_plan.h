// How the rows of a launch go the quick way (quick.cuh).
#pragma once

#include <cstdint>

#include "native/search_plan.h"

namespace jax_rtopk::cuda {

struct QuickPlan {
  int32_t place;   // of the maximum that is the threshold, counted from 1
  int32_t turn;    // xored into words: then the one that is met first is the largest, without a sign
  int32_t spare;   // survivors there may be beyond k; 0: rows do not go this way
  int32_t stride;  // maxima, in 256ths, to go on for each survivor beyond k
  bool early;      // max_iter matters
  int32_t reach;   // maxima that are not below the threshold

  // The threshold is the search's first low pivot. So where from there up lie at least k and at most kResolved
  // elements, the search would end exactly after its first pass, and the exact answer is that of any max_iter.
  static QuickPlan make(const SearchPlan& plan, bool early, int room) {
    const int index = FirstPivots(plan).low;  // in descending order
    const bool ascending = index >= kGroups / 2;
    QuickPlan quick{};
    quick.reach = index + 1;
    quick.place = ascending ? kGroups - index : index + 1;
    quick.turn = ascending ? INT32_MAX : INT32_MIN;
    quick.stride = ascending ? int(0.8F * 256 * plan.slope) : 0;
    quick.early = early;
    const int most = early && room > kResolved ? kResolved : room;
    if (plan.groups == kGroups && plan.k < most) quick.spare = most - plan.k;
    return quick;
  }
};

}  // namespace jax_rtopk::cuda
