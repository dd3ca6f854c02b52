// The kernels of the sparse operations. Every element of a result is added up by one thread, in the order in which the
// CPU does it; inner products by a warp.
#pragma once

#include "cuda/floats.cuh"
#include "native/sparse.h"

namespace jax_rtopk::cuda {

RTOPK_DEVICE int64_t first_thread() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
RTOPK_DEVICE int64_t all_threads() { return int64_t(gridDim.x) * blockDim.x; }
RTOPK_DEVICE bool inside(int32_t index, int64_t n) { return index >= 0 && index < n; }

// ---- products ------------------------------------------------------------------------------------------------------

// Arrays of a Product; those that a kernel does not take are empty.
template <class T>
struct ProductArrays {
  Global<const T> values, rows, weight;
  Global<const int32_t> indices;
  int64_t count, k, n, d;
};

// A thread for each kPack columns of each row.
template <class T, int kPack>
__global__ void gather_sum_kernel(ProductArrays<T> p, Global<T> rows) {
  const int64_t packs = p.d / kPack;
  for (int64_t i = first_thread(); i < p.count * packs; i += all_threads()) {
    const int64_t row = i / packs, column = i % packs * kPack;
    Sum<T> sum[kPack] = {};
    for (int64_t entry = row * p.k; entry < (row + 1) * p.k; ++entry) {
      const int32_t index = p.indices.load(entry);
      if (!inside(index, p.n)) continue;
      const Sum<T> value = widen(p.values.load(entry));
      const auto pack = p.weight.template load_kept_pack<kPack>(index * p.d + column);
#pragma unroll
      for (int j = 0; j < kPack; ++j) sum[j] += value * widen(pack.at[j]);
    }
    Pack<T, kPack> out;
#pragma unroll
    for (int j = 0; j < kPack; ++j) out.at[j] = narrow<T>(sum[j]);
    rows.store_pack(row * p.d + column, out);
  }
}

// A warp for each entry: a lane for each partial sum.
template <class T>
__global__ void sampled_dot_kernel(ProductArrays<T> p, Global<T> values) {
  static_assert(kPartialSums == kWarp);
  using Bits = std::conditional_t<sizeof(Sum<T>) == 8, uint64_t, uint32_t>;
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t entry = first_thread() / kWarp; entry < p.count * p.k; entry += all_threads() / kWarp) {
    const int32_t index = p.indices.load(entry);
    Sum<T> sum = 0;
    if (inside(index, p.n)) {
      const int64_t row = entry / p.k * p.d, other = index * p.d;
      for (int64_t c = lane; c < p.d; c += kWarp) {
        sum += widen(p.rows.load(row + c)) * widen(p.weight.load(other + c));
      }
#pragma unroll
      for (int half = kWarp / 2; half > 0; half /= 2) {
        sum += as<Sum<T>>(__shfl_down_sync(kFullMask, as<Bits>(sum), unsigned(half)));
      }
    }
    if (lane == 0) values.store(entry, narrow<T>(sum));
  }
}

// A thread for each kPack columns of each row of the weight, which goes through the entries of that row.
template <class T, int kPack>
__global__ void scatter_add_kernel(ProductArrays<T> p, Global<const int32_t> order, Global<const int32_t> starts,
                                   Global<T> weight) {
  const int64_t packs = p.d / kPack, entries = p.count * p.k;
  for (int64_t i = first_thread(); i < p.n * packs; i += all_threads()) {
    const int64_t index = i / packs, column = i % packs * kPack;
    const int64_t begin = starts.load(index), end = starts.load(index + 1);
    Sum<T> sum[kPack] = {};
    for (int64_t place = begin < 0 ? 0 : begin; place < (end < entries ? end : entries); ++place) {
      const int32_t entry = order.load(place);
      if (!inside(entry, entries)) continue;
      const Sum<T> value = widen(p.values.load(entry));
      const auto pack = p.rows.template load_kept_pack<kPack>(entry / p.k * p.d + column);
#pragma unroll
      for (int j = 0; j < kPack; ++j) sum[j] += value * widen(pack.at[j]);
    }
    Pack<T, kPack> out;
#pragma unroll
    for (int j = 0; j < kPack; ++j) out.at[j] = narrow<T>(sum[j]);
    weight.store_pack(index * p.d + column, out);
  }
}

// ---- graphs --------------------------------------------------------------------------------------------------------

