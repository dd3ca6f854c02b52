// The threshold search: brackets the k-th largest key of a row by counting, a few pivots at a time.
//
// One object per row. The caller keeps the row wherever it likes (memory, vector registers, the lanes of a warp) and
// repeats
//     while (search.goes_on(max_iter)) { p = search.pivots(maxima); search.observe(p, count(key >= p.low),
//     count(key >= p.high)); }
// or, once search.resolved(), finds the k-th largest among the elements of the bracket, in whatever way: the answer is
// then exact, and max_iter does not matter any more.
// The pivots decide what an early-stopped search returns, so they are computed with integer and correctly rounded float
// operations only, in this order on every back end (compile with -ffp-contract=off, --fmad=false). tests/search_spec.py
// is the same in numpy, and binds.
//
// Source: RTop-K (arXiv 2409.00822) for early-stopped threshold search by counting; the pivots from group maxima are
// this project's.
#pragma once

#include <cstdint>

#include "native/ordered_key.h"
#include "native/search_plan.h"

namespace jax_rtopk {

RTOPK_HD int floor_log2(uint32_t positive) {
#if defined(__CUDA_ARCH__)
  return 31 - __clz(int(positive));
#else
  return 31 - __builtin_clz(positive);
#endif
}

// Word is uint32_t for keys of up to 32 bits, uint64_t for wider ones.
template <class Word>
struct Pivots {
  Word low;
  Word high;  // low <= high
};

// lo <= the k-th largest key <= last, and count(key >= lo) >= k > count(key > last).
template <class Word>
struct Bracket {
  Word lo, last;
  int32_t count_lo, count_last;

  // How many elements lie in it.
  RTOPK_HD int32_t width() const { return count_lo - count_last; }
  RTOPK_HD bool resolved() const { return width() <= kResolved; }

  // Selected are the count_last keys above `last`, and of those from lo up to `last` the first by index, until there
  // are k. But if no count has lowered it, `last` is the row's maximum, a certain member that must not have to queue:
  // then its first occurrence is selected, and of the rest from lo up the first by index.
  RTOPK_HD bool maximum_is_last() const { return count_last == 0; }
};

template <class Word>
class Search {
 public:
  // `top` is the largest key of the row.
  RTOPK_HD Search(const SearchPlan& plan, Word top)
      : top_(top), lo_(0), last_(top), k_(plan.k), count_lo_(plan.n), count_last_(0), rank_(plan.rank), plan_(plan) {}

  RTOPK_HD Bracket<Word> bracket() const { return {lo_, last_, count_lo_, count_last_}; }

  RTOPK_HD bool done() const { return count_lo_ == k_ || lo_ == last_; }
  RTOPK_HD bool resolved() const { return bracket().resolved(); }
  RTOPK_HD bool goes_on(int max_iter) const { return !done() && (passes_ < max_iter || resolved()); }

  // Where to count next. `maxima` knows the plan's group maxima: at(i) is the i-th largest, counted from 0; above(key)
  // and from(key) count those > key and >= key. Tells nothing when done().
  template <class Maxima>
  RTOPK_HD Pivots<Word> pivots(const Maxima& maxima) const {
    const bool both = below_ && above_;
    const int32_t width = count_lo_ - count_last_;
    const float share = float(k_ - count_last_) / float(width);  // of the bracket, from last downwards

    // First choice: group maxima, which are elements of the row and know its distribution.
    float rank = rank_;
    float spread = plan_.spread;
    if (both) {
      const int beyond = maxima.above(last_);
      const int reached = maxima.from(lo_);
      const float step = share * float(reached - beyond + 1);
      rank = (float(beyond) - 0.5F) + step;
      spread = 0.5F;
    }
    const Word maximum_low = maxima.at(plan_.index_at(rank + spread));
    const Word maximum_high = maxima.at(plan_.index_at(rank - spread));
    const bool use_low = inside(maximum_low);
    const bool use_high = inside(maximum_high);
    // Once a count has raised lo, the other choice is always computed: whether a maximum is inside the bracket cannot
    // be predicted, so it is chosen without a branch.
    Pivots<Word> choice{maximum_low, maximum_high};
    if (below_ || !use_low || !use_high) {
      const Pivots<Word> other = below_ ? interpolated(width, share) : galloping(maxima.at(plan_.groups - 1));
      choice.low = use_low ? choice.low : other.low;
      choice.high = use_high ? choice.high : other.high;
      if (choice.low > choice.high) choice = {choice.high, choice.low};
    }
    // Equal pivots: count > as well as >=, which ends the search on a plateau.
    if (choice.low == choice.high && choice.high < last_) choice.high += 1;
    return choice;
  }

