// What the native module of every back end offers to Python.
#pragma once

#include <nanobind/nanobind.h>

#include "ffi/handlers.h"

namespace jax_rtopk {

inline void define_targets(nanobind::module_& module) {
  module.def(
      "targets",
      [] {
        const auto capsule = [](XLA_FFI_Handler* handler) {
          return nanobind::capsule(reinterpret_cast<void*>(handler));
        };
        const Handlers all = handlers();
        nanobind::dict targets;
        targets["jax_rtopk_topk"] = capsule(all.topk);
        targets["jax_rtopk_bucketed"] = capsule(all.bucketed);
        targets["jax_rtopk_mask"] = capsule(all.mask);
        targets["jax_rtopk_sparsify"] = capsule(all.sparsify);
        if (all.long_rows.topk_in_parts != nullptr) {
          targets["jax_rtopk_topk_in_parts"] = capsule(all.long_rows.topk_in_parts);
          targets["jax_rtopk_topk_by_digits"] = capsule(all.long_rows.topk_by_digits);
          targets["jax_rtopk_mask_by_digits"] = capsule(all.long_rows.mask_by_digits);
          targets["jax_rtopk_sparsify_by_digits"] = capsule(all.long_rows.sparsify_by_digits);
        }
        targets["jax_rtopk_gather_sum"] = capsule(all.sparse.gather_sum);
        targets["jax_rtopk_sampled_dot"] = capsule(all.sparse.sampled_dot);
        targets["jax_rtopk_scatter_add"] = capsule(all.sparse.scatter_add);
        targets["jax_rtopk_neighbor_sum"] = capsule(all.sparse.neighbor_sum);
        targets["jax_rtopk_neighbor_dot"] = capsule(all.sparse.neighbor_dot);
        targets["jax_rtopk_edge_dot"] = capsule(all.sparse.edge_dot);
        return targets;
      },
      nanobind::sig("def targets() -> dict[str, object]"),
      "FFI target names and the capsules to register for them with jax.ffi.register_ffi_target.");
}

}  // namespace jax_rtopk
