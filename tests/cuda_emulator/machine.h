// The SIMT machine: the threads of one block as fibers, warps whose collectives are rendezvous points, block barriers.
//
// Every rule that a kernel breaks is a Fault that names kernel, block and thread; the launch ends with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include "fiber.h"
#include "shadow.h"

namespace emulator {

using Where = std::source_location;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Op {
  kSyncWarp,
  kBallot,
  kAny,
  kAll,
  kMatchAny,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kAdd,
  kMin,
  kMax,
  kOr
};

// One lane's part in a collective: what it called, with what, and from where.
struct Collective {
  Op op;
  std::uint32_t mask;
  std::uint64_t value;
  std::uint32_t lane_or_distance;
  std::uint32_t width;
  Where where;
};

class Machine {
 public:
  static constexpr unsigned kMaxThreads = 1024, kMaxShared = 48 * 1024;

  // Runs the whole grid, block after block. Returns "" or what went wrong.
  std::string run(const char* kernel, unsigned blocks, unsigned threads, std::size_t shared_bytes,
                  const std::function<void()>& body) {
    kernel_ = kernel;
    blocks_ = blocks, thread_count_ = threads;
    body_ = &body;
    if (blocks == 0 || threads == 0 || threads > kMaxThreads || threads % kWarpSize)
      return describe("bad launch: " + std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads");
    if (shared_bytes > kMaxShared)
      return describe("bad launch: " + std::to_string(shared_bytes) + " bytes of shared memory");
    while (stacks_.size() < threads) stacks_.push_back(std::make_unique<Stack>());
    shared_bytes_ = shared_bytes;
    clock_.start_launch();
    global_shadow_.forget_pages();
    for (block_ = 0; block_ < blocks; ++block_)
      if (!run_block()) return fault_;
    return "";
  }

  unsigned thread() const { return current_; }
  unsigned threads() const { return thread_count_; }
  unsigned block() const { return block_; }
  unsigned blocks() const { return blocks_; }

  std::byte* shared(std::size_t offset, std::size_t bytes) {
    if (offset + bytes > shared_bytes_)
      fault(
          "uses " + std::to_string(offset + bytes) + " of " + std::to_string(shared_bytes_) + " bytes of shared memory",
          {});
    return shared_ + offset;
  }

  // `element`: the size of the array's elements.
  void touch_shared(Access access, const void* address, std::size_t size, std::size_t element) {
    if (const char* wrong = shared_shadow_.access(clock_, int(current_), access, address, size, element, true, false))
      fault(std::string(wrong) + ": shared memory, byte " +
                std::to_string(static_cast<const std::byte*>(address) - shared_),
            {});
  }
  void touch_global(Access access, const void* address, std::size_t size, std::size_t element) {
    // Memory of the block may be reached in this way too: another block's at the same address is other memory.
    const auto at = static_cast<const std::byte*>(address);
    const bool in_shared = at >= shared_ && at < shared_ + kMaxShared;
    if (const char* wrong =
            global_shadow_.access(clock_, int(current_), access, address, size, element, false, !in_shared))
      fault(std::string(wrong) + ": global memory", {});
  }

  [[noreturn]] void fault(const std::string& what, Where where) const { throw Fault(describe(what) + at(where)); }

  std::uint64_t collective(const Collective& mine) {
    Warp& warp = warps_[current_ / kWarpSize];
    const unsigned lane = current_ % kWarpSize;
    const std::uint32_t self = 1u << lane;
    if (!(mine.mask & self)) fault("wrong mask: " + hex(mine.mask) + " lacks the executing lane", mine.where);
    if (const auto others = warp.arrived & mine.mask)
      agree(mine, warp.pending[__builtin_ctz(others)], __builtin_ctz(others));
    if (mine.mask & (warp.exited | warp.at_barrier))
      fault("divergence: lanes " + hex(mine.mask & (warp.exited | warp.at_barrier)) + " of mask " + hex(mine.mask) +
                " have exited or wait at __syncthreads",
            mine.where);
    warp.pending[lane] = mine;
    warp.arrived |= self;
    if ((warp.arrived & mine.mask) != mine.mask) {
      wait();
      return warp.result[lane];
    }
    for (auto others = warp.arrived & ~mine.mask; others; others &= others - 1) {
      const auto& other = warp.pending[__builtin_ctz(others)];
      if (other.mask & mine.mask) agree(mine, other, __builtin_ctz(others));
    }
    complete(warp, mine);
    warp.arrived &= ~mine.mask;
    warp.ready |= mine.mask;
    return warp.result[lane];
  }

  // Returns over how many threads the predicate holds.
  unsigned barrier(bool predicate, Where where) {
    Warp& warp = warps_[current_ / kWarpSize];
    const std::uint32_t self = 1u << current_ % kWarpSize;
    if (exited_) fault("deadlock: __syncthreads, but " + std::to_string(exited_) + " threads have exited", where);
    if (waiting_ && !same(barrier_where_, where))
      fault("divergence: __syncthreads, but others wait at" + at(barrier_where_), where);
    if (const auto stranded = named_by(warp, self))
      fault("divergence: __syncthreads, but lanes " + hex(stranded) + " wait for this one in a collective", where);
    barrier_where_ = where;
    holds_ += predicate;
    warp.at_barrier |= self;
    if (++waiting_ < thread_count_) {
      wait();
      return barrier_result_;
    }
    clock_.sync_block();
    barrier_result_ = holds_;
    waiting_ = holds_ = 0;
    for (auto& each : warps_) each.ready = each.at_barrier, each.at_barrier = 0;
    return barrier_result_;
  }

 private:
  struct Warp {
    std::uint32_t ready = ~0u;                              // may run
    std::uint32_t arrived = 0, at_barrier = 0, exited = 0;  // wait in a collective, at __syncthreads, are gone
    Collective pending[kWarpSize];
    std::uint64_t result[kWarpSize];
  };

  bool run_block() {
    warps_.resize(thread_count_ / kWarpSize);
    for (auto& warp : warps_) warp.ready = ~0u, warp.arrived = warp.at_barrier = warp.exited = 0;
    contexts_.resize(thread_count_);
    for (unsigned i = 0; i < thread_count_; ++i) make_context(contexts_[i], *stacks_[i], &Machine::enter);
    clock_.start_block(int(warps_.size()));
    shared_shadow_.forget_pages();
    fault_.clear();
    waiting_ = holds_ = exited_ = 0;
    current_ = 0;
    switch_context(main_, contexts_[0]);
    return fault_.empty();
  }

  static void enter();

  // The exception is over before the last switch: the others' stacks are dropped as they are, kernels own nothing.
  void thread_main() {
    try {
      (*body_)();
      leave();
    } catch (const Fault& fault) {
      fault_ = fault.what();
    }
    if (fault_.empty() && next_ready()) {
      switch_to_next();
    }
    switch_context(contexts_[current_], main_);
  }

  void leave() {
    Warp& warp = warps_[current_ / kWarpSize];
    const std::uint32_t self = 1u << current_ % kWarpSize;
    if (const auto stranded = named_by(warp, self)) {
      const auto& other = warp.pending[__builtin_ctz(stranded)];
      fault("divergence: exits, but lanes " + hex(stranded) + " wait for this one", other.where);
    }
    if (waiting_) fault("deadlock: exits, but others wait at __syncthreads", barrier_where_);
    warp.exited |= self;
    warp.ready &= ~self;
    ++exited_;
    if (!next_ready() && exited_ != thread_count_) deadlock();
  }

  // Switches to whoever is next; returns when a rendezvous has made this thread ready again.
  void wait() {
    warps_[current_ / kWarpSize].ready &= ~(1u << current_ % kWarpSize);
    if (!next_ready()) deadlock();
    switch_to_next();
  }

  void switch_to_next() {
    Context& from = contexts_[current_];
    current_ = next_;
    switch_context(from, contexts_[next_]);
  }

  // Finds a ready thread: first in this warp, after the current one, then in the warps that follow.
  bool next_ready() {
    const unsigned warp = current_ / kWarpSize, count = unsigned(warps_.size());
    const auto later = warps_[warp].ready & ~((2u << current_ % kWarpSize) - 1);
    if (later) {
      next_ = warp * kWarpSize + unsigned(__builtin_ctz(later));
      return true;
    }
    for (unsigned i = 1; i <= count; ++i) {
      const unsigned other = (warp + i) % count;
      if (warps_[other].ready) {
        next_ = other * kWarpSize + unsigned(__builtin_ctz(warps_[other].ready));
        return true;
      }
    }
    return false;
  }

  [[noreturn]] void deadlock() {
    std::string who;
    for (std::size_t w = 0; w < warps_.size() && who.size() < 400; ++w) {
      if (warps_[w].arrived)
        who += "; warp " + std::to_string(w) + ": lanes " + hex(warps_[w].arrived) + " wait" +
               at(warps_[w].pending[__builtin_ctz(warps_[w].arrived)].where);
      if (warps_[w].at_barrier)
        who += "; warp " + std::to_string(w) + ": lanes " + hex(warps_[w].at_barrier) + " wait at __syncthreads" +
               at(barrier_where_);
    }
    throw Fault(describe("deadlock") + who);
  }

  void agree(const Collective& mine, const Collective& other, int lane) const {
    if (mine.mask != other.mask)
      fault("wrong mask: " + hex(mine.mask) + ", but lane " + std::to_string(lane) + " has " + hex(other.mask) +
                at(other.where),
            mine.where);
    if (mine.op != other.op || !same(mine.where, other.where))
      fault("divergence at a collective: lane " + std::to_string(lane) + " is" + at(other.where), mine.where);
  }

  static std::uint32_t named_by(const Warp& warp, std::uint32_t self) {
    std::uint32_t lanes = 0;
    for (auto left = warp.arrived; left; left &= left - 1)
      if (warp.pending[__builtin_ctz(left)].mask & self) lanes |= left & -left;
    return lanes;
  }

  void complete(Warp& warp, const Collective& last) {
    const auto mask = last.mask;
    auto each_lane = [&](auto&& act) {
      for (auto left = mask; left; left &= left - 1) act(__builtin_ctz(left));
    };
    auto all_get = [&](std::uint64_t result) { each_lane([&](int lane) { warp.result[lane] = result; }); };
    auto fold = [&](std::uint32_t start, auto&& join) {
      each_lane([&](int lane) { start = join(start, std::uint32_t(warp.pending[lane].value)); });
      all_get(start);
    };
    switch (last.op) {
      case Op::kSyncWarp:
        return clock_.sync_warp(int(current_ / kWarpSize), mask);
      case Op::kBallot:
      case Op::kAny:
      case Op::kAll: {
        std::uint32_t ballot = 0;
        each_lane([&](int lane) { ballot |= std::uint32_t(warp.pending[lane].value != 0) << lane; });
        return all_get(last.op == Op::kBallot ? ballot : last.op == Op::kAny ? ballot != 0 : ballot == mask);
      }
      case Op::kMatchAny:
        return each_lane([&](int lane) {
          std::uint32_t equal = 0;
          each_lane([&](int other) {
            equal |= std::uint32_t(warp.pending[other].value == warp.pending[lane].value) << other;
          });
          warp.result[lane] = equal;
        });
      case Op::kAdd:
        return fold(0, [](auto a, auto b) { return a + b; });
      case Op::kOr:
        return fold(0, [](auto a, auto b) { return a | b; });
      case Op::kMin:
        return fold(~0u, [](auto a, auto b) { return std::min(a, b); });
      case Op::kMax:
        return fold(0, [](auto a, auto b) { return std::max(a, b); });
      case Op::kShuffle:
      case Op::kShuffleUp:
      case Op::kShuffleDown:
      case Op::kShuffleXor:
        return each_lane([&](int lane) { warp.result[lane] = shuffled(warp, lane); });
    }
  }

  std::uint64_t shuffled(const Warp& warp, int lane) const {
    const auto& call = warp.pending[lane];
    const int width = int(call.width), distance = int(call.lane_or_distance), first = lane & ~(width - 1);
    if (width < 1 || width > kWarpSize || (width & (width - 1)))
      fault("shuffle of width " + std::to_string(width), call.where);
    int source = lane;
    if (call.op == Op::kShuffle) source = first + (distance & (width - 1));
    if (call.op == Op::kShuffleUp && lane - distance >= first) source = lane - distance;
    if (call.op == Op::kShuffleDown && lane + distance < first + width) source = lane + distance;
    if (call.op == Op::kShuffleXor && (lane ^ distance) < first + width) source = lane ^ distance;
    if (!(call.mask >> source & 1))
      fault("wrong mask: lane " + std::to_string(lane) + " shuffles from lane " + std::to_string(source) + ", which " +
                hex(call.mask) + " lacks",
            call.where);
    return warp.pending[source].value;
  }

  std::string describe(const std::string& what) const {
    return std::string("kernel ") + kernel_ + ", block " + std::to_string(block_) + ", thread " +
           std::to_string(current_) + ": " + what;
  }
  static std::string at(Where where) {
    if (!where.line()) return "";
    const char* slash = std::strrchr(where.file_name(), '/');
    return std::string(" (") + (slash ? slash + 1 : where.file_name()) + ":" + std::to_string(where.line()) + ")";
  }
  static std::string hex(std::uint32_t mask) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", mask);
    return text;
  }
  static bool same(Where a, Where b) {
    return a.line() == b.line() && a.column() == b.column() && !std::strcmp(a.file_name(), b.file_name());
  }

  const char* kernel_ = "";
  const std::function<void()>* body_ = nullptr;
  unsigned block_ = 0, blocks_ = 0, thread_count_ = 0, current_ = 0, next_ = 0;
  unsigned waiting_ = 0, holds_ = 0, barrier_result_ = 0, exited_ = 0;
  Where barrier_where_;
  std::string fault_;
  std::vector<Warp> warps_;
  std::vector<Context> contexts_;
  std::vector<std::unique_ptr<Stack>> stacks_;
  Context main_;
  Clock clock_;
  Shadow shared_shadow_, global_shadow_;
  std::size_t shared_bytes_ = 0;
  alignas(16) std::byte shared_[kMaxShared];
};

// Each host thread has a machine: XLA may launch from several at once. The pointer is what kernels reach it by:
// constant-initialised, it costs no check.
inline constinit thread_local Machine* running = nullptr;

inline void Machine::enter() { running->thread_main(); }

inline Machine& this_threads_machine() {
  static thread_local std::unique_ptr<Machine> owner = std::make_unique<Machine>();
  running = owner.get();
  return *running;
}

}  // namespace emulator
