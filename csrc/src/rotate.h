// The rotated form of activations: sums and differences of 64 values (a Walsh-Hadamard transform), then int8 in groups
// of 64. Spread over its group no value stands out, so one scale for 64 rounds as finely as one for 32 without it.
//
// Present on AVX-512 levels without tile registers, where it is how prompts are read. Knows nothing of: rows, weights.
#pragma once

#include <cstdint>
#include <cstring>

#include "byte_lanes.h"
#include "int_lanes.h"

#if defined(__AVX512VNNI__) && !defined(__AMX_TILE__)
#define OV_ROTATES_PROMPTS 1
#endif

namespace ov {

inline constexpr int64_t kRotatedGroup = 64;  // values that are transformed together, with one scale

// A prepared row of type OV_A8R of `cols` columns, K = cols rounded up to 64, padding zero, G = K / 64:
//   int8 q[K]       round_to_even(y * (127 / amax)) of the group, y its transform
//   f32 scale[G]    amax / 127
//   int32 start[G]  -128 * (sum of the group's q): what a sum of products by code + 128 begins with
struct RotatedLayout {
  int64_t k, groups, scale, start, bytes;
};
inline RotatedLayout rotated_layout(int64_t cols) {
  RotatedLayout l;
  l.k = round_up(cols, kRotatedGroup);
  l.groups = l.k / kRotatedGroup;
  l.scale = l.k;
  l.start = l.scale + 4 * l.groups;
  l.bytes = round_up(l.start + 4 * l.groups, 64);
  return l;
}

// The transform of 64 values in place, times the root of 64: (a, b) -> (a + b, a - b) of values 1, 2, 4, ..., 32 apart.
inline void rotate(float* x) {
  for (int h = 1; h < kRotatedGroup; h *= 2)
    for (int i = 0; i < kRotatedGroup; ++i)
      if (!(i & h)) {
        const float a = x[i], b = x[i + h];
        x[i] = a + b;
        x[i + h] = a - b;
      }
}

#if defined(OV_ROTATES_PROMPTS)

// Lanes with bit `Distance` of their number: their neighbour minus them; the others: plus.
template <int Distance>
inline __m512 butterfly(__m512 x) {
  constexpr auto sign = [](int lane) { return lane & Distance ? -1.0f : 1.0f; };
  const __m512 signs = _mm512_setr_ps(sign(0), sign(1), sign(2), sign(3), sign(4), sign(5), sign(6), sign(7), sign(8),
                                      sign(9), sign(10), sign(11), sign(12), sign(13), sign(14), sign(15));
  const __m512 across = Distance == 1   ? _mm512_permute_ps(x, 0xb1)
                        : Distance == 2 ? _mm512_permute_ps(x, 0x4e)
                        : Distance == 4 ? _mm512_shuffle_f32x4(x, x, 0xb1)
                                        : _mm512_shuffle_f32x4(x, x, 0x4e);
  return _mm512_fmadd_ps(x, signs, across);  // one instruction where a change of sign and an addition are two
}
inline __m512 rotate16(__m512 x) { return butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(x)))); }

// The transform of 64 values.
OV_ALWAYS_INLINE void rotate64(const float* x, __m512* y) {
  const __m512 a = rotate16(_mm512_loadu_ps(x)), b = rotate16(_mm512_loadu_ps(x + 16));
  const __m512 c = rotate16(_mm512_loadu_ps(x + 32)), d = rotate16(_mm512_loadu_ps(x + 48));
  const __m512 sum0 = _mm512_add_ps(a, b), difference0 = _mm512_sub_ps(a, b);
  const __m512 sum1 = _mm512_add_ps(c, d), difference1 = _mm512_sub_ps(c, d);
  y[0] = _mm512_add_ps(sum0, sum1);
  y[1] = _mm512_add_ps(difference0, difference1);
  y[2] = _mm512_sub_ps(sum0, sum1);
  y[3] = _mm512_sub_ps(difference0, difference1);
}

// N groups as a row has them; N is 1 or 4.
template <int N>
struct RotatedGroups {
  __m512i bytes[N];
  float scale[4];
  int32_t start[4];

