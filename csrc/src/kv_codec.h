// One-byte codes of a quantised KV cache: int8 and fp8 (e4m3), both times a scale per token and head.
//
// Decoding is exact and every byte decodes to a finite number, also one in a slot that was never written. Same bits at
// every level. Knows nothing of: layouts.
#pragma once

#include <cstdint>

#include "int_lanes.h"
#include "octavo.h"

namespace ov {

// Largest code; how large it is as decoded.
inline constexpr float kLargestInt8 = 127.0f, kLargestFp8 = 448.0f, kLargestFp8Decoded = 1.75f;

struct CodeScale {
  float scale;   // of decoded codes
  float factor;  // of values before they are encoded
};

// So that the largest magnitude of x becomes the largest code; a NaN decides the scale, and with it the result.
inline CodeScale code_scale(int32_t dtype, const float* x, int dims) {
  constexpr float kSmallest = 1e-35f;  // below it all is zero: the factor would overflow
  IntLanes top = set1_int(0);
  for (int d = 0; d < dims; d += kLanes) {
    const int n = dims - d < kLanes ? dims - d : kLanes;
    top = max(top, as_int(load_part(x + d, n)) & set1_int(0x7fffffff));
  }
  const float amax = bits_float(static_cast<uint32_t>(max_lanes(top)));
  if (amax < kSmallest) return {0.0f, 0.0f};
  return dtype == OV_I8 ? CodeScale{amax / kLargestInt8, kLargestInt8 / amax}
                        : CodeScale{amax / kLargestFp8Decoded, kLargestFp8 / amax};
}

// Low bytes are the codes, rounded to nearest even.
inline IntLanes encode_int8(Lanes x) { return to_int(x); }

inline IntLanes encode_fp8(Lanes x) {
  const Lanes a = min(abs(x), set1(kLargestFp8));
  const IntLanes bits = as_int(a);
  // 20 mantissa bits go; the exponent's bias falls from 127 to 7
  const IntLanes odd = shift_right(bits, 20) & set1_int(1);
  const IntLanes normal = shift_right(bits + set1_int(0x7ffff) + odd, 20) + set1_int(-(120 << 3));
  // below 2^-6 codes are multiples of 2^-9, and more than what the formula above gives
  const IntLanes subnormal = to_int(min(a, set1(0.015625f)) * set1(512.0f));
  return max(normal, subnormal) | (shift_right(as_int(x), 24) & set1_int(0x80));
}

// Sixteen codes. fp8 comes out divided by 256: its bits are those of a half, whose exponent's bias is 15.
inline Lanes decode_int8(const char* p) { return to_float(load_int8(reinterpret_cast<const int8_t*>(p))); }

inline Lanes decode_fp8(const char* p) {
#if defined(__AVX2__)
  // sign in bits 15 and 14, exponent and mantissa from 13 on; bit 14 is cleared
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
#if defined(__AVX512F__)
  return {_mm512_cvtph_ps(half)};
#else
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
#endif
#elif defined(__ARM_FEATURE_DOTPROD)
  const int8x16_t codes = vld1q_s8(reinterpret_cast<const int8_t*>(p));
  const auto halves = [](int16x8_t wide) {
    return vreinterpretq_f16_s16(vandq_s16(vshlq_n_s16(wide, 7), vdupq_n_s16(static_cast<int16_t>(0xbfff))));
  };
  const float16x8_t low = halves(vmovl_s8(vget_low_s8(codes))), high = halves(vmovl_high_s8(codes));
  return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
          vcvt_high_f32_f16(high)};
#else
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    const auto code = static_cast<uint8_t>(p[i]);
    r.v[i] = from_f16(static_cast<uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 7));
  }
  return r;
#endif
}

}  // namespace ov
