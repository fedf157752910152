// C calls that a thread makes while others prepare a step. A pause leaves the processors to compute threads, each of which
// would hold up the others if it were pushed aside; who waits for the calls makes those that are left, beside the thread.
// Knows nothing of: what is called.
#include <pthread.h>
#include <string.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>

#include "error.h"
#include "octavo.h"
#include "thread.h"

using namespace ov;

struct ov_call_queue {
  std::mutex mutex;
  std::condition_variable has_calls, is_idle;
  std::deque<ov_queued_call> calls;  // nobody makes them yet
  int num_underway = 0;
  bool is_closing = false;
  pthread_t thread;
  bool is_paused = false;

  // Until none is left, or a pause.
  void make_calls(std::unique_lock<std::mutex>& lock) {
    while (has_work()) {
      const ov_queued_call call = calls.front();
      calls.pop_front();
      ++num_underway;
      lock.unlock();
      const int32_t result = call.function(call.object, call.data, call.bytes);
      lock.lock();
      *call.result = result;
      if (--num_underway == 0 && calls.empty()) is_idle.notify_all();
    }
  }

  bool has_work() const { return !calls.empty() && !is_paused; }

  void run() {
    std::unique_lock lock(mutex);
    while (!is_closing || !calls.empty()) {
      has_calls.wait(lock, [this] { return has_work() || is_closing; });
      if (is_closing) is_paused = false;
      make_calls(lock);
    }
  }

  void wait() {
    std::unique_lock lock(mutex);
    is_paused = false;
    if (calls.size() > 1) has_calls.notify_one();
    make_calls(lock);
    is_idle.wait(lock, [this] { return calls.empty() && num_underway == 0; });
  }
};

ov_call_queue* ov_call_queue_create(const char* thread_name) {
  auto* queue = new (std::nothrow) ov_call_queue;
  if (!queue) {
    set_error("call queue: no memory");
    return nullptr;
  }
  const int code = start_thread(&queue->thread, thread_name, queue);
  if (code != 0) {
    set_error("call queue: no thread: %s", strerror(code));
    delete queue;
    return nullptr;
  }
  return queue;
}

void ov_call_queue_destroy(ov_call_queue* queue) {
  if (!queue) return;
  {
    const std::lock_guard lock(queue->mutex);
    queue->is_closing = true;
  }
  queue->has_calls.notify_one();
  pthread_join(queue->thread, nullptr);
  delete queue;
}

void ov_call_queue_add(ov_call_queue* queue, int64_t count, const ov_queued_call* calls) {
  {
    const std::lock_guard lock(queue->mutex);
    queue->calls.insert(queue->calls.end(), calls, calls + count);
  }
  queue->has_calls.notify_one();
}

void ov_call_queue_pause(ov_call_queue* queue) {
  const std::lock_guard lock(queue->mutex);
  queue->is_paused = true;
}

void ov_call_queue_wait(ov_call_queue* queue) { queue->wait(); }
