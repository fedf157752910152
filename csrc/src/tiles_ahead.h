// Asking memory for weights before they are read.
//
// A thread reads a weight's strips (weights.h) in the order of memory. One row is read as fast as memory gives it, which
// some machines' prefetchers (prefetch.h) follow best if nobody asks for the same lines (codes of eight bits, which are no
// work, want them a little early). More rows take their time over each line, and prefetchers are then not far enough
// ahead. At the end of a thread's run the beginning of the next linear is asked for, so that memory has work while the
// threads wait for each other. In several walks over a strip memory has nothing to do after the first, so all of the next
// strip is asked for.
// Knows nothing of: activations, threads.
#pragma once

#include "prefetch.h"
#include "weights.h"

namespace ov {

// The strip that a thread reads after the one at hand. No data: not known.
struct NextTiles {
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
};

inline NextTiles next_tiles(const ov_weight& w, int64_t tile) { return {strip_of(w, tile), w.strip_bytes}; }

// All of the next strip, little by little, where ask() is called so often in each of so many walks.
class WholeTilesAhead {
 public:
  OV_ALWAYS_INLINE WholeTilesAhead(const NextTiles& next, int64_t asks, int64_t walks)
      : at_(next.data), left_(next.data ? next.bytes / 64 : 0), lines_(ceil_div(left_, walks * asks)) {}

  OV_ALWAYS_INLINE void ask() {
    for (int64_t i = 0; i < lines_ && left_ > 0; ++i, --left_) {
      // into the second-level cache, whose queue of misses is the longer one
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
    }
  }

 private:
  const uint8_t* at_;
  int64_t left_, lines_;
};

// Each line some kilobytes before it is read, in a single walk: ask() is called before each `Step` bytes of a strip.
template <int64_t Step>
class LinesAhead {
 public:
  // only_next: not for the strip at hand, nor for one that lies behind it.
  OV_ALWAYS_INLINE LinesAhead(const ov_weight& w, int64_t tile, const NextTiles& next, bool only_next = false,
                              int64_t early_bytes = kAheadBytes)
      : only_next_(only_next), next_(next.data) {
    const int64_t steps = w.strip_bytes / Step, wanted = early_bytes / Step, early = steps < wanted ? steps : wanted;
    const uint8_t* const strip = strip_of(w, tile);
    left_ = steps - early;  // the strip before this one has asked for the first lines
    at_ = strip + early * Step;
    if (only_next && next_ == strip + w.strip_bytes) next_ = nullptr;
  }

  OV_ALWAYS_INLINE void ask() {
    if (left_-- <= 0) {
      if (!next_) return;
      if (left_ == -1) at_ = next_;
    } else if (only_next_) {
      return;
    }
    for (int64_t i = 0; i < Step; i += 64) ask_for(at_ + i);
    if constexpr (kAsksForAll) begin_next_page(at_, Step);
    at_ += Step;
  }

 private:
  const bool only_next_;
  const uint8_t *next_, *at_;
  int64_t left_;
};

// Either of them: lines in a single walk, whole strips in several. IsLight: codes that are no work to expand.
template <int64_t Step, bool IsLight = false>
class TilesAhead {
 public:
  OV_ALWAYS_INLINE TilesAhead(const ov_weight& w, int64_t tile, const NextTiles& next, int64_t rows, int64_t walks)
      : is_one_(walks == 1),
        lines_(lines(w, tile, next, rows == 1)),
        whole_(next, ceil_div(w.strip_bytes, Step), walks) {}
  OV_ALWAYS_INLINE void ask() { is_one_ ? lines_.ask() : whole_.ask(); }

 private:
  static OV_ALWAYS_INLINE LinesAhead<Step> lines(const ov_weight& w, int64_t tile, const NextTiles& next,
                                                 bool is_one_row) {
    constexpr int64_t kLittle = 2176;
    if (kAsksForAll || !is_one_row) return {w, tile, next};
    if constexpr (IsLight) return {w, tile, next, false, kLittle};
    return {w, tile, next, true};
  }
  const bool is_one_;
  LinesAhead<Step> lines_;
  WholeTilesAhead whole_;
};

}  // namespace ov
