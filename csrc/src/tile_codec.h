// Reading packed tiles of quantised weights: codes to bytes, scales to f32. The layout is described in weights.h.
//
// Knows nothing of: activations, threads.
#pragma once

#include "byte_lanes.h"
#include "gguf_blocks.h"
#include "weights.h"

namespace ov {

// Compile-time facts of a packed kind.
template <int Kind>
struct Tile : Block<Kind> {
  using B = Block<Kind>;
  static constexpr int kGroupBytes = B::kBits * 64;  // codes of 32 k values x 16 columns
  static constexpr int kHighAt = 256;                // where the high plane starts in a group
  static constexpr bool kSymmetric = !B::kMinimum;
  // bytes of scales per group (plain kinds) or per 256 (kinds with sub-scales)
  static constexpr int kScaleBytes = !B::kSuper ? (B::kMinimum ? 64 : 32) : B::kHalves ? 32 + 256 : 64 + 192;
};

template <int Kind>
inline int64_t tile_scale_bytes(int64_t k) {
  return Tile<Kind>::kScaleBytes * (Tile<Kind>::kSuper ? k / 256 : k / 32);
}

// Quad `Quad` of a group of codes.
template <int Kind, int Quad>
OV_ALWAYS_INLINE Bytes expand_quad(const uint8_t* codes) {
  if constexpr (Tile<Kind>::kBits == 8) {
    return load_bytes(codes + 64 * Quad);
  } else {
    const Bytes both = load_bytes(codes + 64 * (Quad % 4));
    const Bytes low = Quad < 4 ? low_nibbles(both) : high_nibbles(both);
    if constexpr (Tile<Kind>::kBits == 5)
      return add_high_bits<1, Quad>(low, load_bytes(codes + Tile<Kind>::kHighAt));
    else if constexpr (Tile<Kind>::kBits == 6)
      return add_high_bits<3, 2 * (Quad % 4)>(low, load_bytes(codes + Tile<Kind>::kHighAt + 64 * (Quad / 4)));
    else
      return low;
  }
}

// Scales of a group. first: of all 32 values, or of the first 16; second: the minimum, or of the last 16.
struct GroupScales {
  Lanes first, second;
};

// Reads the scales of a tile group by group, g rising from a multiple of 8.
template <int Kind>
class ScaleReader {
 public:
  ScaleReader() = default;
  explicit OV_ALWAYS_INLINE ScaleReader(const uint8_t* scales) : scales_(scales) {}
  OV_ALWAYS_INLINE void open(const uint8_t* scales) { scales_ = scales; }

  OV_ALWAYS_INLINE GroupScales read(int64_t g) {
    using T = Tile<Kind>;
    if constexpr (T::kSuper) {
      if ((g & 7) == 0) decode(scales_ + g / 8 * T::kScaleBytes);
      return {load(decoded_ + 32 * (g & 7)), load(decoded_ + 32 * (g & 7) + 16)};
    } else {
      const uint16_t* s = reinterpret_cast<const uint16_t*>(scales_ + g * T::kScaleBytes);
      if constexpr (T::kMinimum) return {load_f16(s), load_f16(s + 16)};
      return {load_f16(s), set1(0.0f)};
    }
  }

 private:
  // Eight groups' scales times the super-scale; the minimums negated, so that they are added.
  OV_ALWAYS_INLINE void decode(const uint8_t* super) {
    const uint16_t* s = reinterpret_cast<const uint16_t*>(super);
    const Lanes d = load_f16(s);
    if constexpr (Tile<Kind>::kHalves) {
      const int8_t* sub = reinterpret_cast<const int8_t*>(super + 32);
      for (int i = 0; i < 16; ++i) store(decoded_ + 16 * i, d * to_float(load_int8(sub + 16 * i)));
    } else {
      const Lanes dmin = set1(0.0f) - load_f16(s + 16);
      const IntLanes six = set1_int(63);
      const IntLanes w0 = load_int(super + 64), w1 = load_int(super + 128), w2 = load_int(super + 192);
      unroll<8>([&](auto j) OV_INLINED {
        constexpr int at = j.value;
        const IntLanes scale = shift_right(at < 5 ? w0 : w1, 6 * (at % 5)) & six;
        store(decoded_ + 32 * at, d * to_float(scale));
        constexpr int m = 8 + at;
        const IntLanes minimum =
            at == 7 ? shift_right(w0, 30) | shift_left(shift_right(w1, 30), 2) | shift_left(shift_right(w2, 30), 4)
                    : shift_right(m < 10 ? w1 : w2, 6 * (m % 5)) & six;
        store(decoded_ + 32 * at + 16, dmin * to_float(minimum));
      });
    }
  }

  const uint8_t* scales_ = nullptr;
  alignas(64) float decoded_[Tile<Kind>::kSuper ? 256 : 1];
};

}  // namespace ov
