// Sixteen f32 lanes at every ISA level: one zmm register, two ymm, four NEON (lanes_neon.h), or a plain array.
//
// Kernels written on Lanes have one fixed lane and reduction order, so a result depends on nothing but its inputs.
// fma() is fused wherever the level has FMA (AVX2 and up, NEON) and a rounded multiply and add on scalar. Comparisons with
// NaN are false; max(a, b) and min(a, b) return b when either is NaN. Knows nothing of: tensors, threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ov {

inline constexpr int kLanes = 16;

inline uint32_t float_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

inline float bits_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// bf16 of x, to nearest even; NaN stays NaN.
inline uint16_t to_bf16(float x) {
  uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  u += 0x7fffu + ((u >> 16) & 1u);
  return static_cast<uint16_t>(u >> 16);
}

inline float from_bf16(uint16_t x) { return bits_float(static_cast<uint32_t>(x) << 16); }

#if defined(__AVX512F__)

struct Lanes {
  __m512 v;
};
struct Mask {
  __mmask16 v;
};
// Sixteen pairs of bf16: pair i in the low and high half of word i.
struct Pairs {
  __m512i v;
};

inline Lanes set1(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
// First n lanes (0 <= n <= 16), zero elsewhere.
inline Lanes load_part(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void store_part(float* p, Lanes a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Lanes abs(Lanes a) { return {_mm512_abs_ps(a.v)}; }
inline Mask less(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask less_equal(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline uint32_t mask_bits(Mask m) { return m.v; }
inline Mask mask_from_bits(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }
inline Lanes select(Mask m, Lanes yes, Lanes no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
inline Lanes round_nearest(Lanes a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^floor(n) for any n, on other levels for integral ones in [-126, 128], and a near 1; overflows to infinity, NaN in
// both stays NaN.
inline Lanes times_power_of_2(Lanes a, Lanes n) { return {_mm512_scalef_ps(a.v, n.v)}; }
inline Lanes copy_sign(Lanes magnitude, Lanes sign) {
  const __m512i bit = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return {_mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign.v), _mm512_castps_si512(magnitude.v), 0xca))};
}
inline Lanes load_bf16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
inline Pairs load_pairs(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
// First n words, zero elsewhere.
inline Pairs load_pairs_part(const uint16_t* p, int n) { return {_mm512_maskz_loadu_epi32(first_lanes(n), p)}; }
inline Pairs set1_pair(uint32_t pair) { return {_mm512_set1_epi32(static_cast<int>(pair))}; }
// acc + high * high + low * low per word. With AVX512_BF16 the hardware's order and rounding; elsewhere high first,
// each fused where the level has FMA.
inline Lanes dot_pairs(Lanes acc, Pairs a, Pairs b) {
#if defined(__AVX512BF16__)
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)};
#else
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512 a0 = _mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16));
  const __m512 b0 = _mm512_castsi512_ps(_mm512_slli_epi32(b.v, 16));
  const __m512 a1 = _mm512_castsi512_ps(_mm512_and_si512(a.v, high));
  const __m512 b1 = _mm512_castsi512_ps(_mm512_and_si512(b.v, high));
  return {_mm512_fmadd_ps(a0, b0, _mm512_fmadd_ps(a1, b1, acc.v))};
#endif
}

#elif defined(__AVX2__)

struct Lanes {
  __m256 lo, hi;
};
struct Mask {
  __m256 lo, hi;
};
struct Pairs {
  __m256i lo, hi;
};

inline Lanes set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline Lanes load_part(const float* p, int n) {
  if (n >= kLanes) return load(p);
  alignas(32) float t[kLanes] = {};
  memcpy(t, p, static_cast<size_t>(n) * sizeof(float));
  return load(t);
}
inline void store_part(float* p, Lanes a, int n) {
  if (n >= kLanes) return store(p, a);
  alignas(32) float t[kLanes];
  store(t, a);
  memcpy(p, t, static_cast<size_t>(n) * sizeof(float));
}
inline Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Lanes abs(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline Mask less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask less_equal(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ)};
}
inline uint32_t mask_bits(Mask m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(m.hi)) << 8;
}
inline Mask mask_from_bits(uint32_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i lo = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits & 0xff)), lane);
  const __m256i hi = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>((bits >> 8) & 0xff)), lane);
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(lo, lane)), _mm256_castsi256_ps(_mm256_cmpeq_epi32(hi, lane))};
}
inline Lanes select(Mask m, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
inline Lanes round_nearest(Lanes a) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, mode), _mm256_round_ps(a.hi, mode)};
}
inline __m256 times_power_of_2_half(__m256 a, __m256 n) {
  // in two factors: 2^128 is no f32
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), one = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, one), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), one), 23);
  return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
