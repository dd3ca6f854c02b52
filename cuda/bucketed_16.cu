// Bucketed top-k of elements of 16 bits.
#include "cuda/bucketed.cuh"

namespace jax_rtopk::cuda {

template std::string bucketed_as<uint16_t>(const Request&, const Buckets&, const void*, void*, int32_t*, void*, int64_t,
                                           Stream);

}  // namespace jax_rtopk::cuda
