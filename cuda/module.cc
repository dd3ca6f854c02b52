#include "ffi/module.h"

#include <nanobind/stl/string.h>

NB_MODULE(_cuda, module) {
  module.doc() = "CUDA kernels of jax_rtopk.";
  jax_rtopk::define_targets(module);
  module.def(
      "archs", [] { return std::string(JAX_RTOPK_CUDA_ARCHS); },
      "The compute capabilities that the kernels are compiled for, separated by blanks.");
}
