// Few long rows by many blocks each (digits.h): a launch for each digit of the k-th largest key, one that counts what
// is above it and equal to it in each part of a row, and one that gives the selected elements to a sink.
#pragma once

#include "cuda/digits.h"
#include "cuda/kernels.cuh"
#include "cuda/parts.h"
#include "cuda/sort_results.cuh"

namespace jax_rtopk::cuda {

template <class Bits>
struct DigitsTask {
  static constexpr Digits kDigits = Digits::of(sizeof(Bits));
  using Word = WordOf<Bits>;
  using Team = BlockTeam<policy::kDigitBlock>;
  using Row = StreamedRow<Bits, Team>;

  Global<const Bits> operand;
  int64_t rows, k;
  Parts parts;
  bool packed;  // all rows start on sixteen bytes
  KeyMap<Bits> map;
  Global<uint32_t> histograms;  // [rows, digits, bins]
  Global<DigitState> states;    // [rows, digits], after each
  Global<PartCounts> counts;    // [rows, kMostDigitParts]

  // Those of one row.
  RTOPK_DEVICE Global<uint32_t> histogram(int64_t row, int digit) const {
    return histograms.part((row * kDigits.count() + digit) * kDigits.bins(), kDigits.bins());
  }
  RTOPK_DEVICE Global<DigitState> state_after(int64_t row, int digit) const {
    return states.part(row * kDigits.count() + digit, 1);
  }
  RTOPK_DEVICE Global<PartCounts> counts_of(int64_t row) const {
    return counts.part(row * policy::kMostDigitParts, parts.count);
  }

  RTOPK_DEVICE Row part(int64_t row, int64_t part, const Team& team) const {
    const auto end = unsigned(parts.begin(part + 1));
    return Row({operand.part(row * parts.n, parts.n), end, packed && end % Row::kPack == 0, map}, team,
               unsigned(parts.begin(part)));
  }

  // Calls visit(row, part) for those that the block takes in turn.
  template <class Visit>
  RTOPK_DEVICE void each_part(Visit&& visit) const {
    for (int64_t i = blockIdx.x; i < rows * parts.count; i += gridDim.x) {
      const int64_t row = i / parts.count;
      visit(row, i - row * parts.count);
    }
  }
};

// Where a block keeps the next digit, and what lies above it; behind the team's own memory.
inline constexpr int kFoundBytes = 2 * int(sizeof(uint32_t));

// What is known of a row after so many digits: from what was known before the last one, and the histogram of that. One
// block of the row writes it down for those who go on from there.
template <class Bits>
RTOPK_DEVICE DigitState known_after(const DigitsTask<Bits>& task, typename DigitsTask<Bits>::Team& team, int64_t row,
                                    int digits, bool writes) {
  constexpr Digits kDigits = DigitsTask<Bits>::kDigits;
  constexpr int kThreads = DigitsTask<Bits>::Team::kThreads, kEach = (kDigits.bins() - 1) / kThreads + 1;
  DigitState state{0, uint32_t(task.k)};
  if (digits == 0) return state;
  if (digits > 1) state = task.state_after(row, digits - 2).load(0);
  const Global<uint32_t> histogram = task.histogram(row, digits - 1);
  const Shared<uint32_t> found(DigitsTask<Bits>::Team::kScratchBytes, 2);
  uint32_t bins[kEach], sum = 0;  // from the highest down
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int place = team.rank() * kEach + j;
    bins[j] = place < kDigits.bins() ? histogram.load(kDigits.bins() - 1 - place) : 0;
    sum += bins[j];
  }
  unsigned total;
  uint32_t above = team.sum_before(sum, total);
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (above < state.left && state.left <= above + bins[j]) {
      found.store(0, uint32_t(kDigits.bins() - 1 - (team.rank() * kEach + j)));
      found.store(1, above);
    }
    above += bins[j];
  }
  team.sync();
  state.key |= uint64_t(found.load(0)) << kDigits.shift(digits - 1);
  state.left -= found.load(1);
  if (writes && team.rank() == 0) task.state_after(row, digits - 1).store(0, state);
  return state;
}

