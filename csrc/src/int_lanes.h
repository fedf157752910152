// Sixteen int32 lanes beside lanes.h, and conversions between element types.
//
// The same arithmetic at every level (integers are exact; conversions round to nearest even). Knows nothing of:
// tensors, threads.
#pragma once

#include "lanes.h"

namespace ov {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Exact, denormals included: a denormal half is its 10-bit integer times 2^-24.
inline float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return bits_float(sign | ((magnitude << 13) + 0x38000000u));
  return bits_float(sign | float_bits(static_cast<float>(magnitude) * 5.9604644775390625e-8f));
}

#if defined(__AVX512F__)

struct IntLanes {
  __m512i v;
};

inline IntLanes set1_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline IntLanes load_int(const void* p) { return {_mm512_loadu_si512(p)}; }
inline void store_int(void* p, IntLanes a) { _mm512_storeu_si512(p, a.v); }
inline IntLanes load_int8(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline IntLanes operator+(IntLanes a, IntLanes b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline IntLanes operator&(IntLanes a, IntLanes b) { return {_mm512_and_si512(a.v, b.v)}; }
inline IntLanes operator|(IntLanes a, IntLanes b) { return {_mm512_or_si512(a.v, b.v)}; }
inline IntLanes max(IntLanes a, IntLanes b) { return {_mm512_max_epi32(a.v, b.v)}; }
inline IntLanes shift_left(IntLanes a, int n) { return {_mm512_slli_epi32(a.v, static_cast<unsigned>(n))}; }
// Logical.
inline IntLanes shift_right(IntLanes a, int n) { return {_mm512_srli_epi32(a.v, static_cast<unsigned>(n))}; }
inline Lanes to_float(IntLanes a) { return {_mm512_cvtepi32_ps(a.v)}; }
// To nearest even; NaN and values out of range give INT32_MIN.
inline IntLanes to_int(Lanes a) { return {_mm512_cvtps_epi32(a.v)}; }
inline IntLanes as_int(Lanes a) { return {_mm512_castps_si512(a.v)}; }
inline Lanes load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}

#elif defined(__AVX2__)

struct IntLanes {
  __m256i lo, hi;
};

inline IntLanes set1_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline IntLanes load_int(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void store_int(void* p, IntLanes a) {
  __m256i* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}
inline IntLanes load_int8(const int8_t* p) {
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(b), _mm256_cvtepi8_epi32(_mm_srli_si128(b, 8))};
}
inline IntLanes operator+(IntLanes a, IntLanes b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline IntLanes operator&(IntLanes a, IntLanes b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline IntLanes operator|(IntLanes a, IntLanes b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
inline IntLanes max(IntLanes a, IntLanes b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
inline IntLanes shift_left(IntLanes a, int n) { return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)}; }
inline IntLanes shift_right(IntLanes a, int n) { return {_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n)}; }
inline Lanes to_float(IntLanes a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline IntLanes to_int(Lanes a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline IntLanes as_int(Lanes a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
inline Lanes load_f16(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}

#elif defined(__ARM_FEATURE_DOTPROD)

struct IntLanes {
  int32x4_t a, b, c, d;
};

inline IntLanes set1_int(int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
inline IntLanes load_int(const void* p) {
  const int32_t* q = static_cast<const int32_t*>(p);
  return {vld1q_s32(q), vld1q_s32(q + 4), vld1q_s32(q + 8), vld1q_s32(q + 12)};
}
inline void store_int(void* p, IntLanes x) {
  int32_t* q = static_cast<int32_t*>(p);
  vst1q_s32(q, x.a);
  vst1q_s32(q + 4, x.b);
  vst1q_s32(q + 8, x.c);
  vst1q_s32(q + 12, x.d);
}
inline IntLanes load_int8(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}
inline IntLanes operator+(IntLanes a, IntLanes b) {
  return each<IntLanes>([](auto x, auto y) { return vaddq_s32(x, y); }, a, b);
}
inline IntLanes operator&(IntLanes a, IntLanes b) {
  return each<IntLanes>([](auto x, auto y) { return vandq_s32(x, y); }, a, b);
}
inline IntLanes operator|(IntLanes a, IntLanes b) {
  return each<IntLanes>([](auto x, auto y) { return vorrq_s32(x, y); }, a, b);
}
inline IntLanes max(IntLanes a, IntLanes b) {
  return each<IntLanes>([](auto x, auto y) { return vmaxq_s32(x, y); }, a, b);
}
inline IntLanes shift_left(IntLanes a, int n) {
  const int32x4_t by = vdupq_n_s32(n);
  return each<IntLanes>([by](auto x) { return vshlq_s32(x, by); }, a);
}
inline IntLanes shift_right(IntLanes a, int n) {
  const int32x4_t by = vdupq_n_s32(-n);
  return each<IntLanes>([by](auto x) { return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), by)); }, a);
}
inline Lanes to_float(IntLanes a) {
  return each<Lanes>([](auto x) { return vcvtq_f32_s32(x); }, a);
}
inline IntLanes to_int(Lanes a) {
  // the conversion saturates and makes NaN zero
  const auto convert = [](float32x4_t x) {
    return vbslq_s32(vcaltq_f32(x, vdupq_n_f32(2147483648.0f)), vcvtnq_s32_f32(x), vdupq_n_s32(INT32_MIN));
  };
  return each<IntLanes>(convert, a);
}
inline IntLanes as_int(Lanes a) {
  return each<IntLanes>([](auto x) { return vreinterpretq_s32_f32(x); }, a);
}
inline Lanes load_f16(const uint16_t* p) {
  const auto four = [p](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + i))); };
  return {four(0), four(4), four(8), four(12)};
}

