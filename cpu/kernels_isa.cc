// The kernels for one instruction set: RTOPK_ISA names it, and the namespace that keeps its code apart.
#include "cpu/kernels_isa.h"

#include <cstring>

#include "cpu/exact.h"
#include "cpu/radix_sort.h"
#include "cpu/row_search.h"

namespace jax_rtopk::RTOPK_ISA {
namespace {

template <class Bits>
class Selector {
 public:
  using Word = typename Row<Bits>::Word;

  explicit Selector(const Job& job)
      : job_(job),
        request_(job.request),
        k_(int32_t(request_.k)),
        row_(KeyMap<Bits>::make(request_.kind, !request_.largest, request_.by_magnitude), nullptr,
             int32_t(request_.n)) {}

  const Bits* bits(int64_t row) const { return static_cast<const Bits*>(job_.operand) + row * request_.n; }

  // Calls sink(indices, count) with the indices selected in a row, ascending, some at a time.
  template <class Sink>
  void select(int64_t row, Sink sink) {
    row_.move_to(bits(row));
    if (ranked()) {
      collect(row_, job_.block_plan, survivors_);
      survivors_.reduce_to(k_);
      sink(survivors_.indices(), k_);
    } else {
      emit(row_, search(row_, job_.plan, request_.max_iter), sink);
    }
  }

  // Writes the indices selected in a row, in the order that the request asks for.
  void select_to(int64_t row, int32_t* indices) {
    if (request_.sorted && ranked()) {
      row_.move_to(bits(row));
      collect(row_, job_.block_plan, survivors_);
      std::memcpy(indices, survivors_.sorted(k_), size_t(k_) * sizeof(int32_t));
      return;
    }
    int32_t* to = indices;
    select(row, [&](const int32_t* selected, int32_t count) {
      std::memcpy(to, selected, size_t(count) * sizeof(int32_t));
      to += count;
    });
    if (request_.sorted) sort(indices);
  }

 private:
  bool ranked() const { return request_.max_iter == 0 && request_.k <= kMaxRankedK; }

  void sort(int32_t* indices) {
    if (k_ <= kMaxRankedK) {
      survivors_.clear();
      for (int32_t i = 0; i < k_; ++i) survivors_.push(row_.key(indices[i]), indices[i]);
      std::memcpy(indices, survivors_.sorted(k_), size_t(k_) * sizeof(int32_t));
      return;
    }
    auto* const elements = sorter_.elements(k_);
    for (int32_t i = 0; i < k_; ++i) elements[i] = {row_.key(indices[i]), indices[i]};
    const auto* const sorted = sorter_.sort_descending();
    for (int32_t i = 0; i < k_; ++i) indices[i] = sorted[i].index;
  }

  const Job& job_;
  const Request& request_;
  const int32_t k_;
  Row<Bits> row_;
  Survivors<Word> survivors_;
  RadixSort<Word> sorter_;
};

template <class Bits>
void topk(const Job& job, void* values, int32_t* indices, int64_t begin, int64_t end) {
  Selector<Bits> selector(job);
  const int64_t k = job.request.k;
  for (int64_t row = begin; row < end; ++row) {
    int32_t* const selected = indices + row * k;
    selector.select_to(row, selected);
    const Bits* const bits = selector.bits(row);
    Bits* const to = static_cast<Bits*>(values) + row * k;
    for (int64_t i = 0; i < k; ++i) to[i] = bits[selected[i]];
  }
}

template <class Bits>
void mask(const Job& job, uint8_t* mask, int64_t begin, int64_t end) {
  Selector<Bits> selector(job);
  const int64_t n = job.request.n;
  for (int64_t row = begin; row < end; ++row) {
    uint8_t* const to = mask + row * n;
    std::memset(to, 0, size_t(n));
    selector.select(row, [&](const int32_t* selected, int32_t count) {
      for (int32_t i = 0; i < count; ++i) to[selected[i]] = 1;
    });
  }
}

template <class Bits>
void sparsify(const Job& job, void* dense, int64_t begin, int64_t end) {
  Selector<Bits> selector(job);
  const int64_t n = job.request.n;
  for (int64_t row = begin; row < end; ++row) {
    const Bits* const bits = selector.bits(row);
    Bits* const to = static_cast<Bits*>(dense) + row * n;
    std::memset(to, 0, size_t(n) * sizeof(Bits));
    selector.select(row, [&](const int32_t* selected, int32_t count) {
      for (int32_t i = 0; i < count; ++i) to[selected[i]] = bits[selected[i]];
    });
  }
}

#define RTOPK_NAME(isa) RTOPK_NAME_TEXT(isa)
#define RTOPK_NAME_TEXT(isa) #isa

}  // namespace

const IsaKernels& kernels() {
  static constexpr IsaKernels table{RTOPK_NAME(RTOPK_ISA),
                                    {topk<uint8_t>, topk<uint16_t>, topk<uint32_t>, topk<uint64_t>},
                                    {mask<uint8_t>, mask<uint16_t>, mask<uint32_t>, mask<uint64_t>},
                                    {sparsify<uint8_t>, sparsify<uint16_t>, sparsify<uint32_t>, sparsify<uint64_t>}};
  return table;
}

}  // namespace jax_rtopk::RTOPK_ISA