// Adds, to the histogram of each row, the next digit of those keys that begin with the digits known.
template <class Bits>
__global__ void __launch_bounds__(policy::kDigitBlock, policy::blocks_that_count(sizeof(Bits)))
    count_digits(DigitsTask<Bits> task, int digit) {
  using Task = DigitsTask<Bits>;
  using Word = typename Task::Word;
  constexpr Digits kDigits = Task::kDigits;
  typename Task::Team team(0);
  const Shared<uint32_t> bins(Task::Team::kScratchBytes + kFoundBytes, kDigits.bins());
  const int shift = kDigits.shift(digit);
  const Word mask = digit == 0 ? Word(0) : Word(~Word(0) << kDigits.shift(digit - 1));
  task.each_part([&](int64_t row, int64_t part) {
    const auto known = Word(known_after(task, team, row, digit, part == 0).key);
    for (int bin = team.rank(); bin < kDigits.bins(); bin += Task::Team::kThreads) bins.store(bin, 0);
    team.sync();
    const auto elements = task.part(row, part, team);
    elements.each_pack([&](unsigned, unsigned first, const Word(&keys)[Task::Row::kPack]) {
      if (first >= elements.view().n) return;
#pragma unroll
      for (int j = 0; j < Task::Row::kPack; ++j)
        if ((keys[j] & mask) == known) bins.add(int(unsigned(keys[j] >> shift) & unsigned(kDigits.bins() - 1)), 1);
    });
    team.sync();
    const Global<uint32_t> histogram = task.histogram(row, digit);
    for (int bin = team.rank(); bin < kDigits.bins(); bin += Task::Team::kThreads)
      if (const uint32_t count = bins.load(bin); count != 0) histogram.add(bin, count);
  });
}

// How many keys of each part are above the k-th largest, and equal to it.
template <class Bits>
__global__ void __launch_bounds__(policy::kDigitBlock, policy::blocks_that_count(sizeof(Bits)))
    count_in_parts(DigitsTask<Bits> task) {
  using Task = DigitsTask<Bits>;
  using Word = typename Task::Word;
  typename Task::Team team(0);
  task.each_part([&](int64_t row, int64_t part) {
    const auto key = Word(known_after(task, team, row, Task::kDigits.count(), part == 0).key);
    unsigned above = 0, equal = 0;
    const auto elements = task.part(row, part, team);
    elements.each_pack([&](unsigned, unsigned first, const Word(&keys)[Task::Row::kPack]) {
      if (first >= elements.view().n) return;
#pragma unroll
      for (int j = 0; j < Task::Row::kPack; ++j) {
        above += keys[j] > key;
        equal += keys[j] == key;
      }
    });
    const PartCounts counts{team.sum(above), team.sum(equal)};
    if (team.rank() == 0) task.counts_of(row).store(part, counts);
  });
}

template <class Bits, class Sink>
__global__ void __launch_bounds__(policy::kDigitBlock) emit_parts(DigitsTask<Bits> task, Sink sink) {
  using Task = DigitsTask<Bits>;
  using Word = typename Task::Word;
  typename Task::Team team(0);
  task.each_part([&](int64_t row, int64_t part) {
    const DigitState end = task.state_after(row, Task::kDigits.count() - 1).load(0);
    const Global<PartCounts> counts = task.counts_of(row);
    static_assert(policy::kMostDigitParts <= Task::Team::kThreads);
    PartCounts before{0, 0};  // of the parts before, by a thread each
    if (team.rank() < int(part)) before = counts.load(team.rank());
    before = {team.sum(before.above), team.sum(before.equal)};
    const uint32_t taken = smaller(before.equal, end.left), equal = counts.load(part).equal;
    const uint32_t room = smaller(equal, end.left - taken);
    const auto elements = task.part(row, part, team);
    const auto key = Word(end.key);
    typename Sink::template OfRow<typename Task::Team> results(sink, row, elements.view(), 0, true);
    const Choice<Word> choice{
        .lo = key, .above = key, .all = room == equal, .single = false, .certain = 0, .room = int(room)};
    emit_chosen(elements, team, choice, int(before.above + taken), results);
  });
}

