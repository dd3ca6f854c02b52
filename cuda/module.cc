#include "ffi/module.h"

#include "cuda/digits.h"
#include "cuda/parts.h"
#include "cuda/workspace.h"

#include <nanobind/stl/string.h>

NB_MODULE(_cuda, module) {
  module.doc() = "CUDA kernels of jax_rtopk.";
  jax_rtopk::define_targets(module);
  module.def("bucketed_workspace", &jax_rtopk::cuda::workspace_bytes, nanobind::arg("candidates"), nanobind::arg("k"),
             nanobind::arg("item_bytes"), "Bytes a row that the workspace of jax_rtopk_bucketed must have.");
  module.def(
      "topk_parts", &jax_rtopk::cuda::policy::parts, nanobind::arg("rows"), nanobind::arg("n"), nanobind::arg("k"),
      nanobind::arg("item_bytes"),
      "In how many parts jax_rtopk_topk_in_parts had best select from rows; 1: jax_rtopk_topk takes them whole.");
  module.def("topk_in_parts_workspace", &jax_rtopk::cuda::parts_workspace_bytes, nanobind::arg("parts"),
             nanobind::arg("k"), nanobind::arg("item_bytes"),
             "Bytes a row that the workspace of jax_rtopk_topk_in_parts must have.");
  module.def("by_digits", &jax_rtopk::cuda::policy::by_digits, nanobind::arg("rows"), nanobind::arg("n"),
             nanobind::arg("item_bytes"),
             "Whether rows that are not selected from in parts had best be by digits: jax_rtopk_topk_by_digits etc.");
  module.def("by_digits_workspace", &jax_rtopk::cuda::digits_workspace_bytes, nanobind::arg("item_bytes"),
             "Bytes a row that the workspace of jax_rtopk_topk_by_digits etc. must have.");
  module.attr("SCATTERS_IN_ORDER") = true;
  module.def(
      "archs", [] { return std::string(JAX_RTOPK_CUDA_ARCHS); },
      "The compute capabilities that the kernels are compiled for, separated by blanks.");
}
