#include "ffi/module.h"
#include "cpu/kernels.h"
#include "cpu/pair.h"

NB_MODULE(_cpu, module) {
  module.doc() = "CPU kernels of jax_rtopk.";
  jax_rtopk::simd_level();  // refuses here, at import, what JAX_RTOPK_SIMD may not name
  jax_rtopk::define_targets(module);
  module.def("simd_level", &jax_rtopk::simd_level, "The instruction set that the kernels use on this machine.");
  module.attr("Pair") = nanobind::steal(jax_rtopk::make_pair_type());
}
