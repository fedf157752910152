// Packed tiles of quantised kinds as rotated int8 (rotate.h): what prompts multiply where int8 dot products have no f32
// work to spare for a scale per 32 values.
//
// Sums and differences of codes are integers, and all but the last rounding happens in 16-bit lanes: values with one
// scale are transformed, brought to a step that the group has in common, a fixed-point product, and transformed with the
// others. What is added to all codes, offset or minimum, is in one value of each scale's, which is computed in f32. A
// panel holds, per group and tile, sixteen quads of code + 128 and sixteen scales, the step of the codes / 64: both sides
// of a product are transformed, which multiplies it by 64. Knows nothing of: activations.
#pragma once

#include "rotate.h"
#include "tile_codec.h"

#if defined(OV_ROTATES_PROMPTS)

namespace ov {

inline constexpr int64_t kRotatedRecord = 16 * 64 + 64;  // bytes of a group of a tile

namespace rotated {

constexpr int kQuads = 8;                                          // of a stored group of 32
constexpr int kStored = static_cast<int>(kRotatedGroup / kGroup);  // stored groups of a group
constexpr int kGroupQuads = kStored * kQuads;

// How a kind's codes become 16-bit words.
template <int Kind>
struct Words {
  using T = Tile<Kind>;
  static constexpr int kUnits = T::kHalves ? 2 : 1;  // of a stored group, each with its scale
  static constexpr int kUnitValues = static_cast<int>(kGroup) / kUnits;
  static constexpr bool kInBytes = kUnits == 1 && T::kBits <= 5;  // sums of eight codes are bytes
  static constexpr int kCentre = kInBytes && T::kBits == 5 ? 16 : 0;
  // Words are values times 2^kShift: a difference of as many codes as a unit has fits.
  static constexpr int kShift = T::kBits <= 6 ? 6 : 3;
  static_assert((kUnitValues / 2 << kShift) * ((1 << T::kBits) - 1) <= 32767);
  // What scales are multiplied with, so that the units of a group add up within 16 bits.
  static constexpr int kTop = 32767 / (kStored * kUnits);
};

// (a, b) of each word's lanes -> (a + b, a - b).
OV_ALWAYS_INLINE __m512i within_words(__m512i w) {
  const __m512i across = _mm512_rol_epi32(w, 16);
  return _mm512_mask_sub_epi16(_mm512_add_epi16(across, w), 0xaaaaaaaau, across, w);
}

// The words of a stored group, transformed within each unit: w[i][q], of value 4 q + i and in the other lanes the one 2
// after it. sums[u]: those of a unit's codes less the centre, which w[0] has in its first lanes, too, perhaps overflown.
template <int Kind>
OV_ALWAYS_INLINE void transform_codes(const uint8_t* codes, __m512i (&w)[2][kQuads], __m512 (&sums)[2]) {
  using W = Words<Kind>;
  __m512i x[kQuads];
  unroll<kQuads>([&](auto q) OV_INLINED { x[q.value] = expand_quad<Kind, q.value>(codes).v; });
  const __m512i ones = _mm512_set1_epi16(1);
  if constexpr (W::kInBytes) {
    if constexpr (W::kCentre != 0)
      unroll<kQuads>([&](auto q)
                         OV_INLINED { x[q.value] = _mm512_sub_epi8(x[q.value], _mm512_set1_epi8(W::kCentre)); });
    unroll<3>([&](auto stage) OV_INLINED {
      unroll<kQuads / 2>([&](auto pair) OV_INLINED {
        constexpr int kApart = 1 << stage.value;
        constexpr int kFirst = pair.value / kApart * 2 * kApart + pair.value % kApart;
        const __m512i a = x[kFirst], b = x[kFirst + kApart];
        x[kFirst] = _mm512_add_epi8(a, b);
        x[kFirst + kApart] = _mm512_sub_epi8(a, b);
      });
    });
    constexpr int kFactor = 1 << W::kShift;
    const __m512i plus = _mm512_set1_epi8(kFactor), both = _mm512_set1_epi16((256 - kFactor) << 8 | kFactor);
    const __m512i bias = _mm512_set1_epi8(-128);  // a difference loses it
    __m512i words[2][kQuads];
    unroll<kQuads>([&](auto q) OV_INLINED {
      words[0][q.value] = _mm512_maddubs_epi16(plus, x[q.value]);
      words[1][q.value] = _mm512_maddubs_epi16(_mm512_xor_si512(x[q.value], bias), both);
    });
    sums[0] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(words[0][0], ones)), _mm512_set1_ps(1.0f / kFactor));
    unroll<2>([&](auto i) OV_INLINED {
      unroll<kQuads>([&](auto q) OV_INLINED { w[i.value][q.value] = within_words(words[i.value][q.value]); });
    });
  } else {
    unroll<kQuads>([&](auto q) OV_INLINED {
      const __m512i even = _mm512_and_si512(x[q.value], _mm512_set1_epi16(0x00ff));
      const __m512i odd = _mm512_srli_epi16(x[q.value], 8);
      w[0][q.value] = _mm512_add_epi16(even, odd);
      w[1][q.value] = _mm512_sub_epi16(even, odd);
    });
    constexpr int kStages = W::kUnits == 1 ? 3 : 2;
    unroll<2 * kStages>([&](auto at) OV_INLINED {
      auto& row = w[at.value % 2];
      constexpr int kApart = 1 << at.value / 2;
      unroll<kQuads / 2>([&](auto pair) OV_INLINED {
        constexpr int kFirst = pair.value / kApart * 2 * kApart + pair.value % kApart;
        const __m512i a = row[kFirst], b = row[kFirst + kApart];
        row[kFirst] = _mm512_add_epi16(a, b);
        row[kFirst + kApart] = _mm512_sub_epi16(a, b);
      });
    });
    unroll<W::kUnits>([&](auto u) OV_INLINED {
      sums[u.value] = _mm512_cvtepi32_ps(_mm512_madd_epi16(w[0][kQuads / W::kUnits * u.value], ones));
    });
    unroll<2>([&](auto i) OV_INLINED {
      unroll<kQuads>([&](auto q) OV_INLINED {
        w[i.value][q.value] = _mm512_slli_epi16(within_words(w[i.value][q.value]), W::kShift);
      });
    });
  }
}

