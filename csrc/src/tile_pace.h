// How fast tile instructions are on this core at this moment.
//
// While the other hyperthread of a core is in use, its tile registers are not renamed: each instruction that writes one takes
// its whole latency, loads too, and a product with its load goes from 6 ns to 26 ns. What helps then (operands asked for into
// the first-level cache) costs a third more otherwise. Both change within fractions of a second, also in a virtual
// machine that sees one thread per core, so each thread measures its own products as it goes. The bits are the same.
// Knows nothing of: what is multiplied.
#pragma once

#include <ctime>

#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

class TilePace {
 public:
  static bool is_slow() { return forced() < 0 ? of_thread() : forced() > 0; }
  // For tests: 0 or 1 for all threads, negative: as measured.
  static int& forced() {
    static int pace = -1;
    return pace;
  }

  // Takes the time of at most `limit` products from here to done(); too few say nothing.
  class Measured {
   public:
    explicit Measured(int64_t limit) : start_(limit >= kEnough ? now_ns() : 0) {}
    void done(int64_t products) const {
      if (start_ != 0 && products >= kEnough) of_thread() = now_ns() - start_ > kSlowNs * products;
    }

   private:
    static constexpr int64_t kEnough = 128;  // a look at the clock takes as long as two
    static constexpr int64_t kSlowNs = 26;   // in place 15 to 21 at one pace, 30 to 50 at the other
    int64_t start_;
  };

 private:
  static bool& of_thread() {
    static thread_local bool is_slow = false;
    return is_slow;
  }
  static int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{1000000000} * t.tv_sec + t.tv_nsec;
  }
};

}  // namespace ov

#endif
