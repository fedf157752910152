// The block formats of GGUF, read one group of 32 values at a time.
//
// Source: the GGUF specification and the block structs of ggml (ggml-common.h). A value is d * (code - offset) - or + m
// as written below; codes are unsigned. One reader serves repacking and dequantisation, so the two cannot disagree.
// Knows nothing of: tiles, threads.
#pragma once

#include <cstdint>
#include <cstring>

#include "int_lanes.h"
#include "octavo.h"

namespace ov {

inline uint16_t read_u16(const uint8_t* p) {
  uint16_t x;
  memcpy(&x, p, 2);
  return x;
}

inline void nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = qs[i] & 0x0f;
    codes[16 + i] = qs[i] >> 4;
  }
}

// 32 high bits in one word, bit i for value i.
inline void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  uint32_t bits;
  memcpy(&bits, qh, 4);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | ((bits >> i & 1u) << 4));
}

// What the kernels and the packer need to know about a kind at compile time.
//   kBlock, kBytes  values and bytes of a block     kBits  width of a code
//   kOffset         subtracted from the code        kMinimum  a minimum per group
//   kSuper          six-bit or int8 sub-scales per 256    kHalves  two scales per group of 32
template <int Kind>
struct Block;

template <>
struct Block<OV_Q4_0> {
  static constexpr int kBlock = 32, kBytes = 18, kBits = 4, kOffset = 8;
  static constexpr bool kMinimum = false, kSuper = false, kHalves = false;
  static void codes(const uint8_t* b, int, uint8_t* out) { nibbles(b + 2, out); }
  static uint16_t scale(const uint8_t* b) { return read_u16(b); }
};

template <>
struct Block<OV_Q4_1> {
  static constexpr int kBlock = 32, kBytes = 20, kBits = 4, kOffset = 0;
  static constexpr bool kMinimum = true, kSuper = false, kHalves = false;
  static void codes(const uint8_t* b, int, uint8_t* out) { nibbles(b + 4, out); }
  static uint16_t scale(const uint8_t* b) { return read_u16(b); }
  static uint16_t minimum(const uint8_t* b) { return read_u16(b + 2); }
};

template <>
struct Block<OV_Q5_0> {
  static constexpr int kBlock = 32, kBytes = 22, kBits = 5, kOffset = 16;
  static constexpr bool kMinimum = false, kSuper = false, kHalves = false;
  static void codes(const uint8_t* b, int, uint8_t* out) {
    nibbles(b + 6, out);
    add_fifth_bits(b + 2, out);
  }
  static uint16_t scale(const uint8_t* b) { return read_u16(b); }
};

template <>
struct Block<OV_Q5_1> {
  static constexpr int kBlock = 32, kBytes = 24, kBits = 5, kOffset = 0;
  static constexpr bool kMinimum = true, kSuper = false, kHalves = false;
  static void codes(const uint8_t* b, int, uint8_t* out) {
    nibbles(b + 8, out);
    add_fifth_bits(b + 4, out);
  }
  static uint16_t scale(const uint8_t* b) { return read_u16(b); }
  static uint16_t minimum(const uint8_t* b) { return read_u16(b + 2); }
};

template <>
struct Block<OV_Q8_0> {
  static constexpr int kBlock = 32, kBytes = 34, kBits = 8, kOffset = 128;
  static constexpr bool kMinimum = false, kSuper = false, kHalves = false;
  static void codes(const uint8_t* b, int, uint8_t* out) {
    for (int i = 0; i < 32; ++i) out[i] = b[2 + i] ^ 0x80;
  }
  static uint16_t scale(const uint8_t* b) { return read_u16(b); }
};

// Q4_K and Q5_K: d f16, dmin f16, 12 bytes of six-bit scales and minimums for 8 sub-blocks of 32.
// value = d * s * code - dmin * m.
struct SixBitScales {
  static constexpr int kBlock = 256, kOffset = 0;
  static constexpr bool kMinimum = true, kSuper = true, kHalves = false;
  static uint16_t scale(const uint8_t* b) { return read_u16(b); }
  static uint16_t minimum(const uint8_t* b) { return read_u16(b + 2); }
  static uint32_t sub_scale(const uint8_t* b, int j) {
    const uint8_t* s = b + 4;
    return j < 4 ? s[j] & 63u : (s[j + 4] & 15u) | (s[j - 4] >> 6) << 4;
  }
  static uint32_t sub_minimum(const uint8_t* b, int j) {
    const uint8_t* s = b + 4;
    return j < 4 ? s[j + 4] & 63u : static_cast<uint32_t>(s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
  // Sub-blocks 2 i and 2 i + 1 share 32 bytes: low and high nibbles.
  static void sub_nibbles(const uint8_t* qs, int j, uint8_t* out) {
    const int shift = (j & 1) * 4;
    for (int i = 0; i < 32; ++i) out[i] = qs[32 * (j >> 1) + i] >> shift & 0x0f;
  }
};

template <>
struct Block<OV_Q4_K> : SixBitScales {
  static constexpr int kBytes = 144, kBits = 4;
  static void codes(const uint8_t* b, int j, uint8_t* out) { sub_nibbles(b + 16, j, out); }
};

template <>
struct Block<OV_Q5_K> : SixBitScales {
  static constexpr int kBytes = 176, kBits = 5;
  static void codes(const uint8_t* b, int j, uint8_t* out) {
    sub_nibbles(b + 48, j, out);
    for (int i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(out[i] | (b[16 + i] >> j & 1) << 4);
  }
};

// 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales of sub-blocks of 16, d f16. value = d * s * (code -
// 32).
template <>
struct Block<OV_Q6_K> {
  static constexpr int kBlock = 256, kBytes = 210, kBits = 6, kOffset = 32;
  static constexpr bool kMinimum = false, kSuper = true, kHalves = true;
  static void codes(const uint8_t* b, int j, uint8_t* out) {
    const int half = j >> 2, part = j & 3;
    const uint8_t* low = b + 64 * half + 32 * (part & 1);
    const uint8_t* high = b + 128 + 32 * half;
    for (int i = 0; i < 32; ++i)
      out[i] = static_cast<uint8_t>((low[i] >> 4 * (part >> 1) & 0x0f) | (high[i] >> 2 * part & 3) << 4);
  }
  static uint16_t scale(const uint8_t* b) { return read_u16(b + 208); }
  static int8_t sub_scale16(const uint8_t* b, int i) { return static_cast<int8_t>(b[192 + i]); }
};

// Calls f.template operator()<Kind>() for a quantised kind; false for any other type.
template <class F>
bool visit_quantized(int kind, F&& f) {
  switch (kind) {
    case OV_Q4_0: f.template operator()<OV_Q4_0>(); return true;
    case OV_Q4_1: f.template operator()<OV_Q4_1>(); return true;
    case OV_Q5_0: f.template operator()<OV_Q5_0>(); return true;
    case OV_Q5_1: f.template operator()<OV_Q5_1>(); return true;
    case OV_Q8_0: f.template operator()<OV_Q8_0>(); return true;
    case OV_Q4_K: f.template operator()<OV_Q4_K>(); return true;
    case OV_Q5_K: f.template operator()<OV_Q5_K>(); return true;
    case OV_Q6_K: f.template operator()<OV_Q6_K>(); return true;
    default: return false;
  }
}

}  // namespace ov
