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

// The transform of sixteen values of sixteen columns, from four quads of byte codes: out[i], i the coefficient.
OV_ALWAYS_INLINE void transform16(const __m512i (&quad)[4], __m512i (&out)[16]) {
  const __m512i low_bytes = _mm512_set1_epi16(0x00ff);
  __m512i v[2][4];  // sums and differences of values 1 apart, two of them in a word
  unroll<4>([&](auto q) OV_INLINED {
    const __m512i even = _mm512_and_si512(quad[q.value], low_bytes), odd = _mm512_srli_epi16(quad[q.value], 8);
    v[0][q.value] = _mm512_add_epi16(even, odd);
    v[1][q.value] = _mm512_sub_epi16(even, odd);
  });
  unroll<2>([&](auto i) OV_INLINED {
    const auto& x = v[i.value];
    const __m512i s0 = _mm512_add_epi16(x[0], x[1]), d0 = _mm512_sub_epi16(x[0], x[1]);
    const __m512i s1 = _mm512_add_epi16(x[2], x[3]), d1 = _mm512_sub_epi16(x[2], x[3]);
    const __m512i w[4] = {_mm512_add_epi16(s0, s1), _mm512_add_epi16(d0, d1), _mm512_sub_epi16(s0, s1),
                          _mm512_sub_epi16(d0, d1)};
    unroll<4>([&](auto q) OV_INLINED {
      out[4 * q.value + i.value] = _mm512_madd_epi16(w[q.value], _mm512_set1_epi16(1));
      out[4 * q.value + 2 + i.value] = _mm512_madd_epi16(w[q.value], _mm512_set1_epi32(static_cast<int>(0xffff0001u)));
    });
  });
}

// The transformed values of a group of 32, [32][16 columns] f32; the larger of `top` and their magnitudes is returned.
template <int Kind>
OV_ALWAYS_INLINE __m512i expand_group(const uint8_t* codes, const GroupScales& s, float* out, __m512i top) {
  using T = Tile<Kind>;
  __m512i half[2][16];
  unroll<2>([&](auto h) OV_INLINED {
    __m512i quad[4];
    unroll<4>([&](auto q) OV_INLINED { quad[q.value] = expand_quad<Kind, 4 * h.value + q.value>(codes).v; });
    transform16(quad, half[h.value]);
  });
  // what is added to each value of a half is sixteen times that in its sum, and nothing elsewhere
  const auto shift_of = [&](Lanes scale) OV_INLINED {
    return T::kMinimum ? s.second * set1(16.0f) : scale * set1(-16.0f * static_cast<float>(T::kOffset));
  };
  const auto keep = [&](int i, __m512 y) OV_INLINED {
    _mm512_store_ps(out + 16 * i, y);
    top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_castps_si512(y), _mm512_set1_epi32(0x7fffffff)));
  };
  unroll<16>([&](auto i) OV_INLINED {
    if constexpr (T::kHalves) {
      __m512 a = _mm512_mul_ps(_mm512_cvtepi32_ps(half[0][i.value]), s.first.v);
      __m512 b = _mm512_mul_ps(_mm512_cvtepi32_ps(half[1][i.value]), s.second.v);
      if constexpr (i.value == 0) {
        a = _mm512_add_ps(a, shift_of(s.first).v);
        b = _mm512_add_ps(b, shift_of(s.second).v);
      }
      keep(i.value, _mm512_add_ps(a, b));
      keep(16 + i.value, _mm512_sub_ps(a, b));
    } else {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(half[0][i.value], half[1][i.value]));
      const __m512 difference = _mm512_cvtepi32_ps(_mm512_sub_epi32(half[0][i.value], half[1][i.value]));
      if constexpr (i.value == 0) {
        const Lanes shift = shift_of(s.first);
        keep(0, _mm512_fmadd_ps(sum, s.first.v, (shift + shift).v));
      } else {
        keep(i.value, _mm512_mul_ps(sum, s.first.v));
      }
      keep(16 + i.value, _mm512_mul_ps(difference, s.first.v));
    }
  });
  return top;
}

// Sixty-four values of sixteen columns -> a record of the panel.
OV_ALWAYS_INLINE void round_group(const float* values, __m512i top, uint8_t* record) {
  constexpr float kSmallestAmax = 1e-36f;  // below it 127 / amax would overflow
  const __m512 amax = _mm512_castsi512_ps(top);
  const __mmask16 some = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(kSmallestAmax), _CMP_GE_OQ);
  const __m512 factor = _mm512_maskz_div_ps(some, _mm512_set1_ps(127.0f), amax);
  const __m512 scale =
      _mm512_maskz_mul_ps(some, _mm512_div_ps(amax, _mm512_set1_ps(127.0f)), _mm512_set1_ps(1.0f / 32));
  _mm512_store_ps(reinterpret_cast<float*>(record + 1024), scale);
  for (int q = 0; q < 16; ++q, values += 64, record += 64) {
    const auto rounded = [&](int i) OV_INLINED {
      return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(values + 16 * i), factor));
    };
    // bytes of value + 128, which are never negative: a sum has no carries between them
    const __m512i low = _mm512_add_epi32(rounded(0), _mm512_slli_epi32(rounded(1), 8));
    const __m512i high = _mm512_add_epi32(_mm512_slli_epi32(rounded(2), 16), _mm512_slli_epi32(rounded(3), 24));
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
    _mm512_store_si512(record, _mm512_add_epi32(_mm512_add_epi32(low, high), offset));
  }
}

// One tile to every `step`-th record of a panel.
template <int Kind>
inline void expand_tile(const uint8_t* scales, const uint8_t* codes, int64_t k, uint8_t* panel, int64_t step) {
  using T = Tile<Kind>;
  alignas(64) float values[64 * 16];
  ScaleReader<Kind> reader(scales);
  const int64_t groups = k / kGroup;
  for (int64_t g = 0; g < groups; g += 2, panel += step) {
    __m512i top = expand_group<Kind>(codes, reader.read(g), values, _mm512_setzero_si512());
    codes += T::kGroupBytes;
    if (g + 1 < groups) {
      top = expand_group<Kind>(codes, reader.read(g + 1), values + 32 * 16, top);
      codes += T::kGroupBytes;
    } else {
      memset(values + 32 * 16, 0, sizeof(float) * 32 * 16);
    }
    round_group(values, top, panel);
  }
}

}  // namespace rotated
}  // namespace ov

#endif
