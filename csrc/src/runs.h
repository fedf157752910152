// Work dealt out in runs: each thread takes its own items in order, so that it knows what it reads next, and helps the
// others when it has done them. Knows nothing of: what an item is.
#pragma once

#include <atomic>

#include "pool.h"

namespace ov {

class Runs {
 public:
  static constexpr int kMaxThreads = 64;

  // First item of a thread's run; `thread` may be one past the last.
  static int64_t begin(int64_t items, int threads, int thread) { return items * thread / threads; }

  void deal(int64_t items, int threads) {
    items_ = items;
    threads_ = threads;
    for (int t = 0; t < threads; ++t) next_[t].value.store(begin(items, threads, t), std::memory_order_relaxed);
  }
  // An item that nobody else has; -1: none is left.
  int64_t take(int thread) {
    int of = thread;
    do {
      const int64_t end = begin(items_, threads_, of + 1);
      if (next_[of].value.load(std::memory_order_relaxed) < end) {
        const int64_t item = next_[of].value.fetch_add(1, std::memory_order_relaxed);
        if (item < end) return item;
      }
      of = of + 1 < threads_ ? of + 1 : 0;
    } while (of != thread);
    return -1;
  }
  // The item after it is not this thread's.
  bool is_last(int64_t item, int thread) const {
    return item + 1 == begin(items_, threads_, thread + 1) || item + 1 == items_;
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> value;
  };
  int64_t items_ = 0;
  int threads_ = 1;
  Counter next_[kMaxThreads];
};

// f(int64_t item, int worker, bool is_last) for each item; is_last: nothing is known of what this worker does then.
template <class F>
inline void parallel_runs(ov_pool* pool, int64_t items, F&& f) {
  const int threads = pool ? pool_size(pool) : 1;
  if (threads > Runs::kMaxThreads) return parallel_for(pool, items, [&](int64_t i, int worker) { f(i, worker, true); });
  static thread_local Runs kept;  // of the caller; through the reference all threads share it
  Runs& runs = kept;
  runs.deal(items, threads);
  // one tile of the pool per thread: a counter that all threads share would cost each item a cache miss. Who is awake
  // takes what is left of the others' runs.
  parallel_for(pool, threads < items ? threads : items, [&](int64_t, int worker) {
    for (int64_t item; (item = runs.take(worker)) >= 0;) f(item, worker, runs.is_last(item, worker));
  });
}

}  // namespace ov
