// Sixty-four byte codes (a quad: 4 k values x 16 columns) and their dot product with int8 activations.
//
// Dot<Bits> sums code * activation over quads into sixteen int32 lanes, exactly: vpdpbusd on AVX-512, vpmaddubsw on
// AVX2 (whose int16 sums are widened before they can overflow; eight-bit codes go through the sign trick), SDOT or USDOT
// on aarch64, plain integers elsewhere. Knows nothing of: weights' layout, scales.
#pragma once

#include <utility>

#include "int_lanes.h"

#define OV_ALWAYS_INLINE inline __attribute__((always_inline))
// For lambdas of unrolled loops: one that is called keeps all accumulators in memory.
#define OV_INLINED __attribute__((always_inline))

namespace ov {

template <int N>
struct Index {
  static constexpr int value = N;
};

template <class F, int... I>
OV_ALWAYS_INLINE void call_each(F& f, std::integer_sequence<int, I...>) {
  (f(Index<I>{}), ...);
}

// f(Index<0>{}), f(Index<1>{}), ...: a loop that is unrolled whatever the optimiser thinks.
template <int N, class F>
OV_ALWAYS_INLINE void unroll(F&& f) {
  call_each(f, std::make_integer_sequence<int, N>{});
}

// Width of codes as Dot tells them apart: vpmaddubsw cares, and SDOT whether codes are signed numbers as they are. Fewer
// kinds of kernels compile faster.
constexpr int dot_bits(int bits) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
  return bits;
#elif defined(__ARM_FEATURE_DOTPROD) && !defined(__ARM_FEATURE_MATMUL_INT8)
  return bits < 8 ? 6 : 8;
#else
  return bits * 0 + 8;
#endif
}

#if defined(__AVX512VNNI__)

struct Bytes {
  __m512i v;
};
OV_ALWAYS_INLINE Bytes load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
OV_ALWAYS_INLINE void store_bytes(uint8_t* p, Bytes a) { _mm512_storeu_si512(p, a.v); }
OV_ALWAYS_INLINE Bytes low_nibbles(Bytes a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(0x0f))}; }
OV_ALWAYS_INLINE Bytes high_nibbles(Bytes a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(0x0f))};
}
// low | (the bits of `high` under mask << at, moved to 4 and up).
template <int Mask, int At>
OV_ALWAYS_INLINE Bytes add_high_bits(Bytes low, Bytes high) {
  __m512i moved = high.v;
  if constexpr (At < 4) moved = _mm512_slli_epi16(moved, 4 - At);
  if constexpr (At > 4) moved = _mm512_srli_epi16(moved, At - 4);
  return {_mm512_ternarylogic_epi32(low.v, moved, _mm512_set1_epi8(static_cast<char>(Mask << 4)), 0xf8)};  // a | b & c
}

template <int Bits>
struct Dot {
  __m512i sum;
  OV_ALWAYS_INLINE void start(const int32_t* offset) { sum = _mm512_set1_epi32(*offset); }
  template <int Quad>
  OV_ALWAYS_INLINE void step(Bytes w, const int8_t* a) {
    int32_t four;
    memcpy(&four, a, 4);
    sum = _mm512_dpbusd_epi32(sum, w.v, _mm512_set1_epi32(four));
  }
  OV_ALWAYS_INLINE Lanes finish() const { return {_mm512_cvtepi32_ps(sum)}; }
};

#elif defined(__AVX2__)

struct Bytes {
  __m256i lo, hi;
};
OV_ALWAYS_INLINE Bytes load_bytes(const uint8_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
OV_ALWAYS_INLINE void store_bytes(uint8_t* p, Bytes a) {
  __m256i* q = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}
OV_ALWAYS_INLINE Bytes low_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(0x0f);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
OV_ALWAYS_INLINE Bytes high_nibbles(Bytes a) {
  return low_nibbles({_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)});
}
template <int Mask, int At>
OV_ALWAYS_INLINE __m256i high_bits_half(__m256i high) {
  __m256i moved = high;
  if constexpr (At < 4) moved = _mm256_slli_epi16(moved, 4 - At);
  if constexpr (At > 4) moved = _mm256_srli_epi16(moved, At - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(Mask << 4)));
}
template <int Mask, int At>
OV_ALWAYS_INLINE Bytes add_high_bits(Bytes low, Bytes high) {
  return {_mm256_or_si256(low.lo, high_bits_half<Mask, At>(high.lo)),
          _mm256_or_si256(low.hi, high_bits_half<Mask, At>(high.hi))};
}

