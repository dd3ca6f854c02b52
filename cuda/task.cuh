// What a kernel that takes whole rows is asked to do.
#pragma once

#include "cuda/quick_plan.h"
#include "cuda/row.cuh"
#include "native/request.h"

namespace jax_rtopk::cuda {

// The same for every sink.
template <class Bits>
struct Task {
  Global<const Bits> operand;
  int64_t rows;
  SearchPlan plan;
  QuickPlan quick;
  int max_iter;
  bool packed;  // all rows start on sixteen bytes and end on a pack
  bool plain;   // floats, the largest first
  bool swift;   // and packed, and rows fill their lanes
  bool usual;   // and they go the quick way, by the maxima of whole groups
  KeyMap<Bits> map;

  // Asks for a row that will be wanted, a line of the L2 cache a thread: all of it, but of rows that are streamed.
  RTOPK_DEVICE void prefetch(int64_t row, unsigned rank) const {
    prefetch_if_less(row, rows, operand, row * plan.n + line(rank));
  }
  // Where that line begins, or the row's last one.
  RTOPK_DEVICE unsigned line(unsigned rank) const {
    const unsigned first = rank * (128 / unsigned(sizeof(Bits))), last = unsigned(plan.n) - 1;
    return first < last ? first : last;
  }

  RTOPK_DEVICE RowView<Bits> view(int64_t row) const {
    return {operand.part(row * plan.n, plan.n), unsigned(plan.n), packed, map, plain};
  }
};

// Task::prefetch for rows in a warp, in fewer instructions.
template <class Bits>
class NextRow {
 public:
  // A team's next row is `stride` rows on; the teams of a warp have `at_once` neighbouring ones.
  RTOPK_DEVICE NextRow(const Task<Bits>& task, unsigned rank, int64_t stride, int at_once)
      : last_(unforeseen(task.rows - stride - (at_once - 1))) {
    ahead_ = unforeseen(stride * task.plan.n + task.line(rank));
  }

  // For the teams of a warp whose first row is `row`; hides the address in `view`, to which it is an addition.
  RTOPK_DEVICE void prefetch_after(RowView<Bits>& view, int64_t row) const {
    view.data = view.data.hidden(view.n);
    prefetch_if_less(row, last_, view.data, ahead_);
  }

 private:
  int64_t ahead_, last_;
};

inline bool starts_on(const void* address, size_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

template <class Bits>
Task<Bits> task_of(const Request& request, const void* operand) {
  const auto n = int32_t(request.n), k = int32_t(request.k);
  const auto* data = static_cast<const Bits*>(operand);
  return {Global<const Bits>(data, request.rows * request.n),
          request.rows,
          SearchPlan::make(n, k, sizeof(Bits)),
          QuickPlan{},
          request.most_passes(),
          starts_on(data, 16) && request.n % RowView<Bits>::kPack == 0,
          request.kind == Kind::kFloat && request.largest && !request.by_magnitude,
          false,
          false,
          KeyMap<Bits>::make(request.kind, !request.largest, request.by_magnitude)};
}

}  // namespace jax_rtopk::cuda