// A group while it is made: words in a common step, and the values that are computed in f32, which the words lack.
template <int Kind>
struct RotatedValues {
  using T = Tile<Kind>;
  using W = Words<Kind>;
  static constexpr int kFirsts = kStored * W::kUnits;  // a unit's values apart

  __m512i words[2][kGroupQuads];
  __m512 firsts[kFirsts];

  // Of `count` stored groups, at most kStored. factors: their scales in units of the step, in both lanes of a word.
  OV_ALWAYS_INLINE void make(const uint8_t* codes, int count, const GroupScales* scales, const __m512i (*factors)[2]) {
    unroll<kStored>([&](auto g) OV_INLINED {
      if (g.value >= count) {  // past the end: zeros
        unroll<2>([&](auto i) OV_INLINED {
          unroll<kQuads>([&](auto q)
                             OV_INLINED { words[i.value][kQuads * g.value + q.value] = _mm512_setzero_si512(); });
        });
        unroll<W::kUnits>([&](auto u) OV_INLINED { firsts[W::kUnits * g.value + u.value] = _mm512_setzero_ps(); });
        return;
      }
      __m512i w[2][kQuads];
      __m512 sums[2];
      transform_codes<Kind>(codes + codes_offset<Kind>(g.value), w, sums);
      unroll<W::kUnits>([&](auto u) OV_INLINED {
        const GroupScales& s = scales[g.value];
        const __m512 scale = u.value == 0 ? s.first.v : s.second.v;
        // of all codes together
        constexpr float kAll = static_cast<float>(W::kUnitValues * (W::kCentre - (T::kMinimum ? 0 : T::kOffset)));
        __m512 first = _mm512_mul_ps(_mm512_add_ps(sums[u.value], _mm512_set1_ps(kAll)), scale);
        if constexpr (T::kMinimum) first = _mm512_fmadd_ps(s.second.v, _mm512_set1_ps(W::kUnitValues), first);
        firsts[W::kUnits * g.value + u.value] = first;
      });
      unroll<kQuads>([&](auto q) OV_INLINED {
        constexpr int kUnit = q.value / (kQuads / W::kUnits);
        unroll<2>([&](auto i) OV_INLINED {
          words[i.value][kQuads * g.value + q.value] =
              _mm512_mulhrs_epi16(w[i.value][q.value], factors[g.value][kUnit]);
        });
      });
      if constexpr (W::kUnits == 2) {
        add_halves<kQuads / 2>(kQuads * g.value);
        butterfly_values(firsts[2 * g.value], firsts[2 * g.value + 1]);
      }
    });
    add_halves<kQuads>(0);
    unroll<W::kUnits>([&](auto u) OV_INLINED { butterfly_values(firsts[u.value], firsts[W::kUnits + u.value]); });
    // what is computed in f32 is no word
    unroll<kFirsts>([&](auto f) OV_INLINED {
      __m512i& word = words[0][kGroupQuads / kFirsts * f.value];
      word = _mm512_and_si512(word, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
    });
  }

 private:
  // Of two runs of `Quads` quads from `first` on: their sums and differences.
  template <int Quads>
  OV_ALWAYS_INLINE void add_halves(int first) {
    unroll<2>([&](auto i) OV_INLINED {
      unroll<Quads>([&](auto q) OV_INLINED {
        butterfly_words(words[i.value][first + q.value], words[i.value][first + Quads + q.value]);
      });
    });
  }
  OV_ALWAYS_INLINE static void butterfly_words(__m512i& a, __m512i& b) {
    const __m512i sum = _mm512_add_epi16(a, b);
    b = _mm512_sub_epi16(a, b);
    a = sum;
  }
  OV_ALWAYS_INLINE static void butterfly_values(__m512& a, __m512& b) {
    const __m512 sum = _mm512_add_ps(a, b);
    b = _mm512_sub_ps(a, b);
    a = sum;
  }
};

OV_ALWAYS_INLINE __m512 larger_magnitude(__m512 a, __m512 b) { return _mm512_range_ps(a, b, 0x0b); }

// A group of sixteen columns -> a record. unit: the value of a word of 1.
template <int Kind>
OV_ALWAYS_INLINE void round_group(const RotatedValues<Kind>& values, __m512 unit, uint8_t* record) {
  using V = RotatedValues<Kind>;
  constexpr float kSmallest = 1e-36f;  // below it quotients would overflow
  __m512i most = _mm512_setzero_si512();
  __m512 amax = _mm512_setzero_ps();
  unroll<2>([&](auto i) OV_INLINED {
    unroll<kGroupQuads>(
        [&](auto q) OV_INLINED { most = _mm512_max_epi16(most, _mm512_abs_epi16(values.words[i.value][q.value])); });
  });
  unroll<V::kFirsts>([&](auto f) OV_INLINED { amax = larger_magnitude(amax, values.firsts[f.value]); });
  most = _mm512_and_si512(_mm512_max_epi16(most, _mm512_srli_epi32(most, 16)), _mm512_set1_epi32(0xffff));
  // words below 128 are multiplied by less than 1 to be codes: a larger step, of which they are still exact multiples
  const __m512i least = _mm512_max_epi32(most, _mm512_set1_epi32(128));
  amax = larger_magnitude(amax, _mm512_mul_ps(_mm512_cvtepi32_ps(least), unit));
  const __mmask16 some = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(kSmallest), _CMP_GE_OQ);
  // Words times whole 1 / 32768 are codes. Of many the last one is left away, and the step follows from them; few, where
  // words are small beside what is computed in f32, are rounded.
  constexpr float kMany = 256.0f;
  const __m512 largest = _mm512_maskz_div_ps(some, _mm512_set1_ps(127.0f), amax);
  const __m512 unit_32768 = _mm512_mul_ps(unit, _mm512_set1_ps(32768.0f)), ideal = _mm512_mul_ps(unit_32768, largest);
  const __mmask16 are_many = _mm512_cmp_ps_mask(ideal, _mm512_set1_ps(kMany), _CMP_GE_OQ);
  __m512 factor = _mm512_roundscale_ps(ideal, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  factor = _mm512_mask_roundscale_ps(factor, are_many, ideal, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 step = _mm512_maskz_mul_ps(some, amax, _mm512_set1_ps(1.0f / 127));
  step = _mm512_mask_div_ps(step, are_many, unit_32768, factor);
  const __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(1.0f), step);
  _mm512_store_ps(reinterpret_cast<float*>(record + kRotatedRecord - 64),
                  _mm512_mul_ps(step, _mm512_set1_ps(1.0f / kRotatedGroup)));
  __m512i words = _mm512_cvtps_epi32(factor);
  words = _mm512_or_si512(words, _mm512_slli_epi32(words, 16));
  const __m512i bytes = _mm512_set1_epi16(0x00ff), offset = _mm512_set1_epi8(-128);
  unroll<kGroupQuads>([&](auto q) OV_INLINED {
    const __m512i even = _mm512_mulhrs_epi16(values.words[0][q.value], words);
    const __m512i odd = _mm512_mulhrs_epi16(values.words[1][q.value], words);
    // (even & bytes) | odd << 8
    __m512i quad = _mm512_ternarylogic_epi32(even, bytes, _mm512_slli_epi16(odd, 8), 0xea);
    constexpr int kApart = kGroupQuads / V::kFirsts;
    if constexpr (q.value % kApart == 0) {
      const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(values.firsts[q.value / kApart], inverse));
      quad = _mm512_ternarylogic_epi32(first, _mm512_set1_epi32(0xff), quad, 0xea);
    }
    _mm512_store_si512(record + 64 * q.value, _mm512_xor_si512(quad, offset));
  });
}