  // Takes count(key >= low) and count(key >= high).
  RTOPK_HD void observe(const Pivots<Word>& pivots, int32_t count_low, int32_t count_high) {
    moved_lo_ = moved_last_ = false;
    narrow(pivots.low, count_low);
    narrow(pivots.high, count_high);
    below_ = below_ || moved_lo_;
    above_ = above_ || moved_last_;
    const float off = float((below_ ? count_lo_ : count_last_) - k_);
    const float move = plan_.slope * off;
    rank_ = rank_ - move;
    ++passes_;
  }

 private:
  RTOPK_HD bool inside(Word pivot) const { return (pivot > lo_) & (pivot <= last_); }

  // The key at a fraction, in units of 2^-16, of the way from lo to last; lo itself excluded.
  RTOPK_HD Word at_fraction(uint32_t fraction) const {
    const Word room = last_ - lo_ - 1;
    return lo_ + 1 + (room >> 16) * fraction + (((room & 0xFFFF) * fraction) >> 16);
  }

  // Second choice: interpolate on the counts, and stand a little to either side.
  RTOPK_HD Pivots<Word> interpolated(int32_t width, float share) const {
    // From the eighth pass on, every other pass cuts the range of keys in three: the search ends on any row.
    if (passes_ >= 7 && passes_ % 2 == 1) return {at_fraction(21845), at_fraction(43690)};
    const float down = 1.0F - share;
    const int32_t fraction = int32_t(down * 65536.0F);
    const int32_t middle = fraction < 1024 ? 1024 : (fraction > 64512 ? 64512 : fraction);
    const int32_t aside = 16384 >> (floor_log2(uint32_t(width)) >> 1);
    Pivots<Word> choice{at_fraction(uint32_t(middle - aside < 512 ? 512 : middle - aside)),
                        at_fraction(uint32_t(middle + aside > 65024 ? 65024 : middle + aside))};
    // The last pass moved one end only: keys may be heaped at the other end, so ask there.
    if (moved_last_ && !moved_lo_) choice.low = lo_ + 1;
    if (moved_lo_ && !moved_last_) choice.high = last_;
    return choice;
  }

  // Nothing counted below yet: so many keys were met between the top and last; k wants so many times the way.
  RTOPK_HD Pivots<Word> galloping(Word least_maximum) const {
    const Word end = least_maximum < last_ ? least_maximum : last_;
    const Word way = top_ > end ? top_ - end : Word(1);
    const int32_t ratio = k_ / (count_last_ > 0 ? count_last_ : 1);
    const int times = floor_log2(uint32_t(ratio > 0 ? ratio : 1));
    const Word room = last_ - 1;
    const Word near = way < room >> times ? way << times : room;
    const Word far = near < room >> 2 ? near << 2 : room;
    return {Word(last_ - far), Word(last_ - near)};
  }

  RTOPK_HD void narrow(Word pivot, int32_t count) {
    const bool enough = count >= k_, raise = inside(pivot) & enough, lower = inside(pivot) & !enough;
    lo_ = raise ? pivot : lo_;
    count_lo_ = raise ? count : count_lo_;
    last_ = lower ? Word(pivot - 1) : last_;
    count_last_ = lower ? count : count_last_;
    moved_lo_ |= raise;
    moved_last_ |= lower;
  }

  Word top_;
  Word lo_;
  Word last_;
  int32_t k_;
  int32_t count_lo_;
  int32_t count_last_;
  float rank_;  // where the k-th largest is now expected among the maxima, as long as one end has not been counted
  int passes_ = 0;
  bool below_ = false;    // a count has raised lo
  bool above_ = false;    // a count has lowered last
  bool moved_lo_ = true;  // what the last pass did
  bool moved_last_ = true;
  const SearchPlan& plan_;
};

}  // namespace jax_rtopk
