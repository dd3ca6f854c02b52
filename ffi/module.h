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
        return targets;
      },
      nanobind::sig("def targets() -> dict[str, object]"),
      "FFI target names and the capsules to register for them with jax.ffi.register_ffi_target.");
}

}  // namespace jax_rtopk
