// The rotated form of activations: sums and differences of 32 values (a Walsh-Hadamard transform), then int8 in groups
// of 64. Spread over its group no value stands out, so one scale for 64 rounds as finely as one for 32 does without it.
//
// Present on AVX-512 levels without tile registers, where it is how prompts are read. Knows nothing of: rows, weights.
#pragma once

#include <cstdint>
#include <cstring>

#include "int_lanes.h"

#if defined(__AVX512VNNI__) && !defined(__AMX_TILE__)
#define OV_ROTATES_PROMPTS 1
#endif

namespace ov {

inline constexpr int64_t kRotation = 32;      // values that are transformed together
inline constexpr int64_t kRotatedGroup = 64;  // values with one scale

// A prepared row of type OV_A8R of `cols` columns, K = cols rounded up to 64, padding zero, G = K / 64:
//   int8 q[K]       round_to_even(y * (127 / amax)) of the group of 64, y the transform of each 32
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

// The transform of 32 values in place, times the root of 32: (a, b) -> (a + b, a - b) of values 1, 2, 4, 8, 16 apart.
inline void rotate(float* x) {
  for (int h = 1; h < kRotation; h *= 2)
    for (int i = 0; i < kRotation; ++i)
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
  constexpr int kMinus = static_cast<int>(0x80000000u);
  constexpr auto sign = [](int lane) { return lane & Distance ? kMinus : 0; };
  const __m512i signs = _mm512_setr_epi32(sign(0), sign(1), sign(2), sign(3), sign(4), sign(5), sign(6), sign(7),
                                          sign(8), sign(9), sign(10), sign(11), sign(12), sign(13), sign(14), sign(15));
  const __m512 across = Distance == 1   ? _mm512_permute_ps(x, 0xb1)
                        : Distance == 2 ? _mm512_permute_ps(x, 0x4e)
                        : Distance == 4 ? _mm512_shuffle_f32x4(x, x, 0xb1)
                                        : _mm512_shuffle_f32x4(x, x, 0x4e);
  return _mm512_add_ps(across, _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), signs)));
}
inline __m512 rotate16(__m512 x) { return butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(x)))); }

// Sixty-four values to group `group` of a row of layout l.
inline void rotate_group(const float* x, const RotatedLayout& l, int64_t group, char* row) {
  constexpr float kSmallestAmax = 1e-36f;  // below it 127 / amax would overflow
  const __m512 a = rotate16(_mm512_loadu_ps(x)), b = rotate16(_mm512_loadu_ps(x + 16));
  const __m512 c = rotate16(_mm512_loadu_ps(x + 32)), d = rotate16(_mm512_loadu_ps(x + 48));
  const __m512 y[4] = {_mm512_add_ps(a, b), _mm512_sub_ps(a, b), _mm512_add_ps(c, d), _mm512_sub_ps(c, d)};
  // compared as integers, where a NaN is larger than every number: it decides the scale
  const auto magnitude = [](__m512 v) {
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
  };
  const __m512i top = _mm512_max_epi32(_mm512_max_epi32(magnitude(y[0]), magnitude(y[1])),
                                       _mm512_max_epi32(magnitude(y[2]), magnitude(y[3])));
  const float amax = bits_float(static_cast<uint32_t>(_mm512_reduce_max_epi32(top)));
  const bool is_zero = amax < kSmallestAmax;
  const float scale = is_zero ? 0.0f : amax / 127.0f;
  const __m512 factor = _mm512_set1_ps(is_zero ? 0.0f : 127.0f / amax);
  const auto rounded = [&](int i) { return _mm512_cvtps_epi32(_mm512_mul_ps(y[i], factor)); };
  const __m512i words =
      _mm512_packs_epi16(_mm512_packs_epi32(rounded(0), rounded(1)), _mm512_packs_epi32(rounded(2), rounded(3)));
  // packing works within 128-bit lanes; the permutation puts dwords back in order
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(order, words);
  _mm512_storeu_si512(row + kRotatedGroup * group, bytes);
  const int32_t sum = _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes));
  const int32_t start = -128 * sum;
  memcpy(row + l.scale + 4 * group, &scale, 4);
  memcpy(row + l.start + 4 * group, &start, 4);
}

// The groups of `cols` columns, the first of which is group `begin`.
inline void rotate_row(const float* x, int64_t cols, const RotatedLayout& l, int64_t begin, char* row) {
  int64_t g = 0;
  for (; (g + 1) * kRotatedGroup <= cols; ++g) rotate_group(x + g * kRotatedGroup, l, begin + g, row);
  if (g * kRotatedGroup == cols) return;
  alignas(64) float tail[kRotatedGroup] = {};
  memcpy(tail, x + g * kRotatedGroup, static_cast<size_t>(cols - g * kRotatedGroup) * sizeof(float));
  rotate_group(tail, l, begin + g, row);
}

#endif

}  // namespace ov
