// What a kernel is asked to do with whole rows.
#pragma once

#include "cuda/quick_plan.h"
#include "cuda/row.cuh"
#include "native/request.h"

namespace jax_rtopk::cuda {

// The same whatever becomes of the result.
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
  KeyMap<Bits> map;

  RTOPK_DEVICE RowView<Bits> view(int64_t row) const {
    return {operand.part(row * plan.n, plan.n), unsigned(plan.n), packed, map, plain};
  }
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
          KeyMap<Bits>::make(request.kind, !request.largest, request.by_magnitude)};
}

}  // namespace jax_rtopk::cuda
