// Sixteen f32 lanes in four NEON registers: lanes.h for the levels of aarch64 that have SDOT.
//
// Part of lanes.h, which says what the functions promise. Bits are those of the same operations on x86 with FMA, except
// dot_pairs where the level has BFDOT. Knows nothing of: tensors, threads.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace ov {

struct Lanes {
  float32x4_t a, b, c, d;
};
struct Mask {
  uint32x4_t a, b, c, d;
};
struct Pairs {
  uint32x4_t a, b, c, d;
};

// f of each register.
template <class R, class F, class... X>
inline R each(F&& f, const X&... x) {
  return {f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
}

inline Lanes set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline Lanes load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline void store(float* p, Lanes x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
inline Lanes load_part(const float* p, int n) {
  if (n >= 16) return load(p);
  float t[16] = {};
  memcpy(t, p, static_cast<size_t>(n) * sizeof(float));
  return load(t);
}
inline void store_part(float* p, Lanes x, int n) {
  if (n >= 16) return store(p, x);
  float t[16];
  store(t, x);
  memcpy(p, t, static_cast<size_t>(n) * sizeof(float));
}

#define OV_NEON_EACH(R, expression, ...) return each<R>([](auto x, auto y) { return expression; }, __VA_ARGS__)

inline Lanes operator+(Lanes a, Lanes b) { OV_NEON_EACH(Lanes, vaddq_f32(x, y), a, b); }
inline Lanes operator-(Lanes a, Lanes b) { OV_NEON_EACH(Lanes, vsubq_f32(x, y), a, b); }
inline Lanes operator*(Lanes a, Lanes b) { OV_NEON_EACH(Lanes, vmulq_f32(x, y), a, b); }
inline Lanes operator/(Lanes a, Lanes b) { OV_NEON_EACH(Lanes, vdivq_f32(x, y), a, b); }
// FMAX and FMIN would return the NaN, whichever operand it is
inline Lanes max(Lanes a, Lanes b) { OV_NEON_EACH(Lanes, vbslq_f32(vcgtq_f32(x, y), x, y), a, b); }
inline Lanes min(Lanes a, Lanes b) { OV_NEON_EACH(Lanes, vbslq_f32(vcltq_f32(x, y), x, y), a, b); }
inline Mask less(Lanes a, Lanes b) { OV_NEON_EACH(Mask, vcltq_f32(x, y), a, b); }
inline Mask less_equal(Lanes a, Lanes b) { OV_NEON_EACH(Mask, vcleq_f32(x, y), a, b); }
inline Lanes copy_sign(Lanes magnitude, Lanes sign) {
  OV_NEON_EACH(Lanes, vbslq_f32(vdupq_n_u32(0x80000000u), y, x), magnitude, sign);
}

#undef OV_NEON_EACH

inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each<Lanes>([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
}
inline Lanes abs(Lanes a) {
  return each<Lanes>([](auto x) { return vabsq_f32(x); }, a);
}
inline Lanes select(Mask m, Lanes yes, Lanes no) {
  return each<Lanes>([](auto x, auto y, auto z) { return vbslq_f32(x, y, z); }, m, yes, no);
}
inline Lanes round_nearest(Lanes a) {
  return each<Lanes>([](auto x) { return vrndnq_f32(x); }, a);
}

inline uint32_t mask_bits(Mask m) {
  const auto halves = [](uint32x4_t x, uint32x4_t y) {
    return vuzp1q_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y));
  };
  const uint8x16_t bytes = vuzp1q_u8(vreinterpretq_u8_u16(halves(m.a, m.b)), vreinterpretq_u8_u16(halves(m.c, m.d)));
  const uint8x16_t lane = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  const uint8x16_t bits = vandq_u8(bytes, lane);
  return uint32_t{vaddv_u8(vget_low_u8(bits))} | uint32_t{vaddv_u8(vget_high_u8(bits))} << 8;
}
inline Mask mask_from_bits(uint32_t bits) {
  static constexpr uint32_t kLane[16] = {1 << 0, 1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                                         1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
  const uint32x4_t all = vdupq_n_u32(bits);
  return {vtstq_u32(all, vld1q_u32(kLane)), vtstq_u32(all, vld1q_u32(kLane + 4)), vtstq_u32(all, vld1q_u32(kLane + 8)),
          vtstq_u32(all, vld1q_u32(kLane + 12))};
}
inline Lanes times_power_of_2(Lanes a, Lanes n) {
  return each<Lanes>(
      [](float32x4_t x, float32x4_t power) {
        // in two factors: 2^128 is no f32
        const int32x4_t whole = vcvtnq_s32_f32(power), half = vshrq_n_s32(whole, 1), one = vdupq_n_s32(127);
        const int32x4_t first = vshlq_n_s32(vaddq_s32(half, one), 23);
        const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), one), 23);
        return vmulq_f32(vmulq_f32(x, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
      },
      a, n);
}

inline Lanes load_bf16(const uint16_t* p) {
  const auto four = [p](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + i), 16)); };
  return {four(0), four(4), four(8), four(12)};
}
inline Pairs load_pairs(const uint16_t* p) {
  const auto four = [p](int i) { return vreinterpretq_u32_u16(vld1q_u16(p + i)); };
  return {four(0), four(8), four(16), four(24)};
}
inline Pairs load_pairs_part(const uint16_t* p, int n) {
  uint16_t t[32] = {};
  memcpy(t, p, static_cast<size_t>(n) * 4);
  return load_pairs(t);
}
inline Pairs set1_pair(uint32_t pair) {
  const uint32x4_t v = vdupq_n_u32(pair);
  return {v, v, v, v};
}
// With BFDOT both products are rounded to odd and added before acc, denormals are zero.
inline Lanes dot_pairs(Lanes acc, Pairs a, Pairs b) {
  return each<Lanes>(
      [](float32x4_t sum, uint32x4_t x, uint32x4_t y) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
        return vbfdotq_f32(sum, vreinterpretq_bf16_u32(x), vreinterpretq_bf16_u32(y));
#else
        const uint32x4_t high = vdupq_n_u32(0xffff0000u);
        const auto upper = [high](uint32x4_t w) { return vreinterpretq_f32_u32(vandq_u32(w, high)); };
        const auto lower = [](uint32x4_t w) { return vreinterpretq_f32_u32(vshlq_n_u32(w, 16)); };
        return vfmaq_f32(vfmaq_f32(sum, upper(x), upper(y)), lower(x), lower(y));
#endif
      },
      acc, a, b);
}

