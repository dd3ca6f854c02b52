// Spreads the sparse operations over threads. Which thread makes an element changes nothing: each is made by one, in
// an order of its own.
#include "cpu/sparse.h"

#include <algorithm>

#include "cpu/kernels_isa.h"
#include "cpu/sparse_isa.h"

namespace jax_rtopk {
namespace {

// What should fit into a core's cache beside other things: a part of the weight.
constexpr int64_t kPanelBytes = int64_t(1) << 20;
constexpr int64_t kLeastColumnBytes = 256;  // of a row of the weight: less is a waste of cache lines and of overhead
constexpr int64_t kTaskWork = int64_t(1) << 18;  // multiplications

const SparseKernels& kernels() { return isa().sparse(); }

int64_t bytes_of(Float type) { return type == Float::kF64 ? 8 : type == Float::kF32 ? 4 : 2; }

// Calls part(range) on ranges that make up [0, count), each of which should be worth a task.
template <class F>
void for_parts(int64_t count, int64_t work_each, Parallel& parallel, F part) {
  const int64_t length = std::max<int64_t>(1, kTaskWork / std::max<int64_t>(1, work_each));
  const int64_t tasks = (count + length - 1) / length;
  parallel.run(tasks, [&](int64_t task) { part(Range{task * length, std::min(count, (task + 1) * length)}); });
}

// The columns of a panel of `rows` rows.
int64_t panel_columns(int64_t rows, int64_t d, int64_t item_bytes) {
  const int64_t fitting = kPanelBytes / (rows * item_bytes), least = kLeastColumnBytes / item_bytes;
  return std::min(d, std::max(fitting / least, int64_t(1)) * least);
}

}  // namespace

void gather_sum(const Product& product, void* rows, Parallel& parallel) {
  const int64_t columns = panel_columns(product.n, product.d, bytes_of(product.type));
  for (int64_t column = 0; column < product.d; column += columns) {
    const Range panel{column, std::min(product.d, column + columns)};
    for_parts(product.count, product.k * (panel.end - panel.begin), parallel,
              [&](Range which) { kernels().gather_sum[int(product.type)](product, rows, which, panel); });
  }
}

void sampled_dot(const Product& product, void* values, Parallel& parallel) {
  for_parts(product.count, product.k * product.d, parallel,
            [&](Range which) { kernels().sampled_dot[int(product.type)](product, values, which); });
}

void scatter_add(const Product& product, void* weight, Parallel& parallel) {
  const int64_t columns = panel_columns(product.n, product.d, product.type == Float::kF64 ? 8 : 4);
  const int64_t panels = (product.d + columns - 1) / columns;
  // Each share of the rows of the weight reads all entries, so no more of them than there are threads for.
  const int64_t shares = std::clamp<int64_t>(parallel.threads() / panels, 1, product.n);
  parallel.run(panels * shares, [&](int64_t task) {
    const int64_t column = task % panels * columns, share = task / panels;
    kernels().scatter_add[int(product.type)](product, weight,
                                             {share * product.n / shares, (share + 1) * product.n / shares},
                                             {column, std::min(product.d, column + columns)});
  });
}

void neighbor_sum(const Neighbors& graph, void* dense, Parallel& parallel) {
  const int64_t work = graph.n + graph.edges / graph.targets * graph.k;
  for_parts(graph.targets, work, parallel,
            [&](Range targets) { kernels().neighbor_sum[int(graph.type)](graph, dense, targets); });
}

void neighbor_dot(const Neighbors& graph, void* values, Parallel& parallel) {
  for_parts(graph.sources, (1 + graph.edges / graph.sources) * graph.k, parallel,
            [&](Range sources) { kernels().neighbor_dot[int(graph.type)](graph, values, sources); });
}

void edge_dot(const Neighbors& graph, void* weights, Parallel& parallel) {
  for_parts(graph.edges, graph.k, parallel,
            [&](Range edges) { kernels().edge_dot[int(graph.type)](graph, weights, edges); });
}

}  // namespace jax_rtopk