  explicit RotatedGroups(const float* x) {
    constexpr float kSmallestAmax = 1e-36f;  // below it 127 / amax would overflow
    __m512 y[N][4];
    __m512i most[4] = {};
    unroll<N>([&](auto n) OV_INLINED {
      __m512(&to)[4] = y[n.value];
      rotate64(x + kRotatedGroup * n.value, to);
      // compared as integers, where a NaN is larger than every number: it decides the scale
      most[n.value] = _mm512_max_epi32(_mm512_max_epi32(magnitude(to[0]), magnitude(to[1])),
                                       _mm512_max_epi32(magnitude(to[2]), magnitude(to[3])));
    });
    const __m128 amax = _mm_castsi128_ps(across_lanes<N>(most, [](auto p, auto q) {
      if constexpr (sizeof p == 64)
        return _mm512_max_epi32(p, q);
      else
        return _mm_max_epi32(p, q);
    }));
    const __mmask8 is_zero = _mm_cmp_ps_mask(amax, _mm_set1_ps(kSmallestAmax), _CMP_LT_OQ);
    const __m128 top = _mm_set1_ps(127.0f), zero = _mm_setzero_ps();
    alignas(16) float factor[4];
    _mm_store_ps(factor, _mm_mask_mov_ps(_mm_div_ps(top, amax), is_zero, zero));
    _mm_storeu_ps(scale, _mm_mask_mov_ps(_mm_div_ps(amax, top), is_zero, zero));
    __m512i sums[4] = {};
    unroll<N>([&](auto n) OV_INLINED {
      const __m512 f = _mm512_set1_ps(factor[n.value]);
      const __m512(&from)[4] = y[n.value];
      const auto rounded = [&](int i) OV_INLINED { return _mm512_cvtps_epi32(_mm512_mul_ps(from[i], f)); };
      const __m512i words =
          _mm512_packs_epi16(_mm512_packs_epi32(rounded(0), rounded(1)), _mm512_packs_epi32(rounded(2), rounded(3)));
      // packing works within 128-bit lanes; the permutation puts dwords back in order
      const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      bytes[n.value] = _mm512_permutexvar_epi32(order, words);
      sums[n.value] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes[n.value]);
    });
    const __m128i sum = across_lanes<N>(sums, [](auto p, auto q) {
      if constexpr (sizeof p == 64)
        return _mm512_add_epi32(p, q);
      else
        return _mm_add_epi32(p, q);
    });
    _mm_storeu_si128(reinterpret_cast<__m128i*>(start), _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(sum, 7)));
  }

 private:
  static __m512i magnitude(__m512 v) { return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)); }
  // Lane n: all sixteen lanes of vector n, together.
  template <int M, class F>
  static __m128i across_lanes(const __m512i (&v)[4], F&& f) {
    __m512i u = v[0];
    if constexpr (M > 1) {
      const __m512i low = f(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
      const __m512i high = f(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
      u = f(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    }
    u = f(u, _mm512_shuffle_i32x4(u, u, 0x4e));
    u = f(u, _mm512_shuffle_i32x4(u, u, 0xb1));
    __m128i w = _mm512_castsi512_si128(u);
    if constexpr (M == 1) {
      w = f(w, _mm_shuffle_epi32(w, 0x4e));
      w = f(w, _mm_shuffle_epi32(w, 0xb1));
    }
    return w;
  }
};

// Group n of `of` to group `group` of a row of layout l.
template <int N>
inline void store_rotated(const RotatedGroups<N>& of, int n, const RotatedLayout& l, int64_t group, char* row) {
  _mm512_storeu_si512(row + kRotatedGroup * group, of.bytes[n]);
  memcpy(row + l.scale + 4 * group, of.scale + n, 4);
  memcpy(row + l.start + 4 * group, of.start + n, 4);
}

// The groups of `cols` columns, the first of which is group `begin`.
inline void rotate_row(const float* x, int64_t cols, const RotatedLayout& l, int64_t begin, char* row) {
  const int64_t whole = cols / kRotatedGroup;
  int64_t g = 0;
  for (; g + 4 <= whole; g += 4) {
    const RotatedGroups<4> four(x + g * kRotatedGroup);
    for (int n = 0; n < 4; ++n) store_rotated(four, n, l, begin + g + n, row);
  }
  for (; g < whole; ++g) store_rotated(RotatedGroups<1>(x + g * kRotatedGroup), 0, l, begin + g, row);
  if (g * kRotatedGroup == cols) return;
  alignas(64) float tail[kRotatedGroup] = {};
  memcpy(tail, x + g * kRotatedGroup, static_cast<size_t>(cols - g * kRotatedGroup) * sizeof(float));
  store_rotated(RotatedGroups<1>(tail), 0, l, begin + g, row);
}

#endif

}  // namespace ov
