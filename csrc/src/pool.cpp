#include "pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <mutex>
#include <new>
#include <vector>

#include "error.h"
#include "octavo.h"
#include "pause.h"

namespace {

int64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1000000000 + ts.tv_nsec;
}

void futex_wait(std::atomic<uint32_t>* word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// True when `word` left `seen` within spin_ns. The clock is read once per batch of pauses: reading it costs as much as
// one.
bool spin_until_changed(const std::atomic<uint32_t>& word, uint32_t seen, int64_t spin_ns) {
  if (spin_ns <= 0) return word.load(std::memory_order_acquire) != seen;
  const int64_t deadline = now_ns() + spin_ns;
  do {
    for (int i = 0; i < 16; ++i) {
      if (word.load(std::memory_order_acquire) != seen) return true;
      ov::cpu_pause();
    }
  } while (now_ns() < deadline);
  return false;
}

}  // namespace

// One job at a time. `ticket` holds tiles << 32 | next in one word, so that a claim is one fetch_add which also says
// whether it is valid: fn and context may be read after a valid claim, because the job cannot end before that tile is
// done. A worker that wakes up late therefore needs no other check.
struct ov_pool {
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<uint32_t> done{0};   // tiles finished; futex word of the caller
  alignas(64) std::atomic<uint32_t> epoch{0};  // jobs started; futex word of the workers
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  // apart from what threads wait for: each write would fetch the line back from those that look at it
  alignas(64) ov::TileFn fn = nullptr;
  void* context = nullptr;
  uint32_t tiles = 0;
  int64_t spin_ns = 0;
  int num_threads = 1;
  pid_t owner = 0;  // after fork the child has no workers to join
  std::mutex serial;
  std::vector<pthread_t> threads;

  void work(int worker) {
    uint32_t finished = 0, total = 0;
    for (;;) {
      const uint64_t claim = ticket.fetch_add(1, std::memory_order_acq_rel);
      const uint32_t tile = static_cast<uint32_t>(claim);
      total = static_cast<uint32_t>(claim >> 32);
      if (tile >= total) break;
      fn(context, tile, worker);
      ++finished;
    }
    if (finished == 0) return;
    const uint32_t sum = done.fetch_add(finished, std::memory_order_seq_cst) + finished;
    if (sum == total && worker != 0 && caller_sleeps.load(std::memory_order_seq_cst)) futex_wake(&done, 1);
  }

  void worker_main(int worker) {
    uint32_t seen = 0;
    for (;;) {
      if (!spin_until_changed(epoch, seen, spin_ns)) {
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        while (epoch.load(std::memory_order_seq_cst) == seen) futex_wait(&epoch, seen);
        sleepers.fetch_sub(1, std::memory_order_seq_cst);
      }
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      work(worker);
    }
  }

  void run(int64_t num_tiles, ov::TileFn tile_fn, void* tile_context) {
    std::lock_guard<std::mutex> lock(serial);
    fn = tile_fn;
    context = tile_context;
    tiles = static_cast<uint32_t>(num_tiles);
    done.store(0, std::memory_order_relaxed);
    ticket.store(static_cast<uint64_t>(tiles) << 32, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_seq_cst);
    const int asleep = sleepers.load(std::memory_order_seq_cst);
    if (asleep > 0) futex_wake(&epoch, asleep < num_tiles - 1 ? asleep : static_cast<int>(num_tiles - 1));
    work(0);
    for (;;) {
      const uint32_t finished = done.load(std::memory_order_acquire);
      if (finished == tiles) break;
      if (spin_until_changed(done, finished, spin_ns)) continue;
      caller_sleeps.store(true, std::memory_order_seq_cst);
      uint32_t current;
      while ((current = done.load(std::memory_order_seq_cst)) != tiles) futex_wait(&done, current);
      caller_sleeps.store(false, std::memory_order_relaxed);
    }
  }
};

namespace {

struct ThreadStart {
  ov_pool* pool;
  int worker;
};

void* thread_entry(void* argument) {
  ThreadStart start = *static_cast<ThreadStart*>(argument);
  delete static_cast<ThreadStart*>(argument);
  start.pool->worker_main(start.worker);
  return nullptr;
}

}  // namespace

int ov::pool_size(const ov_pool* pool) { return pool ? pool->num_threads : 1; }

void ov::pool_run(ov_pool* pool, int64_t tiles, TileFn fn, void* context) {
  if (tiles <= 0) return;
  if (!pool || pool->num_threads == 1 || tiles == 1) {
    for (int64_t tile = 0; tile < tiles; ++tile) fn(context, tile, 0);
    return;
  }
  pool->run(tiles, fn, context);
}

extern "C" {

ov_pool* ov_pool_create(int num_threads, const int32_t* cpus, int spin_us) {
  if (num_threads < 1 || num_threads > 1024) {
    ov::set_error("ov_pool_create: num_threads must be in [1, 1024], got %d", num_threads);
    return nullptr;
  }
  auto* pool = new (std::nothrow) ov_pool;
  if (!pool) {
    ov::set_error("ov_pool_create: out of memory");
    return nullptr;
  }
  pool->num_threads = num_threads;
  pool->spin_ns = int64_t{spin_us > 0 ? spin_us : 0} * 1000;
  pool->owner = getpid();
  pool->threads.reserve(static_cast<size_t>(num_threads - 1));
  for (int worker = 1; worker < num_threads; ++worker) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t thread;
    auto* start = new ThreadStart{pool, worker};
    const int rc = pthread_create(&thread, &attributes, thread_entry, start);
    pthread_attr_destroy(&attributes);
    if (rc != 0) {
      delete start;
      ov::set_error("ov_pool_create: could not start compute thread %d of %d: %s", worker, num_threads, strerror(rc));
      ov_pool_destroy(pool);
      return nullptr;
    }
    pool->threads.push_back(thread);
    char name[16];
    snprintf(name, sizeof name, "octavo-comp-%d", worker % 1000);
    pthread_setname_np(thread, name);
    if (cpus) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<size_t>(cpus[worker]), &set);
      const int pin = pthread_setaffinity_np(thread, sizeof set, &set);
      if (pin != 0) {
        ov::set_error("ov_pool_create: could not pin compute thread %d to CPU %d: %s", worker, cpus[worker],
                      strerror(pin));
        ov_pool_destroy(pool);
        return nullptr;
      }
    }
  }
  return pool;
}

void ov_pool_destroy(ov_pool* pool) {
  if (!pool) return;
  if (pool->owner == getpid()) {
    pool->stop.store(true, std::memory_order_release);
    pool->epoch.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(&pool->epoch, INT_MAX);
    for (pthread_t thread : pool->threads) pthread_join(thread, nullptr);
  }
  delete pool;
}

}  // extern "C"
