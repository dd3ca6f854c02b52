// The kernels for one instruction set: RTOPK_ISA names it, and the namespace that keeps its code apart.
#include "cpu/kernels_isa.h"

#include <cstring>

#include "cpu/batch.h"
#include "cpu/bucketed.h"
#include "cpu/selector.h"

namespace jax_rtopk::RTOPK_ISA {
namespace {

template <class Bits>
void topk(const Job& job, void* values, int32_t* indices, int64_t begin, int64_t end) {
  Selector<Bits> selector(job);
  selector.for_batches(begin, end, [&](Batch& batch, int64_t first) {
    selector.select_to(batch, first, static_cast<Bits*>(values), indices);
  });
}

template <class Bits>
void mask(const Job& job, uint8_t* mask, int64_t begin, int64_t end) {
  Selector<Bits> selector(job);
  const int64_t n = job.request.n;
  selector.for_batches(begin, end, [&](Batch& batch, int64_t first) {
    std::memset(mask + first * n, 0, size_t(batch.rows() * n));
    selector.select(batch, first, [&](int64_t row, const int32_t* selected, int32_t size) {
      uint8_t* const to = mask + row * n;
      for (int32_t i = 0; i < size; ++i) to[selected[i]] = 1;
    });
  });
}

template <class Bits>
void sparsify(const Job& job, void* dense, int64_t begin, int64_t end) {
  Selector<Bits> selector(job);
  const int64_t n = job.request.n;
  selector.for_batches(begin, end, [&](Batch& batch, int64_t first) {
    std::memset(static_cast<Bits*>(dense) + first * n, 0, size_t(batch.rows() * n) * sizeof(Bits));
    selector.select(batch, first, [&](int64_t row, const int32_t* selected, int32_t size) {
      const Bits* const bits = selector.bits(row);
      Bits* const to = static_cast<Bits*>(dense) + row * n;
      for (int32_t i = 0; i < size; ++i) to[selected[i]] = bits[selected[i]];
    });
  });
}

template <class Bits>
void bucketed(const BucketedJob& job, void* values, int32_t* indices, int64_t begin, int64_t end) {
  BucketedSelector<Bits> selector(job);
  selector.select_to(begin, end, static_cast<Bits*>(values), indices);
}

#define RTOPK_NAME(isa) RTOPK_NAME_TEXT(isa)
#define RTOPK_NAME_TEXT(isa) #isa

}  // namespace

const IsaKernels& kernels() {
  static constexpr IsaKernels table{RTOPK_NAME(RTOPK_ISA),
                                    {topk<uint8_t>, topk<uint16_t>, topk<uint32_t>, topk<uint64_t>},
                                    {mask<uint8_t>, mask<uint16_t>, mask<uint32_t>, mask<uint64_t>},
                                    {sparsify<uint8_t>, sparsify<uint16_t>, sparsify<uint32_t>, sparsify<uint64_t>},
                                    {bucketed<uint8_t>, bucketed<uint16_t>, bucketed<uint32_t>, bucketed<uint64_t>}};
  return table;
}

}  // namespace jax_rtopk::RTOPK_ISA
