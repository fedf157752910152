// Memory is touched before it is used, while nobody else wants the processor: a fault in the middle of a step would cost
// a huge page's zeroing, and on a virtual machine the host's own fault beside it.
// Knows nothing of: what the memory is for, how far ahead is far enough.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>

#include "error.h"
#include "octavo.h"
#include "thread.h"

using namespace ov;

namespace {

constexpr int64_t kPiece = int64_t{2} << 20;  // a huge page: what is lost at most when somebody needs the processor
constexpr int64_t kSmallestPage = 4096;
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// 0 or an errno. Contents stay, whoever writes at the same time.
int populate(uint8_t* data, int64_t bytes) {
  if (madvise(data, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  // Linux before 5.14, and sandboxes. A zero that is still there is replaced by a zero; a page with anything else in it
  // has been touched.
  for (int64_t at = 0; at < bytes; at += kSmallestPage) {
    uint8_t zero = 0;
    __atomic_compare_exchange_n(data + at, &zero, uint8_t{0}, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }
  return 0;
}

// The calling thread runs when no other wants to. Where a sandbox forbids it, it is a thread like others.
void run_when_idle() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace

struct ov_prefault {
  uint8_t* memory;
  pid_t owner;  // a forked child has no such thread
  pthread_t thread;
  std::mutex mutex;
  std::condition_variable is_asked;
  int64_t end = 0;
  bool is_closing = false;
  // read and set without the lock
  std::atomic<int64_t> next{0};
  std::atomic<int> error{0};
  std::atomic<bool> is_paused{false};

  bool has_work() const { return next < end && !is_paused && !error && !is_closing; }

  void run() {
    run_when_idle();
    std::unique_lock lock(mutex);
    while (!is_closing) {
      is_asked.wait(lock, [this] { return has_work() || is_closing; });
      while (has_work()) {
        const int64_t begin = next, piece_end = std::min(end, (begin / kPiece + 1) * kPiece);
        lock.unlock();
        const int code = populate(memory + begin, piece_end - begin);
        lock.lock();
        if (code) {
          error = code;
        } else {
          next = std::max<int64_t>(next, piece_end);  // meanwhile more may have been used
        }
      }
    }
  }
};

ov_prefault* ov_prefault_create(void* memory, const char* thread_name) {
  auto* prefault = new (std::nothrow) ov_prefault;
  if (!prefault) {
    set_error("prefault: no memory");
    return nullptr;
  }
  prefault->memory = static_cast<uint8_t*>(memory);
  prefault->owner = getpid();
  const int code = start_thread(&prefault->thread, thread_name, prefault);
  if (code != 0) {
    set_error("prefault: no thread: %s", strerror(code));
    delete prefault;
    return nullptr;
  }
  return prefault;
}

void ov_prefault_destroy(ov_prefault* prefault) {
  if (!prefault) return;
  if (prefault->owner != getpid()) return;  // its lock may be held by the thread that is not there
  {
    const std::lock_guard lock(prefault->mutex);
    prefault->is_closing = true;
  }
  prefault->is_asked.notify_one();
  pthread_join(prefault->thread, nullptr);
  delete prefault;
}

void ov_prefault_ask(ov_prefault* prefault, int64_t begin, int64_t end) {
  if (prefault->owner != getpid()) return;
  {
    const std::lock_guard lock(prefault->mutex);
    prefault->next = std::max<int64_t>(prefault->next, begin);
    prefault->end = std::max(prefault->end, end);
    prefault->is_paused = false;
  }
  prefault->is_asked.notify_one();
}

void ov_prefault_pause(ov_prefault* prefault) { prefault->is_paused.store(true, std::memory_order_relaxed); }

int64_t ov_prefault_reached(const ov_prefault* prefault) {
  const int error = prefault->error;
  return error ? -error : prefault->next.load();
}