// Codes below 64: a pair sum is at most 2 * 63 * 127, so 8 (4 bits), 4 (5 bits) or 2 (6 bits) of them fit in int16.
template <int Bits>
struct Dot {
  static_assert(Bits <= 6);
  static constexpr int kQuadsPerWiden = Bits == 4 ? 8 : Bits == 5 ? 4 : 2;
  __m256i lo, hi, lo16, hi16;
  OV_ALWAYS_INLINE void start(const int32_t* offset) { lo = hi = _mm256_set1_epi32(*offset); }
  template <int Quad>
  OV_ALWAYS_INLINE void step(Bytes w, const int8_t* a) {
    int32_t four;
    memcpy(&four, a, 4);
    const __m256i act = _mm256_set1_epi32(four);
    const __m256i p = _mm256_maddubs_epi16(w.lo, act), q = _mm256_maddubs_epi16(w.hi, act);
    if constexpr (Quad % kQuadsPerWiden == 0) {
      lo16 = p;
      hi16 = q;
    } else {
      lo16 = _mm256_add_epi16(lo16, p);
      hi16 = _mm256_add_epi16(hi16, q);
    }
    // half groups end after quad 3
    if constexpr (Quad % kQuadsPerWiden == kQuadsPerWiden - 1) {
      const __m256i ones = _mm256_set1_epi16(1);
      lo = _mm256_add_epi32(lo, _mm256_madd_epi16(lo16, ones));
      hi = _mm256_add_epi32(hi, _mm256_madd_epi16(hi16, ones));
    }
  }
  OV_ALWAYS_INLINE Lanes finish() const { return {_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)}; }
};

// code - 128 as |w| * sign(a, w): |w| <= 128 and |a| <= 127, so a pair sum is at most 32512. The offset is already in.
template <>
struct Dot<8> {
  __m256i lo, hi;
  OV_ALWAYS_INLINE void start(const int32_t*) { lo = hi = _mm256_setzero_si256(); }
  static OV_ALWAYS_INLINE __m256i pairs(__m256i w, __m256i act) {
    const __m256i value = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    const __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(act, value));
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
  }
  template <int Quad>
  OV_ALWAYS_INLINE void step(Bytes w, const int8_t* a) {
    int32_t four;
    memcpy(&four, a, 4);
    const __m256i act = _mm256_set1_epi32(four);
    lo = _mm256_add_epi32(lo, pairs(w.lo, act));
    hi = _mm256_add_epi32(hi, pairs(w.hi, act));
  }
  OV_ALWAYS_INLINE Lanes finish() const { return {_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)}; }
};

#elif defined(__ARM_FEATURE_DOTPROD)

struct Bytes {
  uint8x16_t a, b, c, d;
};
OV_ALWAYS_INLINE Bytes load_bytes(const uint8_t* p) {
  return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}
