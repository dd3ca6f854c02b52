// The kernels for elements of 8 bits.
#include "cuda/kernels.cuh"

namespace jax_rtopk::cuda {

template std::string topk_as<uint8_t>(const Request&, const void*, void*, int32_t*, Stream);
template std::string mask_as<uint8_t>(const Request&, const void*, uint8_t*, Stream);
template std::string sparsify_as<uint8_t>(const Request&, const void*, void*, Stream);

}  // namespace jax_rtopk::cuda
