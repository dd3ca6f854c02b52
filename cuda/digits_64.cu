// Few long rows by digits, of elements of 64 bits.
#include "cuda/digits.cuh"

namespace jax_rtopk::cuda {

using Bits = uint64_t;
template std::string topk_by_digits_as<Bits>(const Request&, const void*, void*, int32_t*, void*, Stream);
template std::string mask_by_digits_as<Bits>(const Request&, const void*, uint8_t*, void*, Stream);
template std::string sparsify_by_digits_as<Bits>(const Request&, const void*, void*, void*, Stream);

}  // namespace jax_rtopk::cuda
