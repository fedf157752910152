// Rows of what a thread multiplies, of which threads that have nothing else to do take parts, too.
//
// A linear of a prompt has few items, each of some ten microseconds, and threads differ in speed: without this the last
// one is waited for. One word holds parts << 32 | next, as in the pool: a claim is one addition, which also says whether it
// is valid, and what is offered stays as it is until all valid claims are done. Knows nothing of: products.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "pause.h"

namespace ov {

struct LinearBlock;

// Two column tiles of a block, and where their operands lie.
struct SharedUnit {
  const LinearBlock* block;
  int64_t tile;
  const char* operands;
};

class alignas(64) SharedRows {
 public:
  // Before a call.
  void reset() {
    claims_.store(0, std::memory_order_relaxed);
    is_wanted_.store(false, std::memory_order_relaxed);
  }

  // Of the owner. Whether somebody is without work. Claiming parts costs the owner the overlap of one with the next, so until then it
  // just goes over them.
  bool is_wanted() const { return is_wanted_.load(std::memory_order_relaxed); }
  // Parts [next, parts), which the owner claims from here on, too.
  void offer(const SharedUnit& unit, int64_t next, int64_t parts) {
    unit_ = unit;
    done_.store(0, std::memory_order_relaxed);
    claims_.store(static_cast<uint64_t>(parts) << 32 | static_cast<uint64_t>(next), std::memory_order_release);
  }
  // Returns when the others have done as many parts as they took.
  void wait(int64_t taken) {
    constexpr int kPatience = 1000;
    for (int i = 0; done_.load(std::memory_order_acquire) < taken; ++i)
      i < kPatience ? cpu_pause() : void(sched_yield());
  }

  // A part that nobody else has; -1: none is left.
  int64_t claim() {
    const uint64_t claim = claims_.fetch_add(1, std::memory_order_acq_rel);
    const int64_t part = static_cast<uint32_t>(claim);
    return part < static_cast<int64_t>(claim >> 32) ? part : -1;
  }

  // Of the others.
  void want() {
    if (!is_wanted()) is_wanted_.store(true, std::memory_order_relaxed);
  }
  bool has_parts() const {
    const uint64_t claims = claims_.load(std::memory_order_relaxed);
    return static_cast<uint32_t>(claims) < claims >> 32;
  }
  const SharedUnit& unit() const { return unit_; }  // after a valid claim, until done() of it
  void done(int64_t parts) { done_.fetch_add(parts, std::memory_order_acq_rel); }

 private:
  std::atomic<uint64_t> claims_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> is_wanted_{false};
  SharedUnit unit_ = {};
};

}  // namespace ov
