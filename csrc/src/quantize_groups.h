// Groups of 32 activations as int8, N of them at once, so that what is one number of a group is one lane of a vector.
//
// Where a level has wide shuffles, maxima and sums of the groups cross the lanes together: sixteen maxima are fifteen
// merges of two vectors, not sixteen reductions of one. The bits are the same at every level. Knows nothing of: rows.
#pragma once

#include <cstdint>

#include "int_lanes.h"

namespace ov {

// Where the numbers of groups go, in the layout of prepare.h; each points to those of the first group.
struct QuantizedGroups {
  int8_t* q;
  float* scale;
  float* sum;
  int32_t* sum16;

  QuantizedGroups from(int64_t group) const { return {q + 32 * group, scale + group, sum + group, sum16 + 2 * group}; }
};

struct GroupScales {
  Lanes scale, factor;  // amax / 127 and 127 / amax; zero where a group is treated as zero
};

// Lanes i < N of a / b: a division takes as long as its vector is wide.
template <int N>
inline Lanes divide_first(Lanes a, Lanes b) {
#if defined(__AVX512F__)
  if constexpr (N <= 4)
    return {_mm512_castps128_ps512(_mm_div_ps(_mm512_castps512_ps128(a.v), _mm512_castps512_ps128(b.v)))};
  else if constexpr (N <= 8)
    return {_mm512_castps256_ps512(_mm256_div_ps(_mm512_castps512_ps256(a.v), _mm512_castps512_ps256(b.v)))};
  else
#endif
    return a / b;
}

// Of N groups.
template <int N>
inline GroupScales group_scales(Lanes amax) {
  constexpr float kSmallestAmax = 1e-36f;  // below it 127 / amax would overflow
  const Mask is_zero = less(amax, set1(kSmallestAmax));
  const Lanes zero = set1(0.0f), top = set1(127.0f);
  return {select(is_zero, zero, divide_first<N>(amax, top)), select(is_zero, zero, divide_first<N>(top, amax))};
}

// Largest magnitudes by lane of 32 values. Compared as integers, where a NaN is larger than every number: it decides the
// scale.
inline IntLanes group_magnitudes(const float* x) {
  const IntLanes magnitude = set1_int(0x7fffffff);
  return max(as_int(load(x)) & magnitude, as_int(load(x + kLanes)) & magnitude);
}

#if defined(__AVX512F__)

// Lanes with bit `Distance` of their number from b, the others from a: each the larger of itself and the one that far away.
template <int Distance>
inline __m512i merge_maxima(__m512i a, __m512i b) {
  const auto across = [](int lane) { return lane & Distance ? 16 + lane - Distance : lane + Distance; };
  const __m512i index =
      _mm512_setr_epi32(across(0), across(1), across(2), across(3), across(4), across(5), across(6), across(7),
                        across(8), across(9), across(10), across(11), across(12), across(13), across(14), across(15));
  constexpr __mmask16 kFromB = Distance == 8 ? 0xff00 : Distance == 4 ? 0xf0f0 : Distance == 2 ? 0xcccc : 0xaaaa;
  return _mm512_max_epi32(_mm512_mask_blend_epi32(kFromB, a, b), _mm512_permutex2var_epi32(a, index, b));
}

// Lane i < N: the largest lane of a group; N is a power of two.
template <int N>
inline Lanes group_maxima(const float* x) {
  __m512i r[N];
  const auto merge = [&]<int Distance>(int i) {
    r[i] = merge_maxima<Distance>(r[i], i + Distance < N ? r[i + Distance] : r[i]);
  };
  for (int i = 0; i < N && i < 8; ++i) {
    r[i] = group_magnitudes(x + 32 * i).v;
    if (i + 8 < N) r[i + 8] = group_magnitudes(x + 32 * (i + 8)).v;
    merge.template operator()<8>(i);
  }
  for (int i = 0; i < N && i < 4; ++i) merge.template operator()<4>(i);
  for (int i = 0; i < N && i < 2; ++i) merge.template operator()<2>(i);
  merge.template operator()<1>(0);
  return {_mm512_castsi512_ps(r[0])};
}

// x times its group's factor, sixteen values.
inline __m512i scaled_values(const float* x, __m512 factor) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
}

