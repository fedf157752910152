// Packed tiles of quantised kinds as rotated int8 (rotate.h): what prompts multiply where int8 dot products have no f32
// work to spare for a scale per 32 values.
//
// Sums and differences of codes are integers, so a group is transformed in 16-bit lanes, then scaled. A panel holds, per
// group of 64 values of k and tile, sixteen quads of code + 128 and sixteen scales, amax / 127 / 32: both sides of a
// product are transformed, which multiplies it by 32. Knows nothing of: activations.
#pragma once

#include "rotate.h"
#include "tile_codec.h"

#if defined(OV_ROTATES_PROMPTS)

namespace ov {

inline constexpr int64_t kRotatedRecord = 16 * 64 + 64;  // bytes of a group of a tile

namespace rotated {

// Of a half group of byte codes, sums and differences of values 1, 4 and 8 apart in 16-bit lanes: word c of vector
// 4 i + j has those of column c, i of values 1 apart, j of 4 and 8; its lanes are values 2 apart.
OV_ALWAYS_INLINE void transform_words(const __m512i (&quad)[4], __m512i (&out)[8]) {
  __m512i v[2][4];
  unroll<4>([&](auto q) OV_INLINED {
    const __m512i even = _mm512_and_si512(quad[q.value], _mm512_set1_epi16(0x00ff));
    const __m512i odd = _mm512_srli_epi16(quad[q.value], 8);
    v[0][q.value] = _mm512_add_epi16(even, odd);
    v[1][q.value] = _mm512_sub_epi16(even, odd);
  });
  unroll<2>([&](auto i) OV_INLINED {
    const auto& x = v[i.value];
    const __m512i s0 = _mm512_add_epi16(x[0], x[1]), d0 = _mm512_sub_epi16(x[0], x[1]);
    const __m512i s1 = _mm512_add_epi16(x[2], x[3]), d1 = _mm512_sub_epi16(x[2], x[3]);
    out[4 * i.value] = _mm512_add_epi16(s0, s1);
    out[4 * i.value + 1] = _mm512_add_epi16(d0, d1);
    out[4 * i.value + 2] = _mm512_sub_epi16(s0, s1);
    out[4 * i.value + 3] = _mm512_sub_epi16(d0, d1);
  });
}

// Both sums of a word's lanes, for two coefficients: 4 (n % 4) + n / 4 of vector n, and the one 2 after it.
OV_ALWAYS_INLINE __m512 sums_of(__m512i words) {
  return _mm512_cvtepi32_ps(_mm512_madd_epi16(words, _mm512_set1_epi16(1)));
}
OV_ALWAYS_INLINE __m512 differences_of(__m512i words) {
  return _mm512_cvtepi32_ps(_mm512_madd_epi16(words, _mm512_set1_epi32(static_cast<int>(0xffff0001u))));
}

OV_ALWAYS_INLINE __m512 larger_magnitude(__m512 a, __m512 b) { return _mm512_range_ps(a, b, 0x0b); }

// A group of 32 transformed. `first` is value 0, in which what is added to all codes adds up, top the largest magnitude.
// Kinds with one scale keep words of sums and differences, which go to f32 when they are rounded: half the stores.
template <int Kind>
struct RotatedValues {
  using T = Tile<Kind>;
  __m512i words[T::kHalves ? 1 : 16];
  alignas(64) float values[T::kHalves ? kRotation * kTileColumns : 16];
  __m512 unit, first, top;

  OV_ALWAYS_INLINE void expand(const uint8_t* codes, const GroupScales& s) {
    __m512i half[2][8];
    unroll<2>([&](auto h) OV_INLINED {
      __m512i quad[4];
      unroll<4>([&](auto q) OV_INLINED { quad[q.value] = expand_quad<Kind, 4 * h.value + q.value>(codes).v; });
      transform_words(quad, half[h.value]);
    });
    if constexpr (T::kHalves)
      scale(half, s);
    else
      combine(half, s);
    top = larger_magnitude(top, first);
  }

  // value i times what `factor` was multiplied with
  template <int I>
  OV_ALWAYS_INLINE __m512 value() const {
    if constexpr (T::kHalves) {
      return _mm512_load_ps(values + kTileColumns * I);
    } else {
      const __m512i w = words[I / 16 * 8 + I / 4 % 4 + I % 2 * 4];
      return I & 2 ? differences_of(w) : sums_of(w);
    }
  }

 private:
  OV_ALWAYS_INLINE void combine(const __m512i (&half)[2][8], const GroupScales& s) {
    unroll<8>([&](auto n) OV_INLINED {
      words[n.value] = _mm512_add_epi16(half[0][n.value], half[1][n.value]);
      words[8 + n.value] = _mm512_sub_epi16(half[0][n.value], half[1][n.value]);
    });
    const Lanes shift = T::kMinimum ? s.second * set1(32.0f) : s.first * set1(-32.0f * static_cast<float>(T::kOffset));
    unit = s.first.v;
    first = _mm512_fmadd_ps(sums_of(words[0]), unit, shift.v);
    // the larger of |a + b| and |a - b| is |a| + |b|
    __m512i most = _mm512_setzero_si512();
    unroll<15>([&](auto n) OV_INLINED {
      const __m512i both = _mm512_madd_epi16(_mm512_abs_epi16(words[n.value + 1]), _mm512_set1_epi16(1));
      most = _mm512_max_epi32(most, both);
    });
    top = _mm512_mul_ps(larger_magnitude(_mm512_cvtepi32_ps(most), differences_of(words[0])), unit);
  }

