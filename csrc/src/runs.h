// Work dealt out in runs: each thread takes its own items in order, so that it knows what it reads next, and helps the
// others when it has done them. Knows nothing of: what an item is.
#pragma once

#include <atomic>

#include "pool.h"

namespace ov {

class Runs {
 public:
  static constexpr int kMaxRuns = 64;

  // First item of a thread's run; `thread` may be one past the last.
  static int64_t begin(int64_t items, int threads, int thread) { return items * thread / threads; }

  // With more threads than runs some share one.
  void deal(int64_t items, int threads) {
    items_ = items;
    runs_ = threads < kMaxRuns ? threads : kMaxRuns;
    for (int r = 0; r < runs_; ++r) next_[r].value.store(begin(items, runs_, r), std::memory_order_relaxed);
  }
  // An item that nobody else has; -1: none is left.
  int64_t take(int thread) {
    const int own = thread % runs_;
    int of = own;
    do {
      const int64_t end = begin(items_, runs_, of + 1);
      if (next_[of].value.load(std::memory_order_relaxed) < end) {
        const int64_t item = next_[of].value.fetch_add(1, std::memory_order_relaxed);
        if (item < end) return item;
      }
      of = of + 1 < runs_ ? of + 1 : 0;
    } while (of != own);
    return -1;
  }
  // The item after it is not this thread's.
  bool is_last(int64_t item, int thread) const {
    return item + 1 == begin(items_, runs_, thread % runs_ + 1) || item + 1 == items_;
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> value;
  };
  int64_t items_ = 0;
  int runs_ = 1;
  Counter next_[kMaxRuns];
};

// What a thread takes from, while it is a worker of the pool.
class Taker {
 public:
  Taker(Runs& runs, int worker) : runs_(runs), worker_(worker) {}
  int worker() const { return worker_; }
  int64_t take() { return runs_.take(worker_); }  // -1: none is left
  // nothing is known of what this worker does after the item
  bool is_last(int64_t item) const { return runs_.is_last(item, worker_); }

 private:
  Runs& runs_;
  const int worker_;
};

// f(Taker&) on each thread that is awake, to take items until none is left; on more threads than there are items if
// `on_all`.
template <class F>
inline void parallel_takers(ov_pool* pool, int64_t items, F&& f, bool on_all = false) {
  const int threads = pool ? pool_size(pool) : 1;
  static thread_local Runs kept;  // of the caller; through the reference all threads share it
  Runs& runs = kept;
  runs.deal(items, threads);
  // one tile of the pool per thread: a counter that all threads share would cost each item a cache miss. Who is awake
  // takes what is left of the others' runs.
  parallel_for(pool, on_all || threads < items ? threads : items, [&](int64_t, int worker) {
    Taker taker(runs, worker);
    f(taker);
  });
}

}  // namespace ov