// 32 values of each of two groups as saturated bytes in their order.
inline __m512i quantize_two(const float* x, const float* factor) {
  const __m512 f0 = _mm512_set1_ps(factor[0]), f1 = _mm512_set1_ps(factor[1]);
  const __m512i first = _mm512_packs_epi32(scaled_values(x, f0), scaled_values(x + 16, f0));
  const __m512i second = _mm512_packs_epi32(scaled_values(x + 32, f1), scaled_values(x + 48, f1));
  // packing works within 128-bit lanes; the permutation puts dwords back in order
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second));
}

// Sums of 16 bytes: of lane l of vector i to word 4 i + l. They fit in 16 bits until the last addition.
template <int Vectors>
inline __m512i sums_of_sixteen(const __m512i* bytes) {
  __m512i fours[4];
  for (int i = 0; i < 4; ++i)
    fours[i] = i < Vectors ? _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes[i])
                           : _mm512_setzero_si512();
  const __m512i ones = _mm512_set1_epi16(1);
  const __m512i low = _mm512_madd_epi16(_mm512_packs_epi32(fours[0], fours[1]), ones);
  const __m512i high = _mm512_madd_epi16(_mm512_packs_epi32(fours[2], fours[3]), ones);
  const __m512i sums = _mm512_madd_epi16(_mm512_packs_epi32(low, high), ones);
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
}

// N groups of x, 1, 2, 4, 8 or 16.
template <int N>
inline void quantize_groups(const float* x, const QuantizedGroups& out) {
  const GroupScales s = group_scales<N>(group_maxima<N>(x));
  alignas(64) float factor[kLanes];
  store(factor, s.factor);
  constexpr int kVectors = (N + 1) / 2;
  __m512i bytes[kVectors], halves[2] = {};
  if constexpr (N == 1) {
    const __m512 f = _mm512_set1_ps(factor[0]);
    bytes[0] = _mm512_castsi256_si512(
        _mm256_set_m128i(_mm512_cvtsepi32_epi8(scaled_values(x + 16, f)), _mm512_cvtsepi32_epi8(scaled_values(x, f))));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q), _mm512_castsi512_si256(bytes[0]));
  } else {
    for (int i = 0; i < kVectors; ++i) {
      bytes[i] = quantize_two(x + 64 * i, factor + 2 * i);
      _mm512_storeu_si512(out.q + 64 * i, bytes[i]);
    }
  }
  for (int i = 0; i < kVectors; i += 4) {
    halves[i / 4] = sums_of_sixteen<(kVectors < 4 ? kVectors : 4)>(bytes + i);
    _mm512_mask_storeu_epi32(out.sum16 + 4 * i, first_lanes(2 * N < 16 ? 2 * N : 16), halves[i / 4]);
  }
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
  const __m512i total = _mm512_add_epi32(_mm512_permutex2var_epi32(halves[0], even, halves[1]),
                                         _mm512_permutex2var_epi32(halves[0], odd, halves[1]));
  store_part(out.scale, s.scale, N);
  store_part(out.sum, s.scale * to_float(IntLanes{total}), N);
}

#else

template <int N>
inline void quantize_groups(const float* x, const QuantizedGroups& out) {
  static_assert(N <= kLanes);
  alignas(64) float amax[kLanes] = {}, factor[kLanes], total[kLanes] = {};
  for (int i = 0; i < N; ++i) amax[i] = bits_float(static_cast<uint32_t>(max_lanes(group_magnitudes(x + 32 * i))));
  const GroupScales s = group_scales<N>(load(amax));
  store(factor, s.factor);
  store_part(out.scale, s.scale, N);
  for (int i = 0; i < N; ++i) {
    const float* const group = x + 32 * i;
    const Lanes f = set1(factor[i]);
    int32_t* const sums = out.sum16 + 2 * i;
    store_group(out.q + 32 * i, to_int(load(group) * f), to_int(load(group + kLanes) * f), sums);
    total[i] = static_cast<float>(sums[0] + sums[1]);
  }
  store_part(out.sum, s.scale * load(total), N);
}

#endif

}  // namespace ov
