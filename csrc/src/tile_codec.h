// Reading packed tiles of quantised weights: codes to bytes, scales to f32. The layout is described in weights.h.
//
// Knows nothing of: activations, threads.
#pragma once

#include "byte_lanes.h"
#include "gguf_blocks.h"
#include "tiles.h"
#include "weights.h"

namespace ov {

// Tiles that kernels read side by side (linear_block.h).
#if defined(__AVX512VNNI__)
inline constexpr int kStripTiles = 2;
#else
inline constexpr int kStripTiles = 1;
#endif
constexpr int float_strip_tiles([[maybe_unused]] int kind) {
#if defined(OV_HAS_TILES)
  return kind == OV_BF16 ? 1 : 2;  // a tile of bf16 is an operand of the tile registers as it lies
#elif defined(__AVX2__)
  return 2;
#else
  return 1;
#endif
}

// Compile-time facts of a packed kind.
template <int Kind>
struct Tile : Block<Kind> {
  using B = Block<Kind>;
  static constexpr int kGroupBytes = B::kBits * 64;     // codes of 32 k values x 16 columns
  static constexpr int kVectorStep = 64 * kStripTiles;  // from a tile's vector of codes to its next
  static constexpr int kLowAt = (B::kBits == 5 ? 1 : B::kBits == 6 ? 2 : 0) * kVectorStep;  // after the high plane
  static constexpr bool kSymmetric = !B::kMinimum;
  // bytes of a tile's scales in a record
  static constexpr int kScaleBytes = !B::kSuper ? (B::kMinimum ? 64 : 32) : B::kHalves ? 32 + 256 : 64 + 192;
  // a record: scales of each tile, then groups of codes, vectors of the tiles in turn
  static constexpr int kRecordGroups = B::kSuper ? 8 : 1;
  static constexpr int kScalesOfRecord = kStripTiles * kScaleBytes;
  static constexpr int kGroupStep = kStripTiles * kGroupBytes;  // from a group's codes to the next in a record
  static constexpr int kRecordBytes = kScalesOfRecord + kRecordGroups * kGroupStep;
  // from the codes of a record's last group to those of the next record's first
  static constexpr int kStepToRecord = kGroupStep + kScalesOfRecord;
};

// A tile's scales in the first record of its strip; in the next ones they are kRecordBytes further.
template <int Kind>
inline uint8_t* tile_scales(const ov_weight& w, int64_t tile) {
  return strip_of(w, tile) + tile % kStripTiles * Tile<Kind>::kScaleBytes;
}
// A tile's codes of the first group.
template <int Kind>
inline uint8_t* tile_codes(const ov_weight& w, int64_t tile) {
  return strip_of(w, tile) + Tile<Kind>::kScalesOfRecord + tile % kStripTiles * 64;
}
// How far from a tile's codes of the first group those of group g are.
template <int Kind>
OV_ALWAYS_INLINE int64_t codes_offset(int64_t g) {
  using T = Tile<Kind>;
  return g / T::kRecordGroups * T::kRecordBytes + g % T::kRecordGroups * T::kGroupStep;
}

// Quad `Quad` of a group of codes.
template <int Kind, int Quad>
OV_ALWAYS_INLINE Bytes expand_quad(const uint8_t* codes) {
  using T = Tile<Kind>;
  if constexpr (T::kBits == 8) {
    return load_bytes(codes + T::kVectorStep * Quad);
  } else {
    const Bytes both = load_bytes(codes + T::kLowAt + T::kVectorStep * (Quad % 4));
    const Bytes low = Quad < 4 ? low_nibbles(both) : high_nibbles(both);
    if constexpr (T::kBits == 5)
      return add_high_bits<1, Quad>(low, load_bytes(codes));
    else if constexpr (T::kBits == 6)
      return add_high_bits<3, 2 * (Quad % 4)>(low, load_bytes(codes + T::kVectorStep * (Quad / 4)));
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
      if ((g & 7) == 0) decode(scales_ + g / 8 * T::kRecordBytes);
      return {load(decoded_ + 32 * (g & 7)), load(decoded_ + 32 * (g & 7) + 16)};
    } else {
      const uint16_t* s = reinterpret_cast<const uint16_t*>(scales_ + g * T::kRecordBytes);
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
