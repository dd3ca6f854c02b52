// Bucketed top-k of elements of 32 bits.
#include "cuda/bucketed.cuh"

namespace jax_rtopk::cuda {

template std::string bucketed_as<uint32_t>(const Request&, const Buckets&, const void*, void*, int32_t*, void*, int64_t,
                                           Stream);

}  // namespace jax_rtopk::cuda
