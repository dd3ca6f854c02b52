// Drives cpu/parallel.h with pools that XLA's could behave like. Exits with 0 when every task ran exactly once in each.
#include "cpu/parallel.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

using jax_rtopk::Parallel;

namespace {

void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

// Runs `tasks` tasks and checks that each ran exactly once.
void run_all(Parallel& parallel, int64_t tasks, const char* what) {
  std::vector<std::atomic<int>> runs(tasks);
  parallel.run(tasks, [&](int64_t i) { runs[i].fetch_add(1); });
  for (const auto& count : runs) check(count.load() == 1, what);
}

// A pool of `size` threads, with one queue.
class Pool {
 public:
  explicit Pool(int size) {
    for (int i = 0; i < size; ++i) threads_.emplace_back([this] { serve(); });
  }

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void schedule(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

void test_serial() {
  Parallel parallel;
  check(parallel.threads() == 1, "no pool: one thread");
  for (const int64_t tasks : {0, 1, 1000}) run_all(parallel, tasks, "no pool");
}

// A pool that is too busy to start any helper before run() returns: the caller must not wait for it, and helpers that
// start afterwards must find nothing to do.
void test_helpers_that_start_late() {
  std::vector<std::function<void()>> late;
  Parallel parallel(4, [&](std::function<void()> work) { late.push_back(std::move(work)); });
  run_all(parallel, 100, "busy pool");
  check(late.size() == 3, "one helper for each thread but the caller's");
  for (auto& work : late) work();
  late.clear();
  run_all(parallel, 2, "busy pool, two tasks");
  check(late.size() == 1, "no more helpers than tasks to share");
  run_all(parallel, 1, "busy pool, one task");
  check(late.size() == 1, "no helper for one task");
}

// Every thread of the pool is inside run() at once, as when several custom calls run together.
void test_every_thread_calls() {
  constexpr int kThreads = 4, kCalls = 200;
  std::atomic<int> finished{0};
  {
    Pool pool(kThreads);
    const auto schedule = [&](std::function<void()> work) { pool.schedule(std::move(work)); };
    for (int call = 0; call < kCalls; ++call) {
      pool.schedule([&] {
        Parallel parallel(kThreads, schedule);
        run_all(parallel, 50, "nested calls");
        finished.fetch_add(1);
      });
    }
  }
  check(finished.load() == kCalls, "every call returned");
}

void test_a_scheduler_that_runs_work_itself() {
  Parallel parallel(4, [](std::function<void()> work) { work(); });
  run_all(parallel, 100, "inline scheduler");
}

// A task that throws, as std::bad_alloc would: all others still run, and the caller gets the exception.
void test_a_task_that_throws() {
  Pool pool(4);
  Parallel parallel(4, [&](std::function<void()> work) { pool.schedule(std::move(work)); });
  std::atomic<int> runs{0};
  bool caught = false;
  try {
    parallel.run(100, [&](int64_t i) {
      runs.fetch_add(1);
      if (i % 10 == 3) throw std::runtime_error("task");
    });
  } catch (const std::runtime_error&) {
    caught = true;
  }
  check(caught && runs.load() == 100, "a task that throws");
}

// A scheduler that fails: the caller does everything.
void test_a_scheduler_that_throws() {
  Parallel parallel(4, [](std::function<void()>) { throw std::runtime_error("no thread"); });
  run_all(parallel, 100, "scheduler that throws");
}

}  // namespace

int main() {
  test_serial();
  test_helpers_that_start_late();
  test_every_thread_calls();
  test_a_scheduler_that_runs_work_itself();
  test_a_task_that_throws();
  test_a_scheduler_that_throws();
  return 0;
}
