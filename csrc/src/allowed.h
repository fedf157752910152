// Ids that a row may have, by a bit each. Knows nothing of: where the bits come from.
#pragma once

#include <cstdint>

#include "lanes.h"

namespace ov {

struct AllIds {
  static uint32_t lanes(int32_t) { return 0xffff; }
  static Lanes only(Lanes x, Lanes, int32_t) { return x; }
};

// Lowest id in bit 0 of the first word.
struct SomeIds {
  const uint32_t* bits;

  // Of ids [i, i + 16); i is a multiple of 16.
  uint32_t lanes(int32_t i) const { return bits[i / 32] >> (i % 32) & 0xffffu; }
  // x of the ids that are allowed.
  Lanes only(Lanes x, Lanes otherwise, int32_t i) const { return select(mask_from_bits(lanes(i)), x, otherwise); }
};

// f(AllIds or SomeIds); bits: null: all.
template <class F>
inline auto with_allowed(const uint32_t* bits, F&& f) {
  static_assert(kLanes == 16);
  return bits ? f(SomeIds{bits}) : f(AllIds{});
}

}  // namespace ov