inline float sum_lanes(Lanes x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

inline float max_lanes(Lanes x) {
  const auto larger = [](float32x4_t p, float32x4_t q) { return vbslq_f32(vcgtq_f32(p, q), p, q); };
  return vmaxvq_f32(larger(larger(x.a, x.c), larger(x.b, x.d)));
}

inline Lanes round_bf16(Lanes a) {
  return each<Lanes>(
      [](float32x4_t x) {
        const uint32x4_t u = vreinterpretq_u32_f32(x), high = vdupq_n_u32(0xffff0000u);
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
        const uint32x4_t number = vandq_u32(vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff))), high);
        const uint32x4_t quiet = vorrq_u32(vandq_u32(u, high), vdupq_n_u32(0x400000));
        return vreinterpretq_f32_u32(vbslq_u32(vceqq_f32(x, x), number, quiet));
      },
      a);
}

inline uint16x8_t eight_bf16(float32x4_t x, float32x4_t y) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(x), y));
#else
  const Lanes r = round_bf16({x, y, x, y});
  return vuzp2q_u16(vreinterpretq_u16_f32(r.a), vreinterpretq_u16_f32(r.b));
#endif
}

inline void store_bf16(uint16_t* p, Lanes a, int n = 16) {
  uint16_t t[16];
  uint16_t* const at = n == 16 ? p : t;
  vst1q_u16(at, eight_bf16(a.a, a.b));
  vst1q_u16(at + 8, eight_bf16(a.c, a.d));
  if (n < 16) memcpy(p, t, static_cast<size_t>(n) * sizeof(uint16_t));
}

inline void store_bf16_apart(uint16_t* p, Lanes a, int n) {
  uint16_t values[16];
  store_bf16(values, a);
  for (int i = 0; i < n; ++i) p[2 * i] = values[i];
}

inline Lanes store_rounded_bf16(uint16_t* p, Lanes a) {
  store_bf16(p, a);
  return load_bf16(p);
}

}  // namespace ov
