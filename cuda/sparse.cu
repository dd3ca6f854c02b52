// Launches the kernels of the sparse operations for each kind of float.
#include "cuda/sparse.h"

#include "cuda/launch.h"
#include "cuda/sparse_kernels.cuh"

namespace jax_rtopk::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr int64_t kMostBlocks = int64_t(1) << 20;  // beyond these, threads go on to the next piece of work
constexpr int64_t kColumnBytes = 8192;             // of shared memory for the sums of a warp

unsigned blocks_for(int64_t threads) {
  const int64_t blocks = (threads + kThreads - 1) / kThreads;
  return unsigned(blocks < kMostBlocks ? blocks : kMostBlocks);
}

// act.template operator()<T>() for the kind of float.
template <class Act>
std::string by_type(Float type, Act&& act) {
  switch (type) {
    case Float::kF16:
      return act.template operator()<Half>();
    case Float::kBF16:
      return act.template operator()<BFloat>();
    case Float::kF32:
      return act.template operator()<float>();
    default:
      return act.template operator()<double>();
  }
}

template <class T>
Global<const T> array(const void* data, int64_t count) {
  return Global<const T>(static_cast<const T*>(data), data == nullptr ? 0 : count);
}

template <class T>
ProductArrays<T> arrays_of(const Product& p) {
  return {array<T>(p.values, p.count * p.k),
          array<T>(p.rows, p.count * p.d),
          array<T>(p.weight, p.n * p.d),
          array<int32_t>(p.indices, p.count * p.k),
          p.count,
          p.k,
          p.n,
          p.d};
}

// Whether rows of d elements can be read and written 16 bytes at a time.
template <class T>
bool in_packs(int64_t d, const void* a, const void* b) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return d * int64_t(sizeof(T)) % 16 == 0 && aligned(a) && aligned(b);
}

enum class Edges { kIncoming, kOutgoing };

template <class T>
GraphArrays<T> arrays_of(const Neighbors& g, Edges edges) {
  const bool out = edges == Edges::kOutgoing;
  return {array<T>(g.weights, g.edges),
          array<T>(g.values, g.sources * g.k),
          array<T>(g.dense, g.targets * g.n),
          array<int32_t>(g.indices, g.sources * g.k),
          array<int32_t>(out ? g.out_indptr : g.indptr, (out ? g.sources : g.targets) + 1),
          array<int32_t>(out ? g.out_neighbors : g.neighbors, g.edges),
          array<int32_t>(g.out_edges, g.edges),
          g.targets,
          g.sources,
          g.edges,
          g.k,
          g.n};
}

}  // namespace

std::string gather_sum(const Product& p, void* rows, Stream stream) {
  return by_type(p.type, [&]<class T>() {
    const Global<T> out(static_cast<T*>(rows), p.count * p.d);
    constexpr int kPack = 16 / sizeof(T);
    if (in_packs<T>(p.d, p.weight, rows)) {
      return launch("gather_sum", gather_sum_kernel<T, kPack>, blocks_for(p.count * (p.d / kPack)), kThreads, 0, stream,
                    arrays_of<T>(p), out);
    }
    return launch("gather_sum", gather_sum_kernel<T, 1>, blocks_for(p.count * p.d), kThreads, 0, stream,
                  arrays_of<T>(p), out);
  });
}

std::string sampled_dot(const Product& p, void* values, Stream stream) {
  return by_type(p.type, [&]<class T>() {
    const Global<T> out(static_cast<T*>(values), p.count * p.k);
    return launch("sampled_dot", sampled_dot_kernel<T>, blocks_for(p.count * p.k * kWarp), kThreads, 0, stream,
                  arrays_of<T>(p), out);
  });
}

std::string scatter_add(const Product& p, const int32_t* order, const int32_t* starts, void* weight, Stream stream) {
  return by_type(p.type, [&]<class T>() {
    const Global<T> out(static_cast<T*>(weight), p.n * p.d);
    const auto entries = array<int32_t>(order, p.count * p.k), begins = array<int32_t>(starts, p.n + 1);
    constexpr int kPack = 16 / sizeof(T);
    if (in_packs<T>(p.d, p.rows, weight)) {
      return launch("scatter_add", scatter_add_kernel<T, kPack>, blocks_for(p.n * (p.d / kPack)), kThreads, 0, stream,
                    arrays_of<T>(p), entries, begins, out);
    }
    return launch("scatter_add", scatter_add_kernel<T, 1>, blocks_for(p.n * p.d), kThreads, 0, stream, arrays_of<T>(p),
                  entries, begins, out);
  });
}

std::string neighbor_sum(const Neighbors& g, void* dense, Stream stream) {
  return by_type(g.type, [&]<class T>() {
    const Global<T> out(static_cast<T*>(dense), g.targets * g.n);
    constexpr int64_t kMost = kColumnBytes / int64_t(sizeof(Sum<T>));
    const int64_t columns = g.n < kMost ? (g.n + kWarp - 1) / kWarp * kWarp : kMost;
    const int64_t warps = g.targets * ((g.n + columns - 1) / columns);
    const size_t shared = size_t(kThreads / kWarp * columns) * sizeof(Sum<T>);
    return launch("neighbor_sum", neighbor_sum_kernel<T>, blocks_for(warps * kWarp), kThreads, shared, stream,
                  arrays_of<T>(g, Edges::kIncoming), out, int(columns));
  });
}

std::string neighbor_dot(const Neighbors& g, void* values, Stream stream) {
  return by_type(g.type, [&]<class T>() {
    const Global<T> out(static_cast<T*>(values), g.sources * g.k);
    return launch("neighbor_dot", neighbor_dot_kernel<T>, blocks_for(g.sources * g.k), kThreads, 0, stream,
                  arrays_of<T>(g, Edges::kOutgoing), out);
  });
}

std::string edge_dot(const Neighbors& g, void* weights, Stream stream) {
  return by_type(g.type, [&]<class T>() {
    const Global<T> out(static_cast<T*>(weights), g.edges);
    return launch("edge_dot", edge_dot_kernel<T>, blocks_for(g.edges), kThreads, 0, stream,
                  arrays_of<T>(g, Edges::kIncoming), out);
  });
}

}  // namespace jax_rtopk::cuda