inline Lanes times_power_of_2(Lanes a, Lanes n) {
  return {times_power_of_2_half(a.lo, n.lo), times_power_of_2_half(a.hi, n.hi)};
}
inline Lanes copy_sign(Lanes magnitude, Lanes sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.lo), _mm256_and_ps(bit, sign.lo)),
          _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.hi), _mm256_and_ps(bit, sign.hi))};
}
inline __m256 load_bf16_half(const uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline Lanes load_bf16(const uint16_t* p) { return {load_bf16_half(p), load_bf16_half(p + 8)}; }
inline Pairs load_pairs(const uint16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
inline Pairs load_pairs_part(const uint16_t* p, int n) {
  uint16_t t[2 * kLanes] = {};
  memcpy(t, p, static_cast<size_t>(n) * 4);
  return load_pairs(t);
}
inline Pairs set1_pair(uint32_t pair) {
  return {_mm256_set1_epi32(static_cast<int>(pair)), _mm256_set1_epi32(static_cast<int>(pair))};
}
inline __m256 dot_pairs_half(__m256 acc, __m256i a, __m256i b) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  const __m256 a0 = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
  const __m256 b0 = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
  const __m256 a1 = _mm256_castsi256_ps(_mm256_and_si256(a, high));
  const __m256 b1 = _mm256_castsi256_ps(_mm256_and_si256(b, high));
  return _mm256_fmadd_ps(a0, b0, _mm256_fmadd_ps(a1, b1, acc));
}
inline Lanes dot_pairs(Lanes acc, Pairs a, Pairs b) {
  return {dot_pairs_half(acc.lo, a.lo, b.lo), dot_pairs_half(acc.hi, a.hi, b.hi)};
}

#elif defined(__ARM_FEATURE_DOTPROD)
}  // namespace ov
#include "lanes_neon.h"
namespace ov {
#else

struct Lanes {
  float v[kLanes];
};
struct Mask {
  uint32_t bits;
};
struct Pairs {
  uint32_t v[kLanes];
};

#define OV_EACH_LANE(expression)                          \
  Lanes r;                                                \
  for (int i = 0; i < kLanes; ++i) r.v[i] = (expression); \
  return r

inline Lanes set1(float x) { OV_EACH_LANE(x); }
inline Lanes load(const float* p) { OV_EACH_LANE(p[i]); }
inline void store(float* p, Lanes a) { memcpy(p, a.v, sizeof a.v); }
inline Lanes load_part(const float* p, int n) { OV_EACH_LANE(i < n ? p[i] : 0.0f); }
inline void store_part(float* p, Lanes a, int n) { memcpy(p, a.v, static_cast<size_t>(n) * sizeof(float)); }
inline Lanes operator+(Lanes a, Lanes b) { OV_EACH_LANE(a.v[i] + b.v[i]); }
inline Lanes operator-(Lanes a, Lanes b) { OV_EACH_LANE(a.v[i] - b.v[i]); }
inline Lanes operator*(Lanes a, Lanes b) { OV_EACH_LANE(a.v[i] * b.v[i]); }
inline Lanes operator/(Lanes a, Lanes b) { OV_EACH_LANE(a.v[i] / b.v[i]); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { OV_EACH_LANE(a.v[i] * b.v[i] + c.v[i]); }
inline Lanes max(Lanes a, Lanes b) { OV_EACH_LANE(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline Lanes min(Lanes a, Lanes b) { OV_EACH_LANE(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline Lanes abs(Lanes a) { OV_EACH_LANE(bits_float(float_bits(a.v[i]) & 0x7fffffffu)); }
inline Mask less(Lanes a, Lanes b) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(a.v[i] < b.v[i]) << i;
  return {bits};
}
inline Mask less_equal(Lanes a, Lanes b) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(a.v[i] <= b.v[i]) << i;
  return {bits};
}
inline uint32_t mask_bits(Mask m) { return m.bits; }
inline Mask mask_from_bits(uint32_t bits) { return {bits}; }
inline Lanes select(Mask m, Lanes yes, Lanes no) { OV_EACH_LANE((m.bits >> i & 1u) ? yes.v[i] : no.v[i]); }
// Adding and subtracting 1.5 * 2^23 rounds to an integer; valid for |a| < 2^22, which is all that kernels ask for.
inline Lanes round_nearest(Lanes a) { OV_EACH_LANE((a.v[i] + 12582912.0f) - 12582912.0f); }
inline Lanes times_power_of_2(Lanes a, Lanes n) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    const float bounded = n.v[i] > -127.0f ? n.v[i] : -127.0f;  // NaN too
    const int32_t whole = static_cast<int32_t>(bounded), half = whole >> 1;
    r.v[i] = a.v[i] * bits_float(static_cast<uint32_t>(half + 127) << 23) *
             bits_float(static_cast<uint32_t>(whole - half + 127) << 23);
  }
  return r;
}
inline Lanes copy_sign(Lanes magnitude, Lanes sign) {
  OV_EACH_LANE(bits_float((float_bits(magnitude.v[i]) & 0x7fffffffu) | (float_bits(sign.v[i]) & 0x80000000u)));
}
inline Lanes load_bf16(const uint16_t* p) { OV_EACH_LANE(from_bf16(p[i])); }
inline Pairs load_pairs(const uint16_t* p) {
  Pairs r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
inline Pairs load_pairs_part(const uint16_t* p, int n) {
  uint16_t t[2 * kLanes] = {};
  memcpy(t, p, static_cast<size_t>(n) * 4);
  return load_pairs(t);
}
inline Pairs set1_pair(uint32_t pair) {
  Pairs r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = pair;
  return r;
}
inline Lanes dot_pairs(Lanes acc, Pairs a, Pairs b) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) {
    const float high = bits_float(a.v[i] & 0xffff0000u) * bits_float(b.v[i] & 0xffff0000u) + acc.v[i];
    r.v[i] = bits_float(a.v[i] << 16) * bits_float(b.v[i] << 16) + high;
  }
  return r;
}

#undef OV_EACH_LANE

#endif

#if !defined(__ARM_FEATURE_DOTPROD)

// Sum of the lanes in one fixed tree: 8, 4, 2, 1 apart.
inline float sum_lanes(Lanes a) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
#endif
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  float t[kLanes];
  store(t, a);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) t[i] += t[i + half];
  return t[0];