OV_ALWAYS_INLINE void store_bytes(uint8_t* p, Bytes x) {
  vst1q_u8(p, x.a);
  vst1q_u8(p + 16, x.b);
  vst1q_u8(p + 32, x.c);
  vst1q_u8(p + 48, x.d);
}
OV_ALWAYS_INLINE Bytes low_nibbles(Bytes a) {
  const uint8x16_t mask = vdupq_n_u8(0x0f);
  return {vandq_u8(a.a, mask), vandq_u8(a.b, mask), vandq_u8(a.c, mask), vandq_u8(a.d, mask)};
}
OV_ALWAYS_INLINE Bytes high_nibbles(Bytes a) {
  return {vshrq_n_u8(a.a, 4), vshrq_n_u8(a.b, 4), vshrq_n_u8(a.c, 4), vshrq_n_u8(a.d, 4)};
}
template <int Mask, int At>
OV_ALWAYS_INLINE uint8x16_t add_high_bits_quarter(uint8x16_t low, uint8x16_t high) {
  uint8x16_t moved = high;
  if constexpr (At < 4) moved = vshlq_n_u8(moved, 4 - At);
  if constexpr (At > 4) moved = vshrq_n_u8(moved, At - 4);
  return vorrq_u8(low, vandq_u8(moved, vdupq_n_u8(Mask << 4)));
}
template <int Mask, int At>
OV_ALWAYS_INLINE Bytes add_high_bits(Bytes low, Bytes high) {
  return {add_high_bits_quarter<Mask, At>(low.a, high.a), add_high_bits_quarter<Mask, At>(low.b, high.b),
          add_high_bits_quarter<Mask, At>(low.c, high.c), add_high_bits_quarter<Mask, At>(low.d, high.d)};
}

// Codes of eight bits are value + 128. USDOT takes them as they are; SDOT takes the value, and then the offset is in.
template <int Bits>
struct Dot {
  static constexpr bool kIsValue = Bits == dot_bits(8) && dot_bits(8) != dot_bits(4);
  int32x4_t a, b, c, d;
  OV_ALWAYS_INLINE void start(const int32_t* offset) { a = b = c = d = vdupq_n_s32(kIsValue ? 0 : *offset); }
  template <int Lane>
  static OV_ALWAYS_INLINE int32x4_t four(int32x4_t sum, uint8x16_t w, int8x16_t act) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return vusdotq_laneq_s32(sum, w, act, Lane);
#else
    if constexpr (kIsValue) w = veorq_u8(w, vdupq_n_u8(0x80));
    return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w), act, Lane);
#endif
  }
  // Activations of four quads are one register, read again from the first-level cache at most.
  template <int Quad>
  OV_ALWAYS_INLINE void step(Bytes w, const int8_t* quad) {
    constexpr int kLane = Quad % 4;
    const int8x16_t act = vld1q_s8(quad - 4 * kLane);
    a = four<kLane>(a, w.a, act);
    b = four<kLane>(b, w.b, act);
    c = four<kLane>(c, w.c, act);
    d = four<kLane>(d, w.d, act);
  }
  OV_ALWAYS_INLINE Lanes finish() const {
    return {vcvtq_f32_s32(a), vcvtq_f32_s32(b), vcvtq_f32_s32(c), vcvtq_f32_s32(d)};
  }
};

#else

struct Bytes {
  uint8_t v[64];
};
inline Bytes load_bytes(const uint8_t* p) {
  Bytes r;
  memcpy(r.v, p, 64);
  return r;
}
inline void store_bytes(uint8_t* p, Bytes a) { memcpy(p, a.v, 64); }
inline Bytes low_nibbles(Bytes a) {
  for (int i = 0; i < 64; ++i) a.v[i] &= 0x0f;
  return a;
}
inline Bytes high_nibbles(Bytes a) {
  for (int i = 0; i < 64; ++i) a.v[i] >>= 4;
  return a;
}
template <int Mask, int At>
inline Bytes add_high_bits(Bytes low, Bytes high) {
  for (int i = 0; i < 64; ++i) low.v[i] = static_cast<uint8_t>(low.v[i] | (high.v[i] >> At & Mask) << 4);
  return low;
}

template <int Bits>
struct Dot {
  int32_t sum[kLanes];
  void start(const int32_t* offset) {
    for (int i = 0; i < kLanes; ++i) sum[i] = *offset;
  }
  template <int Quad>
  void step(const Bytes& w, const int8_t* a) {
    for (int i = 0; i < kLanes; ++i)
      sum[i] += w.v[4 * i] * a[0] + w.v[4 * i + 1] * a[1] + w.v[4 * i + 2] * a[2] + w.v[4 * i + 3] * a[3];
  }
  Lanes finish() const {
    Lanes r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(sum[i]);
    return r;
  }
};

#endif

}  // namespace ov
