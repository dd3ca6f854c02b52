// Long rows in parts, of elements of 32 bits.
#include "cuda/parts.cuh"

namespace jax_rtopk::cuda {

extern template std::string topk_as<uint32_t>(const Request&, const void*, void*, int32_t*, Stream);
template std::string topk_in_parts_as<uint32_t>(const Request&, int64_t, const void*, void*, int32_t*, void*, Stream);

}  // namespace jax_rtopk::cuda