// One tile to every `step`-th byte of a panel.
template <int Kind>
inline void expand_tile(const uint8_t* scales, const uint8_t* codes, int64_t k, uint8_t* panel, int64_t step) {
  using W = Words<Kind>;
  RotatedValues<Kind> values;
  ScaleReader<Kind> reader(scales);
  const int64_t groups = k / kGroup;
  for (int64_t g = 0; g < groups; g += kStored, panel += step) {
    const int count = static_cast<int>(groups - g < kStored ? groups - g : kStored);
    GroupScales s[kStored];
    __m512 top = _mm512_setzero_ps();
    for (int i = 0; i < count; ++i) {
      s[i] = reader.read(g + i);
      top = larger_magnitude(top, s[i].first.v);
      if constexpr (W::kUnits == 2) top = larger_magnitude(top, s[i].second.v);
    }
    constexpr float kSmallest = 1e-36f;
    const __mmask16 some = _mm512_cmp_ps_mask(top, _mm512_set1_ps(kSmallest), _CMP_GE_OQ);
    const __m512 per_scale = _mm512_maskz_div_ps(some, _mm512_set1_ps(W::kTop), top);
    __m512i factors[kStored][2];
    for (int i = 0; i < count; ++i)
      for (int u = 0; u < W::kUnits; ++u) {
        const __m512 scale = u == 0 ? s[i].first.v : s[i].second.v;
        const __m512i f = _mm512_cvtps_epi32(_mm512_mul_ps(scale, per_scale));
        factors[i][u] = _mm512_mask_blend_epi16(0xaaaaaaaau, f, _mm512_slli_epi32(f, 16));
      }
    const __m512 unit = _mm512_mul_ps(top, _mm512_set1_ps(32768.0f / (W::kTop * static_cast<float>(1 << W::kShift))));
    values.make(codes + codes_offset<Kind>(g), count, s, factors);
    round_group(values, unit, panel);
  }
}

}  // namespace rotated
}  // namespace ov

#endif