#else

struct IntLanes {
  int32_t v[kLanes];
};

#define OV_EACH_INT(expression)                           \
  IntLanes r;                                             \
  for (int i = 0; i < kLanes; ++i) r.v[i] = (expression); \
  return r
#define OV_EACH_FLOAT(expression)                         \
  Lanes r;                                                \
  for (int i = 0; i < kLanes; ++i) r.v[i] = (expression); \
  return r

inline IntLanes set1_int(int32_t x) { OV_EACH_INT(x); }
inline IntLanes load_int(const void* p) {
  IntLanes r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
inline void store_int(void* p, IntLanes a) { memcpy(p, a.v, sizeof a.v); }
inline IntLanes load_int8(const int8_t* p) { OV_EACH_INT(p[i]); }
inline IntLanes operator+(IntLanes a, IntLanes b) { OV_EACH_INT(a.v[i] + b.v[i]); }
inline IntLanes operator&(IntLanes a, IntLanes b) { OV_EACH_INT(a.v[i] & b.v[i]); }
inline IntLanes operator|(IntLanes a, IntLanes b) { OV_EACH_INT(a.v[i] | b.v[i]); }
inline IntLanes max(IntLanes a, IntLanes b) { OV_EACH_INT(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline IntLanes shift_left(IntLanes a, int n) { OV_EACH_INT(static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << n)); }
inline IntLanes shift_right(IntLanes a, int n) {
  OV_EACH_INT(static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> n));
}
inline Lanes to_float(IntLanes a) { OV_EACH_FLOAT(static_cast<float>(a.v[i])); }
inline IntLanes to_int(Lanes a) {
  // rint rounds to nearest even in the default rounding mode; the comparison is false for NaN
  OV_EACH_INT(std::fabs(a.v[i]) < 2147483648.0f ? static_cast<int32_t>(std::rint(a.v[i])) : INT32_MIN);
}
inline IntLanes as_int(Lanes a) { OV_EACH_INT(static_cast<int32_t>(float_bits(a.v[i]))); }
inline Lanes load_f16(const uint16_t* p) { OV_EACH_FLOAT(from_f16(p[i])); }

#undef OV_EACH_INT
#undef OV_EACH_FLOAT

#endif

inline int32_t max_lanes(IntLanes a) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(a.v), _mm512_extracti64x4_epi64(a.v, 1));
#else
  const __m256i half = _mm256_max_epi32(a.lo, a.hi);
#endif
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
#elif defined(__ARM_FEATURE_DOTPROD)
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.a, a.b), vmaxq_s32(a.c, a.d)));
#else
  int32_t m = a.v[0];
  for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
#endif
}

// The low bytes of the first n lanes.
inline void store_low_bytes(void* p, IntLanes a, int n) {
#if defined(__AVX512F__)
  _mm512_mask_cvtepi32_storeu_epi8(p, first_lanes(n), a.v);
#else
  int32_t t[kLanes];
  store_int(t, a);
  for (int i = 0; i < n; ++i) static_cast<int8_t*>(p)[i] = static_cast<int8_t>(t[i]);
#endif
}

// Stores 32 values as int8, saturating, and the sums of either half.
inline void store_group(int8_t* q, IntLanes a, IntLanes b, int32_t* sums) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256i bytes = _mm256_set_m128i(_mm512_cvtsepi32_epi8(b.v), _mm512_cvtsepi32_epi8(a.v));
#else
  // packing works within 128-bit halves; the permutation puts dwords back in order
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a.lo, a.hi), _mm256_packs_epi32(b.lo, b.hi));
  const __m256i bytes = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  // as unsigned bytes 128 higher, eight at a time; from the register, as a load would wait for the store
  const __m256i high = _mm256_xor_si256(bytes, _mm256_set1_epi8(static_cast<char>(0x80)));
  const __m256i eights = _mm256_sad_epu8(high, _mm256_setzero_si256());
  const __m256i pairs = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
  sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(pairs)) - 16 * 128;
  sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(pairs, 1)) - 16 * 128;
#elif defined(__ARM_FEATURE_DOTPROD)
  const auto half = [](int8_t* to, IntLanes x) {
    const int16x8_t low = vqmovn_high_s32(vqmovn_s32(x.a), x.b), high = vqmovn_high_s32(vqmovn_s32(x.c), x.d);
    const int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(low), high);
    vst1q_s8(to, bytes);
    return int32_t{vaddlvq_s8(bytes)};
  };
  sums[0] = half(q, a);
  sums[1] = half(q + kLanes, b);
#else
  sums[0] = sums[1] = 0;
  for (int i = 0; i < kLanes; ++i) {
    q[i] = static_cast<int8_t>(a.v[i] < -128 ? -128 : a.v[i] > 127 ? 127 : a.v[i]);
    q[kLanes + i] = static_cast<int8_t>(b.v[i] < -128 ? -128 : b.v[i] > 127 ? 127 : b.v[i]);
    sums[0] += q[i];
    sums[1] += q[kLanes + i];
  }
#endif
}

}  // namespace ov
