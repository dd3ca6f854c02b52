// Shadow memory: who touched a word last, and was there a barrier since. It finds races and reads of what nobody wrote.
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

  std::uint32_t now_ = 0, block_start_ = 0, block_barrier_ = 0;
  std::vector<LaneTimes> seen_;
};

enum class Access { kRead, kWrite, kAtomic };

// The last accesses to four bytes.
class Word {
 public:
  // Returns what is wrong with an access to the bytes in `bytes`, or null.
  const char* access(const Clock& clock, int thread, Access access, unsigned bytes, bool check_written) {
    const bool written = write_time_ >= clock.block_start() && valid_;
    if (check_written && access != Access::kWrite && (!written || (valid_ & bytes) != bytes))
      return "reads shared memory that nobody wrote";
    const bool both_atomic = access == Access::kAtomic && atomic_;
    if (written && (write_bytes_ & bytes) && !both_atomic && !clock.ordered(thread, writer_, write_time_))
      return access == Access::kRead ? "races: reads what another thread wrote, with no barrier between"
                                     : "races: overwrites what another thread wrote, with no barrier between";
    if (access != Access::kRead && (read_bytes_ & bytes) && !reads_ordered(clock, thread))
      return "races: overwrites what another thread reads, with no barrier between";
    if (access == Access::kRead) {
      note_read(clock, thread, bytes);
    } else {
      valid_ = (written ? valid_ : 0) | bytes;
      write_bytes_ = written && !clock.ordered(thread, writer_, write_time_) ? write_bytes_ | bytes : bytes;
      write_time_ = clock.now();
      writer_ = std::uint16_t(thread);
      atomic_ = access == Access::kAtomic;
    }
    return nullptr;
  }

 private:
  static constexpr std::uint16_t kManyWarps = 0xffff;

  bool reads_ordered(const Clock& clock, int thread) const {
    if (read_time_ < clock.block_barrier()) return true;
    if (read_warp_ != thread / kWarpSize) return false;
    for (std::uint32_t lanes = read_lanes_; lanes; lanes &= lanes - 1)
      if (!clock.ordered(thread, read_warp_ * kWarpSize + __builtin_ctz(lanes), read_time_)) return false;
    return true;
  }

  // Only readers that a later writer may race with are kept: those that the new reader is not ordered after.
  void note_read(const Clock& clock, int thread, unsigned bytes) {
    const auto warp = std::uint16_t(thread / kWarpSize);
    if (!read_bytes_ || reads_ordered(clock, thread)) {
      read_bytes_ = 0, read_lanes_ = 0, read_warp_ = warp;
    } else if (read_warp_ != warp) {
      read_warp_ = kManyWarps;
    }
    read_lanes_ |= 1u << thread % kWarpSize;
    read_bytes_ |= bytes;
    read_time_ = clock.now();
  }

  std::uint32_t write_time_ = 0, read_time_ = 0, read_lanes_ = 0;
  std::uint16_t writer_ = 0, read_warp_ = 0;
  std::uint8_t write_bytes_ = 0, read_bytes_ = 0, valid_ = 0;
  bool atomic_ = false;
};

// The words of a piece of memory, kept by page. Words of earlier blocks are recognised by their time, so nothing is
// cleared between blocks.
class Shadow {
 public:
  const char* access(const Clock& clock, int thread, Access access, const void* address, std::size_t size,
                     bool check_written) {
    auto first = reinterpret_cast<std::uintptr_t>(address);
    const auto end = first + size;
    while (first < end) {
      const auto word_end = std::min((first | 3) + 1, end);
      const unsigned bytes = ((1u << (word_end - first)) - 1) << (first & 3);
      if (const char* wrong = word(first).access(clock, thread, access, bytes, check_written)) return wrong;
      first = word_end;
    }
    return nullptr;
  }

  // Old addresses may be another array's by now.
  void forget_pages() {
    used_ = 0;
    index_.clear();
    last_page_ = 0;
  }

 private:
  static constexpr unsigned kPageBits = 12, kWords = 1u << (kPageBits - 2);

  Word& word(std::uintptr_t address) {
    const auto page = address >> kPageBits;
    if (page != last_page_ || !last_words_) {
      auto [found, added] = index_.try_emplace(page, used_);
      if (added && used_++ == pages_.size()) pages_.push_back(std::make_unique<Word[]>(kWords));
      last_page_ = page;
      last_words_ = pages_[found->second].get();
    }
    return last_words_[address >> 2 & (kWords - 1)];
  }

  std::vector<std::unique_ptr<Word[]>> pages_;
  std::unordered_map<std::uintptr_t, std::size_t> index_;
  std::size_t used_ = 0;
  std::uintptr_t last_page_ = 0;
  Word* last_words_ = nullptr;
};

}  // namespace emulator