// Arrays of Neighbors; those that a kernel does not take are empty. `pointers` and `nodes` are of the incoming edges,
// or of the outgoing ones, whose `numbers` say which of the incoming ones they are.
template <class T>
struct GraphArrays {
  Global<const T> weights, values, dense;
  Global<const int32_t> indices, pointers, nodes, numbers;
  int64_t targets, sources, edges, k, n;
};

struct EdgeRange {
  int64_t begin, end;
};

// The edges that belong to a node: none that are not there, whatever the pointers are.
template <class T>
RTOPK_DEVICE EdgeRange edges_of(const GraphArrays<T>& g, int64_t node) {
  const int64_t begin = g.pointers.load(node), end = g.pointers.load(node + 1);
  return {begin < 0 ? 0 : begin, end < g.edges ? end : g.edges};
}

// A warp for each target and `columns` of its columns, whose sums are in shared memory: lane l adds up what is in
// columns l, l + 32, ..., so that entries of one column stay in order. The columns are a multiple of 32.
template <class T>
__global__ void neighbor_sum_kernel(GraphArrays<T> g, Global<T> dense, int columns) {
  using Bits = std::conditional_t<sizeof(Sum<T>) == 8, uint64_t, uint32_t>;
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const Shared<Sum<T>> sums(size_t(warp) * columns * sizeof(Sum<T>), columns);
  const int64_t parts = (g.n + columns - 1) / columns;
  for (int64_t i = first_thread() / kWarp; i < g.targets * parts; i += all_threads() / kWarp) {
    const int64_t target = i / parts, first = i % parts * columns;
    for (int c = lane; c < columns; c += kWarp) sums.store(c, Sum<T>(0));
    const EdgeRange edges = edges_of(g, target);
    for (int64_t edge = edges.begin; edge < edges.end; ++edge) {
      const int32_t source = g.nodes.load(edge);
      if (!inside(source, g.sources)) continue;
      const Sum<T> weight = widen(g.weights.load(edge));
      for (int64_t t = 0; t < g.k; t += kWarp) {
        int32_t own_column = -1;  // that of no lane
        Sum<T> own_product = 0;
        if (t + lane < g.k) {
          const int64_t entry = source * g.k + t + lane;
          const int32_t index = g.indices.load(entry);
          if (inside(index, g.n) && index >= first && index < first + columns) own_column = int32_t(index - first);
          own_product = weight * widen(g.values.load(entry));
        }
        for (int other = 0; other < kWarp && t + other < g.k; ++other) {
          const int32_t column = __shfl_sync(kFullMask, own_column, other);
          const auto product = as<Sum<T>>(__shfl_sync(kFullMask, as<Bits>(own_product), other));
          if (column >= 0 && column % kWarp == lane) sums.store(column, sums.load(column) + product);
        }
      }
    }
    for (int c = lane; c < columns && first + c < g.n; c += kWarp) {
      dense.store(target * g.n + first + c, narrow<T>(sums.load(c)));
    }
  }
}

// A thread for each entry.
template <class T>
__global__ void neighbor_dot_kernel(GraphArrays<T> g, Global<T> values) {
  for (int64_t entry = first_thread(); entry < g.sources * g.k; entry += all_threads()) {
    const int32_t index = g.indices.load(entry);
    Sum<T> sum = 0;
    if (inside(index, g.n)) {
      const EdgeRange edges = edges_of(g, entry / g.k);
      for (int64_t place = edges.begin; place < edges.end; ++place) {
        const int32_t target = g.nodes.load(place), edge = g.numbers.load(place);
        if (!inside(target, g.targets) || !inside(edge, g.edges)) continue;
        sum += widen(g.weights.load(edge)) * widen(g.dense.load(target * g.n + index));
      }
    }
    values.store(entry, narrow<T>(sum));
  }
}

// A thread for each edge.
template <class T>
__global__ void edge_dot_kernel(GraphArrays<T> g, Global<T> weights) {
  for (int64_t edge = first_thread(); edge < g.edges; edge += all_threads()) {
    // The last target that begins at or before the edge: after those, of which there may be none.
    int64_t low = 0, high = g.targets + 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (g.pointers.load(middle) <= edge) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const int64_t target = low - 1;
    const int32_t source = g.nodes.load(edge);
    Sum<T> sum = 0;
    if (inside(source, g.sources) && target >= 0 && target < g.targets) {
      for (int64_t entry = source * g.k; entry < (source + 1) * g.k; ++entry) {
        const int32_t index = g.indices.load(entry);
        if (inside(index, g.n)) sum += widen(g.values.load(entry)) * widen(g.dense.load(target * g.n + index));
      }
    }
    weights.store(edge, narrow<T>(sum));
  }
}

}  // namespace jax_rtopk::cuda