#endif
}

inline float max_lanes(Lanes a) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
#endif
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
  float m = a.v[0];
  for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
#endif
}

// Each lane rounded to bf16 (to nearest even, NaN kept): the same bits at every level.
inline Lanes round_bf16(Lanes a) {
#if defined(__AVX512F__)
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i r = _mm512_and_si512(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), high);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return {_mm512_castsi512_ps(_mm512_mask_or_epi32(r, nan, _mm512_and_si512(u, high), _mm512_set1_epi32(0x400000)))};
#elif defined(__AVX2__)
  const auto half = [](__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    const __m256i r = _mm256_and_si256(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), high);
    const __m256i quiet = _mm256_or_si256(_mm256_and_si256(u, high), _mm256_set1_epi32(0x400000));
    return _mm256_blendv_ps(_mm256_castsi256_ps(r), _mm256_castsi256_ps(quiet), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  };
  return {half(a.lo), half(a.hi)};
#else
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = from_bf16(to_bf16(a.v[i]));
  return r;
#endif
}

// First n lanes (0 <= n <= 16) of a, rounded to bf16.
inline void store_bf16(uint16_t* p, Lanes a, int n = kLanes) {
  const Lanes r = round_bf16(a);
#if defined(__AVX512F__)
  _mm512_mask_cvtepi32_storeu_epi16(p, first_lanes(n), _mm512_srli_epi32(_mm512_castps_si512(r.v), 16));
#elif defined(__AVX2__)
  const __m256i lo = _mm256_srli_epi32(_mm256_castps_si256(r.lo), 16);
  const __m256i hi = _mm256_srli_epi32(_mm256_castps_si256(r.hi), 16);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
  if (n == kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
  } else {
    alignas(32) uint16_t t[kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(t), words);
    memcpy(p, t, static_cast<size_t>(n) * sizeof(uint16_t));
  }
#else
  for (int i = 0; i < n; ++i) p[i] = static_cast<uint16_t>(float_bits(r.v[i]) >> 16);
#endif
}

// Lane i of the first n, rounded to bf16, to p[2 i]; what lies between is another thread's to write.
inline void store_bf16_apart(uint16_t* p, Lanes a, int n) {
#if defined(__AVX512F__)
  const __mmask32 even = 0x55555555u & static_cast<__mmask32>((uint64_t{1} << 2 * n) - 1);
  _mm512_mask_storeu_epi16(p, even, _mm512_srli_epi32(_mm512_castps_si512(round_bf16(a).v), 16));
#else
  alignas(64) uint16_t values[kLanes];
  store_bf16(values, a);
  for (int i = 0; i < n; ++i) p[2 * i] = values[i];
#endif
}

// Stores a rounded to bf16 and returns the rounded values. Where hardware rounds, denormals become 0.
inline Lanes store_rounded_bf16(uint16_t* p, Lanes a) {
#if defined(__AVX512BF16__)
  const __m256i h = (__m256i)_mm512_cvtneps_pbh(a.v);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
#else
  const Lanes r = round_bf16(a);
  store_bf16(p, r);
  return r;
#endif
}

#endif

// Thirty-two values rounded to bf16.
inline void store_bf16(uint16_t* p, Lanes a, Lanes b) {
#if defined(__AVX512BF16__)
  // hardware makes zeros of subnormal numbers, which hardly ever come
  constexpr int kSubnormal = 0x20;
  if (!(_mm512_fpclass_ps_mask(a.v, kSubnormal) | _mm512_fpclass_ps_mask(b.v, kSubnormal))) [[likely]] {
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v));
    return;
  }
#endif
  store_bf16(p, a);
  store_bf16(p + kLanes, b);
}

}  // namespace ov
