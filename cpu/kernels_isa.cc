// The kernels for one instruction set: RTOPK_ISA names it, and the namespace that keeps its code apart.
#include "cpu/kernels_isa.h"

#include <cstring>
#include <vector>

#include "cpu/batch.h"
#include "cpu/bucket_queues.h"
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
  const int64_t group = CandidateSelector<Bits>::group(job), count = job.buckets.candidates();
  std::vector<typename Row<Bits>::Lane> lanes(size_t(group * count));
  std::vector<int32_t> index(lanes.size());
  BucketQueues<Row<Bits>> queues(job.buckets, 0, int32_t(job.buckets.count));
  CandidateSelector<Bits> selector(job, lanes.data());
  for (int64_t row = begin; row < end; row += group) {
    const int64_t next = row + group < end ? row + group : end;
    for (int64_t i = 0; i < next - row; ++i) {
      queues.fill(selector.row(row + i));
      queues.copy_to(lanes.data() + i * count, index.data() + i * count);
    }
    selector.select_to(row, next, index.data(), static_cast<Bits*>(values), indices);
  }
}

template <class Bits>
void keep(const BucketedJob& job, int64_t row, int32_t first, int32_t columns, void* lanes, int32_t* index) {
  BucketQueues<Row<Bits>> queues(job.buckets, first, columns);
  const auto* const bits = static_cast<const Bits*>(job.operand) + row * job.request.n;
  const auto map = KeyMap<Bits>::make(job.request.kind, !job.request.largest, false);
  queues.fill(Row<Bits>(map, bits, int32_t(job.request.n)));
  queues.copy_to(static_cast<typename Row<Bits>::Lane*>(lanes), index);
}

template <class Bits>
void select_kept(const BucketedJob& job, int64_t row, const void* lanes, const int32_t* index, void* values,
                 int32_t* indices) {
  CandidateSelector<Bits> selector(job, static_cast<const typename Row<Bits>::Lane*>(lanes));
  selector.select_to(row, row + 1, index, static_cast<Bits*>(values), indices);
}

#define RTOPK_NAME(isa) RTOPK_NAME_TEXT(isa)
#define RTOPK_NAME_TEXT(isa) #isa

}  // namespace

const IsaKernels& kernels() {
  static constexpr IsaKernels table{
      RTOPK_NAME(RTOPK_ISA),
      {topk<uint8_t>, topk<uint16_t>, topk<uint32_t>, topk<uint64_t>},
      {mask<uint8_t>, mask<uint16_t>, mask<uint32_t>, mask<uint64_t>},
      {sparsify<uint8_t>, sparsify<uint16_t>, sparsify<uint32_t>, sparsify<uint64_t>},
      {bucketed<uint8_t>, bucketed<uint16_t>, bucketed<uint32_t>, bucketed<uint64_t>},
      {keep<uint8_t>, keep<uint16_t>, keep<uint32_t>, keep<uint64_t>},
      {select_kept<uint8_t>, select_kept<uint16_t>, select_kept<uint32_t>, select_kept<uint64_t>},
      sparse_kernels};
  return table;
}

}  // namespace jax_rtopk::RTOPK_ISA
