// Shadow memory: who touched a unit last, and was there a barrier since. It finds races and reads of what nobody wrote.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace emulator {

inline constexpr int kWarpSize = 32;

// What orders memory. Time grows by one at each __syncwarp and __syncthreads; nothing else orders accesses (votes and
// shuffles do not).
class Clock {
 public:
  void start_launch() { launch_start_ = ++now_; }
  std::uint32_t launch_start() const { return launch_start_; }
  void start_block(int warps) {
    block_start_ = block_barrier_ = ++now_;
    seen_.assign(std::size_t(warps) * kWarpSize, {});
  }
  std::uint32_t now() const { return now_; }
  std::uint32_t block_start() const { return block_start_; }
  std::uint32_t block_barrier() const { return block_barrier_; }

  void sync_block() { block_barrier_ = ++now_; }
  void sync_warp(int warp, std::uint32_t mask) {
    ++now_;
    LaneTimes joined{};
    for (int lane = 0; lane < kWarpSize; ++lane)
      if (mask >> lane & 1)
        for (int other = 0; other < kWarpSize; ++other)
          joined.at[other] = std::max(joined.at[other], seen(warp, lane).at[other]);
    for (int lane = 0; lane < kWarpSize; ++lane)
      if (mask >> lane & 1) joined.at[lane] = now_;
    for (int lane = 0; lane < kWarpSize; ++lane)
      if (mask >> lane & 1) seen(warp, lane) = joined;
  }

  // Does `thread` see what `other` did at `time`?
  bool ordered(int thread, int other, std::uint32_t time) const {
    if (thread == other || time < block_barrier_) return true;
    if (thread / kWarpSize != other / kWarpSize) return false;
    return time < seen_[std::size_t(thread)].at[other % kWarpSize];
  }

 private:
  struct LaneTimes {
    std::uint32_t at[kWarpSize] = {};  // what each lane of the warp did before this time is visible
  };
  LaneTimes& seen(int warp, int lane) { return seen_[std::size_t(warp) * kWarpSize + lane]; }

  std::uint32_t now_ = 0, launch_start_ = 0, block_start_ = 0, block_barrier_ = 0;
  std::vector<LaneTimes> seen_;
};

enum class Access { kRead, kWrite, kAtomic };

// The last accesses to a unit of memory.
class Unit {
 public:
  // Returns what is wrong with an access, or null. `across_blocks`: the blocks of a launch share the memory, and
  // nothing orders what they do.
  const char* access(const Clock& clock, int thread, Access access, bool check_written, bool across_blocks) {
    const bool written = write_time_ >= clock.block_start();
    if (check_written && access != Access::kWrite && !written) return "reads shared memory that nobody wrote";
    const auto by_other_block = [&](std::uint32_t time) {
      return across_blocks && time >= clock.launch_start() && time < clock.block_start();
    };
    if (by_other_block(write_time_) && !(access == Access::kAtomic && atomic_))
      return "races: another block of the launch wrote it";
    if (access != Access::kRead && by_other_block(read_time_)) return "races: another block of the launch read it";
    const bool sees_write = !written || write_ordered(clock, thread);
    const bool both_atomic = access == Access::kAtomic && atomic_;
    if (!sees_write && !both_atomic) {
      return access == Access::kRead ? "races: reads what another thread wrote, with no barrier between"
                                     : "races: overwrites what another thread wrote, with no barrier between";
    }
    if (access == Access::kRead) {
      note_read(clock, thread);
      return nullptr;
    }
    if (!reads_ordered(clock, thread)) return "races: overwrites what another thread reads, with no barrier between";
    // An atomic access does not hide a write before it that only its own thread, or warp, has seen.
    const bool all_see_write = !written || write_time_ < clock.block_barrier();
    atomic_ = access == Access::kAtomic && (atomic_ || all_see_write);
    writer_ = sees_write ? std::uint16_t(thread) : kManyThreads;
    write_time_ = clock.now();
    return nullptr;
  }

 private:
  static constexpr std::uint16_t kManyWarps = 0xffff, kManyThreads = 0xffff;

  bool write_ordered(const Clock& clock, int thread) const {
    if (writer_ == kManyThreads) return write_time_ < clock.block_barrier();
    return clock.ordered(thread, writer_, write_time_);
  }

  bool reads_ordered(const Clock& clock, int thread) const {
    if (read_time_ < clock.block_barrier()) return true;
    if (read_warp_ != thread / kWarpSize) return false;
    for (std::uint32_t lanes = read_lanes_; lanes; lanes &= lanes - 1)
      if (!clock.ordered(thread, read_warp_ * kWarpSize + __builtin_ctz(lanes), read_time_)) return false;
    return true;
  }

  // Only readers that a later writer may race with are kept: those that the new reader is not ordered after.
  void note_read(const Clock& clock, int thread) {
    const auto warp = std::uint16_t(thread / kWarpSize);
    if (reads_ordered(clock, thread)) {
      read_lanes_ = 0, read_warp_ = warp;
    } else if (read_warp_ != warp) {
      read_warp_ = kManyWarps;
    }
    read_lanes_ |= 1u << thread % kWarpSize;
    read_time_ = clock.now();
  }

  std::uint32_t write_time_ = 0, read_time_ = 0, read_lanes_ = 0;
  std::uint16_t writer_ = 0, read_warp_ = 0;
  bool atomic_ = false;  // the last write
};

// The units of a memory, kept by page: four bytes in arrays of elements of four bytes and more, single bytes in others.
// Units of earlier blocks are recognised by their time, so nothing is cleared between blocks.
class Shadow {
 public:
  const char* access(const Clock& clock, int thread, Access access, const void* address, std::size_t size,
                     std::size_t element, bool check_written, bool across_blocks) {
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    const bool words = element >= 4;
    // Bytes have units of their own, far from those of the words.
    const std::uintptr_t base = words ? first / 4 : first | std::uintptr_t(1) << 63;
    for (std::size_t i = 0; i < (words ? size / 4 : size); ++i)
      if (const char* wrong = unit(base + i).access(clock, thread, access, check_written, across_blocks)) return wrong;
    return nullptr;
  }

  // Old addresses may be another array's by now.
  void forget_pages() {
    used_ = 0;
    index_.clear();
    last_units_ = nullptr;
  }

 private:
  static constexpr unsigned kPageBits = 10;

  Unit& unit(std::uintptr_t number) {
    const auto page = number >> kPageBits;
    if (page != last_page_ || !last_units_) {
      auto [found, added] = index_.try_emplace(page, used_);
      if (added && used_++ == pages_.size()) pages_.push_back(std::make_unique<Unit[]>(std::size_t(1) << kPageBits));
      last_page_ = page;
      last_units_ = pages_[found->second].get();
    }
    return last_units_[number & ((1u << kPageBits) - 1)];
  }

  std::vector<std::unique_ptr<Unit[]>> pages_;
  std::unordered_map<std::uintptr_t, std::size_t> index_;
  std::size_t used_ = 0;
  std::uintptr_t last_page_ = 0;
  Unit* last_units_ = nullptr;
};

}  // namespace emulator