  OV_ALWAYS_INLINE void scale(const __m512i (&half)[2][8], const GroupScales& s) {
    // offsets: sixteen times in the first value of either half
    const Lanes offset = set1(-16.0f * static_cast<float>(T::kOffset));
    unit = _mm512_set1_ps(1.0f);
    top = _mm512_setzero_ps();
    const auto keep = [&](auto i, __m512 a, __m512 b) OV_INLINED {
      a = _mm512_mul_ps(a, s.first.v);
      b = _mm512_mul_ps(b, s.second.v);
      if constexpr (i.value == 0) {
        a = _mm512_add_ps(a, (s.first * offset).v);
        b = _mm512_add_ps(b, (s.second * offset).v);
      }
      const __m512 sum = _mm512_add_ps(a, b), difference = _mm512_sub_ps(a, b);
      if constexpr (i.value == 0) first = sum;
      _mm512_store_ps(values + kTileColumns * i.value, sum);
      _mm512_store_ps(values + kTileColumns * (16 + i.value), difference);
      top = larger_magnitude(top, larger_magnitude(sum, difference));
    };
    unroll<8>([&](auto n) OV_INLINED {
      constexpr int kFirst = 4 * (n.value % 4) + n.value / 4;
      keep(Index<kFirst>{}, sums_of(half[0][n.value]), sums_of(half[1][n.value]));
      keep(Index<kFirst + 2>{}, differences_of(half[0][n.value]), differences_of(half[1][n.value]));
    });
  }
};

// Sixty-four values of sixteen columns -> a record of the panel.
template <int Kind>
OV_ALWAYS_INLINE void round_group(const RotatedValues<Kind> (&groups)[2], uint8_t* record) {
  constexpr float kSmallestAmax = 1e-36f;  // below it 127 / amax would overflow
  const __m512 amax = larger_magnitude(groups[0].top, groups[1].top);
  const __mmask16 some = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(kSmallestAmax), _CMP_GE_OQ);
  const __m512 factor = _mm512_maskz_div_ps(some, _mm512_set1_ps(127.0f), amax);
  const __m512 scale =
      _mm512_maskz_mul_ps(some, _mm512_div_ps(amax, _mm512_set1_ps(127.0f)), _mm512_set1_ps(1.0f / 32));
  _mm512_store_ps(reinterpret_cast<float*>(record + 1024), scale);
  // added to a value it leaves the nearest integer in the low bits of the sum
  constexpr float kRounds = 12582912.0f;
  constexpr uint32_t kBits = 0x4b400000u;  // of kRounds; taken away once in each byte's place
  const __m512i offset =
      _mm512_set1_epi32(static_cast<int>(0x80808080u - (kBits + (kBits << 8) + (kBits << 16) + (kBits << 24))));
  for (const RotatedValues<Kind>& group : groups) {
    const __m512 unit = _mm512_mul_ps(group.unit, factor), rounds = _mm512_set1_ps(kRounds);
    unroll<8>([&](auto q) OV_INLINED {
      const auto rounded = [&](auto i) OV_INLINED {
        constexpr int kValue = 4 * q.value + i.value;
        if constexpr (kValue == 0) return _mm512_castps_si512(_mm512_fmadd_ps(group.first, factor, rounds));
        return _mm512_castps_si512(_mm512_fmadd_ps(group.template value<kValue>(), unit, rounds));
      };
      // bytes of value + 128, which are never negative: a sum has no carries between them
      const __m512i low = _mm512_add_epi32(rounded(Index<0>{}), _mm512_slli_epi32(rounded(Index<1>{}), 8));
      const __m512i high =
          _mm512_add_epi32(_mm512_slli_epi32(rounded(Index<2>{}), 16), _mm512_slli_epi32(rounded(Index<3>{}), 24));
      _mm512_store_si512(record + 64 * q.value, _mm512_add_epi32(_mm512_add_epi32(low, high), offset));
    });
    record += 8 * 64;
  }
}

// One tile to every `step`-th record of a panel.
template <int Kind>
inline void expand_tile(const uint8_t* scales, const uint8_t* codes, int64_t k, uint8_t* panel, int64_t step) {
  RotatedValues<Kind> values[2];
  ScaleReader<Kind> reader(scales);
  const int64_t groups = k / kGroup;
  for (int64_t g = 0; g < groups; ++g, codes += Tile<Kind>::kGroupBytes) {
    values[g % 2].expand(codes, reader.read(g));
    if (g + 1 == groups && g % 2 == 0) memset(static_cast<void*>(&values[1]), 0, sizeof values[1]);
    if (g + 1 == groups || g % 2 == 1) {
      round_group(values, panel);
      panel += step;
    }
  }
}

}  // namespace rotated
}  // namespace ov

#endif
