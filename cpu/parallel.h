// Spreads independent tasks over a thread pool that others use too.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

namespace jax_rtopk {

// The caller works as well and waits only for tasks that some thread has claimed, never for a helper that the pool has
// not started yet. So a pool whose every thread is inside run() makes progress: each caller can finish its tasks alone.
class Parallel {
 public:
  using Schedule = std::function<void(std::function<void()>)>;

  // Runs everything on the calling thread.
  Parallel() = default;

  // `threads` is how many threads may work at once, the caller included; `schedule` runs a function on the pool, some
  // time.
  Parallel(int64_t threads, Schedule schedule)
      : threads_(schedule ? std::max<int64_t>(threads, 1) : 1), schedule_(std::move(schedule)) {}

  int64_t threads() const { return threads_; }

  // Calls task(i) for every i in [0, tasks), in any order and on any thread, and returns when all have returned; if one
  // has thrown, by throwing the same.
  template <class F>
  void run(int64_t tasks, F&& task) {
    const int64_t workers = std::min(threads_, tasks);
    if (workers <= 1) {
      for (int64_t i = 0; i < tasks; ++i) task(i);
      return;
    }
    // Shared, since a helper may start after run() has returned: it then finds no task left, and never touches `task`.
    const auto job = std::make_shared<Job>(tasks, [&task](int64_t i) { task(i); });
    try {
      for (int64_t helper = 1; helper < workers; ++helper) schedule_([job] { job->work(); });
    } catch (...) {  // fewer helpers, then: leaving now would pull `task` from under those that have started
    }
    job->work();
    job->wait();
  }

 private:
  class Job {
   public:
    Job(int64_t tasks, std::function<void(int64_t)> task) : tasks_(tasks), task_(std::move(task)) {}

    void work() {
      for (int64_t i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) {
        try {
          task_(i);
        } catch (...) {
          if (!failed_.exchange(true)) failure_ = std::current_exception();
        }
        if (done_.fetch_add(1) + 1 == tasks_) done_.notify_all();
      }
    }

    void wait() const {
      for (int64_t done = done_.load(); done < tasks_; done = done_.load()) done_.wait(done);
      if (failure_) std::rethrow_exception(failure_);
    }

   private:
    const int64_t tasks_;
    const std::function<void(int64_t)> task_;
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;  // written before its task counts as done
    // On cache lines of their own: claiming a task must not slow threads that finish one.
    alignas(64) std::atomic<int64_t> next_{0};
    alignas(64) std::atomic<int64_t> done_{0};
  };

  int64_t threads_ = 1;
  Schedule schedule_;
};

}  // namespace jax_rtopk
