// Asking memory for weights before they are read.
//
// A thread reads a weight's tiles in the order of memory, two side by side, and asks for each some groups early: at the
// end of a pair for the beginning of the next one, and at the end of a linear for the beginning of the next linear, so
// that memory has work while the threads wait for each other. Hardware prefetchers stop at each page and know no tiles.
// Knows nothing of: activations, threads.
#pragma once

#include "int_lanes.h"
#include "weights.h"

namespace ov {

// The tiles that a thread reads after the ones at hand: `bytes` of a tile, `step` to the one beside it. No data: not
// known.
struct NextTiles {
  const uint8_t* data = nullptr;
  int64_t scale_bytes = 0, step = 0, bytes = 0;
};

inline NextTiles next_tiles(const ov_weight& w, int64_t tile) {
  return {tile_scales(w, tile), w.scale_bytes, w.tile_bytes, w.tile_bytes};
}

// Tiles side by side, groups of 32 k values; ask() goes before the group that is read next. In several `parts` walks over
// the same tiles, all of the next ones are asked for, little by little, so that memory has work during all of them.
template <int Tiles, int64_t GroupBytes, int64_t ScaleBytes>
class TilesAhead {
 public:
  // `step` bytes from a tile to the next
  OV_ALWAYS_INLINE TilesAhead(const ov_weight& w, int64_t tile, int64_t step, const NextTiles& after, int64_t parts = 1)
      : after_(after), step_(step), parts_(parts) {
    const int64_t groups = ceil_div(w.k, kGroup), early = groups < kEarly || parts > 1 ? groups : kEarly;
    left_ = groups - early;  // the tiles before these have asked for the first groups
    codes_ = tile_codes(w, tile) + early * GroupBytes;
    scales_ = tile_scales(w, tile) + early * ScaleBytes;
  }

  OV_ALWAYS_INLINE void ask() {
    if (--wait_ > 0) return;
    wait_ = parts_;
    if (left_-- == 0) {
      if (!after_.data) wait_ = INT64_MAX;
      scales_ = after_.data;
      codes_ = after_.data + after_.scale_bytes;
      step_ = after_.step;
    }
    // into the second-level cache, whose queue of misses is the longer one
    unroll<Tiles>([&](auto c) OV_INLINED {
      if constexpr (ScaleBytes > 0) __builtin_prefetch(scales_ + c.value * step_, 0, 2);
      for (int64_t i = 0; i < GroupBytes; i += 64) __builtin_prefetch(codes_ + c.value * step_ + i, 0, 2);
    });
    codes_ += GroupBytes;
    scales_ += ScaleBytes;
  }

 private:
  static constexpr int64_t kEarly = 5120 / GroupBytes;  // between half and twice that, speeds do not differ

  const NextTiles& after_;
  const uint8_t *codes_, *scales_;
  int64_t step_, left_, parts_, wait_ = 1;
};

// The same where tiles have been expanded before the walks.
template <int Tiles>
class WholeTilesAhead {
 public:
  OV_ALWAYS_INLINE WholeTilesAhead(const NextTiles& next, int64_t k, int64_t parts)
      : at_(next.data), step_(next.step), left_(next.data ? next.bytes / 64 : 0) {
    lines_ = ceil_div(left_, parts * ceil_div(k, kGroup));
  }

  OV_ALWAYS_INLINE void ask() {
    for (int64_t i = 0; i < lines_ && left_ > 0; ++i, --left_) {
      unroll<Tiles>([&](auto c) OV_INLINED { __builtin_prefetch(at_ + c.value * step_, 0, 2); });
      at_ += 64;
    }
  }

 private:
  const uint8_t* at_;
  int64_t step_, left_, lines_;
};

}  // namespace ov
