// Runs the CPU kernels on normal rows, for callgrind: instructions ROWS N K MAX_ITER SORTED ITEM_BYTES REPETITIONS. No
// thread, no XLA.
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "cpu/kernels.h"

int main(int, char** arguments) {
  const auto argument = [&](int i) { return std::atoll(arguments[i]); };
  jax_rtopk::Request request{};
  request.kind = jax_rtopk::Kind::kFloat;
  request.rows = argument(1);
  request.n = argument(2);
  request.k = argument(3);
  request.max_iter = argument(4);
  request.sorted = argument(5) != 0;
  request.item_bytes = int(argument(6));
  request.largest = true;

  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> floats(size_t(request.rows * request.n));
  for (float& x : floats) x = normal(generator);
  std::vector<uint16_t> halves;  // bfloat16: the upper half of a float
  const void* operand = floats.data();
  if (request.item_bytes == 2) {
    for (const float x : floats) halves.push_back(uint16_t(std::bit_cast<uint32_t>(x) >> 16));
    operand = halves.data();
  }
  std::vector<float> values(size_t(request.rows * request.k));
  std::vector<int32_t> indices(values.size());
  jax_rtopk::Parallel parallel;
  for (int64_t i = 0; i < argument(7); ++i) {
    jax_rtopk::topk(request, operand, values.data(), indices.data(), parallel);
  }
}
