// The sparse kernels for one instruction set: RTOPK_ISA names it, and the namespace that keeps its code apart.
#include "cpu/sparse_isa.h"

#include <algorithm>
#include <vector>

#include "cpu/float_lanes.h"

namespace jax_rtopk::RTOPK_ISA {
namespace {

// How many entries ahead of the one that is worked on memory is asked for.
constexpr int64_t kAhead = 8;
constexpr int64_t kCacheLine = 64;

bool inside(int32_t index, int64_t n) { return index >= 0 && index < n; }

// Asks for elements [begin, end) of a row. Always inlined, as Row::prefetch() is.
template <class T>
__attribute__((always_inline)) inline void fetch(const T* row, int64_t begin, int64_t end) {
  constexpr int64_t kStep = kCacheLine / int64_t(sizeof(T));
  for (int64_t c = begin; c < end; c += kStep) __builtin_prefetch(row + c);
}

// ---- gather_sum ----------------------------------------------------------------------------------------------------

// kVectors vectors of columns from `column` on, or, if there are `count` columns less than one vector, these.
template <class T, int kVectors>
void gather_columns(const Product& p, T* out, Range which, int64_t column, int64_t count) {
  const T* const values = static_cast<const T*>(p.values);
  const T* const weight = static_cast<const T*>(p.weight);
  const int64_t width = kVectors * kLanes<T>, entries = which.end * p.k;
  const bool whole = count >= width;
  for (int64_t row = which.begin; row < which.end; ++row) {
    Vec<T> sum[kVectors] = {};
    for (int64_t entry = row * p.k; entry < (row + 1) * p.k; ++entry) {
      if (entry + kAhead < entries && inside(p.indices[entry + kAhead], p.n)) {
        fetch(weight + p.indices[entry + kAhead] * p.d, column, column + std::min(count, width));
      }
      const int32_t index = p.indices[entry];
      if (!inside(index, p.n)) continue;
      const T* const from = weight + index * p.d + column;
      const Vec<T> value = Vec<T>{} + load_one(values + entry);
      if (whole) {
        for (int v = 0; v < kVectors; ++v) sum[v] += value * load(from + v * kLanes<T>);
      } else {
        sum[0] += value * load_first(from, count);
      }
    }
    T* const to = out + row * p.d + column;
    if (whole) {
      for (int v = 0; v < kVectors; ++v) store(to + v * kLanes<T>, sum[v]);
    } else {
      store_first(to, count, sum[0]);
    }
  }
}

// The columns in as wide groups as there are, of kVectors vectors or of half as many.
template <class T, int kVectors>
void gather_groups(const Product& p, T* out, Range which, Range columns) {
  constexpr int64_t kWidth = kVectors * kLanes<T>;
  int64_t column = columns.begin;
  for (; columns.end - column >= kWidth || (kVectors == 1 && column < columns.end); column += kWidth) {
    gather_columns<T, kVectors>(p, out, which, column, columns.end - column);
  }
  if constexpr (kVectors > 1) gather_groups<T, kVectors / 2>(p, out, which, {column, columns.end});
}

template <class T>
void gather_sum(const Product& p, void* rows, Range which, Range columns) {
  gather_groups<T, 8>(p, static_cast<T*>(rows), which, columns);
}

// ---- sampled_dot ---------------------------------------------------------------------------------------------------

// The inner product, in the order of kPartialSums.
template <class T>
Sum<T> dot(const T* a, const T* b, int64_t d) {
  constexpr int kVectors = kPartialSums / kLanes<T>;
  Vec<T> partial[kVectors] = {};
  int64_t c = 0;
  for (; c + kPartialSums <= d; c += kPartialSums) {
    for (int v = 0; v < kVectors; ++v) partial[v] += load(a + c + v * kLanes<T>) * load(b + c + v * kLanes<T>);
  }
  for (int v = 0; c < d; c += kLanes<T>, ++v) {
    const int64_t count = std::min<int64_t>(kLanes<T>, d - c);
    partial[v] += load_first(a + c, count) * load_first(b + c, count);
  }
  for (int half = kVectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) partial[v] += partial[v + half];
  }
  Sum<T> lanes[kLanes<T>];
  std::memcpy(lanes, &partial[0], sizeof lanes);
  for (int half = kLanes<T> / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class T>
void store_one(T* to, Sum<T> sum) {
  store_first(to, 1, Vec<T>{} + sum);
}

template <class T>
void sampled_dot(const Product& p, void* values, Range which) {
  const T* const rows = static_cast<const T*>(p.rows);
  const T* const weight = static_cast<const T*>(p.weight);
  T* const out = static_cast<T*>(values);
  const int64_t entries = which.end * p.k;
  for (int64_t row = which.begin; row < which.end; ++row) {
    for (int64_t entry = row * p.k; entry < (row + 1) * p.k; ++entry) {
      if (entry + kAhead < entries && inside(p.indices[entry + kAhead], p.n)) {
        fetch(weight + p.indices[entry + kAhead] * p.d, 0, p.d);
      }
      const int32_t index = p.indices[entry];
      store_one(out + entry, inside(index, p.n) ? dot(rows + row * p.d, weight + index * p.d, p.d) : Sum<T>(0));
    }
  }
}

// ---- scatter_add ---------------------------------------------------------------------------------------------------

template <class T>
void scatter_add(const Product& p, void* weight, Range which, Range columns) {
  constexpr int kGroup = 4;  // vectors of a row that stay in registers
  constexpr int64_t kWidth = kGroup * kLanes<T>;
  const T* const values = static_cast<const T*>(p.values);
  const T* const rows = static_cast<const T*>(p.rows);
  T* const out = static_cast<T*>(weight);
  const int64_t count = columns.end - columns.begin, width = (count + kWidth - 1) / kWidth * kWidth;
  // Side by side, unlike the weight's own rows, whose distance may put them all into the same few sets of a cache.
  std::vector<Sum<T>> sums(size_t((which.end - which.begin) * width));
  for (int64_t row = 0; row < p.count; ++row) {
    for (int64_t first = 0; first < count; first += kWidth) {
      Vec<T> own[kGroup];
      for (int v = 0; v < kGroup; ++v) {
        const int64_t c = first + v * kLanes<T>;
        own[v] = load_first(rows + row * p.d + columns.begin + c, std::clamp<int64_t>(count - c, 0, kLanes<T>));
      }
      for (int64_t entry = row * p.k; entry < (row + 1) * p.k; ++entry) {
        const int32_t index = p.indices[entry];
        if (index < which.begin || index >= which.end) continue;
        Sum<T>* const to = sums.data() + (index - which.begin) * width + first;
        const Vec<T> value = Vec<T>{} + load_one(values + entry);
        for (int v = 0; v < kGroup; ++v) store(to + v * kLanes<T>, load(to + v * kLanes<T>) + value * own[v]);
      }
    }
  }
  for (int64_t i = which.begin; i < which.end; ++i) {
    const Sum<T>* const from = sums.data() + (i - which.begin) * width;
    for (int64_t c = 0; c < count; c += kLanes<T>) {
      store_first(out + i * p.d + columns.begin + c, std::min<int64_t>(count - c, kLanes<T>), load(from + c));
    }
  }
}

// ---- graphs --------------------------------------------------------------------------------------------------------

// The edges that belong to a node: none that are not there, whatever the pointers are.
Range edges_of(const Neighbors& g, const int32_t* indptr, int64_t node) {
  const int64_t begin = std::clamp<int64_t>(indptr[node], 0, g.edges);
  return {begin, std::clamp<int64_t>(indptr[node + 1], begin, g.edges)};
}

template <class T>
void neighbor_sum(const Neighbors& g, void* dense, Range targets) {
  const T* const weights = static_cast<const T*>(g.weights);
  const T* const values = static_cast<const T*>(g.values);
  T* const out = static_cast<T*>(dense);
  std::vector<Sum<T>> sums(static_cast<size_t>((g.n + kLanes<T> - 1) / kLanes<T> * kLanes<T>));
  for (int64_t target = targets.begin; target < targets.end; ++target) {
    std::fill(sums.begin(), sums.end(), Sum<T>(0));
    const Range edges = edges_of(g, g.indptr, target);
    for (int64_t edge = edges.begin; edge < edges.end; ++edge) {
      if (edge + kAhead < g.edges && inside(g.neighbors[edge + kAhead], g.sources)) {
        const int64_t next = g.neighbors[edge + kAhead] * g.k;
        fetch(g.indices + next, 0, g.k);
        fetch(values + next, 0, g.k);
      }
      const int32_t source = g.neighbors[edge];
      if (!inside(source, g.sources)) continue;
      const Sum<T> weight = load_one(weights + edge);
      const int32_t* const indices = g.indices + source * g.k;
      for (int64_t t = 0; t < g.k; ++t) {
        if (inside(indices[t], g.n)) sums[size_t(indices[t])] += weight * load_one(values + source * g.k + t);
      }
    }
    T* const to = out + target * g.n;
    int64_t c = 0;
    for (; c + kLanes<T> <= g.n; c += kLanes<T>) store(to + c, load(sums.data() + c));
    if (c < g.n) store_first(to + c, g.n - c, load(sums.data() + c));
  }
}

template <class T>
void neighbor_dot(const Neighbors& g, void* values, Range sources) {
  const T* const weights = static_cast<const T*>(g.weights);
  const T* const dense = static_cast<const T*>(g.dense);
  T* const out = static_cast<T*>(values);
  std::vector<Sum<T>> sums(static_cast<size_t>(g.k));
  for (int64_t source = sources.begin; source < sources.end; ++source) {
    std::fill(sums.begin(), sums.end(), Sum<T>(0));
    const int32_t* const indices = g.indices + source * g.k;
    const Range edges = edges_of(g, g.out_indptr, source);
    for (int64_t place = edges.begin; place < edges.end; ++place) {
      if (place + kAhead < g.edges && inside(g.out_neighbors[place + kAhead], g.targets)) {
        fetch(dense + g.out_neighbors[place + kAhead] * g.n, 0, g.n);
      }
      const int32_t target = g.out_neighbors[place], edge = g.out_edges[place];
      if (!inside(target, g.targets) || !inside(edge, g.edges)) continue;
      const Sum<T> weight = load_one(weights + edge);
      const T* const row = dense + target * g.n;
      for (int64_t t = 0; t < g.k; ++t) {
        if (inside(indices[t], g.n)) sums[size_t(t)] += weight * load_one(row + indices[t]);
      }
    }
    for (int64_t t = 0; t < g.k; ++t) store_one(out + source * g.k + t, sums[size_t(t)]);
  }
}

template <class T>
void edge_dot(const Neighbors& g, void* weights, Range edges) {
  const T* const values = static_cast<const T*>(g.values);
  const T* const dense = static_cast<const T*>(g.dense);
  T* const out = static_cast<T*>(weights);
  // The last one that begins at or before the edge; that of no target is one before the first, or the last.
  int64_t target = std::upper_bound(g.indptr, g.indptr + g.targets + 1, edges.begin) - g.indptr - 1;
  for (int64_t edge = edges.begin; edge < edges.end; ++edge) {
    while (target < g.targets && g.indptr[target + 1] <= edge) ++target;
    if (edge + kAhead < g.edges && inside(g.neighbors[edge + kAhead], g.sources)) {
      const int64_t next = g.neighbors[edge + kAhead] * g.k;
      fetch(g.indices + next, 0, g.k);
      fetch(values + next, 0, g.k);
    }
    const int32_t source = g.neighbors[edge];
    Sum<T> sum = 0;
    if (inside(source, g.sources) && target >= 0 && target < g.targets) {
      const T* const row = dense + target * g.n;
      for (int64_t entry = source * g.k; entry < (source + 1) * g.k; ++entry) {
        if (inside(g.indices[entry], g.n)) sum += load_one(values + entry) * load_one(row + g.indices[entry]);
      }
    }
    store_one(out + edge, sum);
  }
}

}  // namespace

const SparseKernels& sparse_kernels() {
  static constexpr SparseKernels table{
      {gather_sum<Half>, gather_sum<BFloat>, gather_sum<float>, gather_sum<double>},
      {sampled_dot<Half>, sampled_dot<BFloat>, sampled_dot<float>, sampled_dot<double>},
      {scatter_add<Half>, scatter_add<BFloat>, scatter_add<float>, scatter_add<double>},
      {neighbor_sum<Half>, neighbor_sum<BFloat>, neighbor_sum<float>, neighbor_sum<double>},
      {neighbor_dot<Half>, neighbor_dot<BFloat>, neighbor_dot<float>, neighbor_dot<double>},
      {edge_dot<Half>, edge_dot<BFloat>, edge_dot<float>, edge_dot<double>}};
  return table;
}

}  // namespace jax_rtopk::RTOPK_ISA
