#include "ffi/module.h"

#include "cuda/workspace.h"

#include <nanobind/stl/string.h>

NB_MODULE(_cuda, module) {
  module.doc() = "CUDA kernels of jax_rtopk.";
  jax_rtopk::define_targets(module);
  module.def("bucketed_workspace", &jax_rtopk::cuda::workspace_bytes, nanobind::arg("candidates"), nanobind::arg("k"),
             nanobind::arg("item_bytes"), "Bytes a row that the workspace of jax_rtopk_bucketed must have.");
  module.attr("SCATTERS_IN_ORDER") = true;
  module.def(
      "archs", [] { return std::string(JAX_RTOPK_CUDA_ARCHS); },
      "The compute capabilities that the kernels are compiled for, separated by blanks.");
}