template <class Bits, class Sink>
std::string select_by_digits(const Request& request, const void* operand, const Sink& sink, void* workspace,
                             Stream stream) {
  using Task = DigitsTask<Bits>;
  constexpr Digits kDigits = Task::kDigits;
  constexpr int kThreads = Task::Team::kThreads, kPack = RowView<Bits>::kPack;
  const auto space = DigitsWorkspace::make(request.rows, sizeof(Bits));
  auto* const base = static_cast<char*>(workspace);
  const auto* const data = static_cast<const Bits*>(operand);
  const int64_t parts = policy::digit_parts(request.rows, request.n, sizeof(Bits), multiprocessors());
  const Task task{
      Global<const Bits>(data, request.rows * request.n),
      request.rows,
      request.k,
      Parts{request.n, parts, kPack},
      starts_on(data, 16) && (request.rows == 1 || request.n % kPack == 0),
      KeyMap<Bits>::make(request.kind, !request.largest, request.by_magnitude),
      Global<uint32_t>(reinterpret_cast<uint32_t*>(base), request.rows * kDigits.count() * kDigits.bins()),
      Global<DigitState>(reinterpret_cast<DigitState*>(base + space.states_at), request.rows * kDigits.count()),
      Global<PartCounts>(reinterpret_cast<PartCounts*>(base + space.counts_at),
                         request.rows * policy::kMostDigitParts)};
  const unsigned blocks = blocks_for(request.rows * parts, 1, kThreads);
  const size_t scratch = Task::Team::kScratchBytes, shared = scratch + kFoundBytes;

  std::string error = fill_with_zeros(base, size_t(space.states_at), stream);
  for (int digit = 0; digit < kDigits.count() && error.empty(); ++digit)
    error = launch("count_digits", count_digits<Bits>, blocks, kThreads, shared + kDigits.bins() * sizeof(uint32_t),
                   stream, task, digit);
  if (error.empty()) error = launch("count_in_parts", count_in_parts<Bits>, blocks, kThreads, shared, stream, task);
  if (error.empty())
    error = launch("emit_parts", emit_parts<Bits, Sink>, blocks, kThreads, scratch, stream, task, sink);
  return error;
}

template <class Bits>
std::string topk_by_digits_as(const Request& request, const void* operand, void* values, int32_t* indices,
                              void* workspace, Stream stream) {
  const int64_t selected = request.rows * request.k;
  const PairSink<Bits> sink{Global<Bits>(static_cast<Bits*>(values), selected), Global<int32_t>(indices, selected),
                            int(request.k), 0, false};
  const std::string error = select_by_digits<Bits>(request, operand, sink, workspace, stream);
  if (!error.empty() || !request.sorted) return error;
  return sort_results(sink, request.rows, KeyMap<Bits>::make(request.kind, !request.largest, false), stream);
}

template <class Bits>
std::string mask_by_digits_as(const Request& request, const void* operand, uint8_t* mask, void* workspace,
                              Stream stream) {
  return select_by_digits<Bits>(request, operand, mask_sink<Bits>(request, mask), workspace, stream);
}

template <class Bits>
std::string sparsify_by_digits_as(const Request& request, const void* operand, void* dense, void* workspace,
                                  Stream stream) {
  return select_by_digits<Bits>(request, operand, dense_sink<Bits>(request, dense), workspace, stream);
}

}  // namespace jax_rtopk::cuda
