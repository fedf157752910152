// Words of sixteen tokens, token by token, as rows of sixteen lanes: how a sub-block holds K.
//
// Where a level has wide shuffles they cross the registers and leave as whole lines; the bits are the same. Knows nothing
// of: blocks, element types.
#pragma once

#include <cstdint>

#include "lanes.h"

namespace ov {

#if defined(__AVX512F__)

// Rows of sixteen words -> columns.
inline void transpose_words(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  }
  // r[4 g + j], 128-bit lane l: word 4 l + j of tokens 4 g ..
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x44);
    t[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xee);
    t[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x44);
    t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xee);
  }
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
    r[8 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
    r[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
  }
}

#endif

// words[t * stride + w] of `count` tokens to out[16 * w + t]; other lanes keep what they hold.
inline void scatter_words(const uint32_t* words, int64_t stride, int count, int num_words, uint32_t* out) {
#if defined(__AVX512F__)
  constexpr int kWorthwhile = 4;  // fewer tokens are stored word by word
  if (count >= kWorthwhile) {
    const __mmask16 lanes = first_lanes(count);
    for (int w = 0; w < num_words; w += 16, out += 256) {
      const int n = num_words - w < 16 ? num_words - w : 16;
      __m512i rows[16];
      for (int t = 0; t < 16; ++t)
        rows[t] = t < count ? _mm512_maskz_loadu_epi32(first_lanes(n), words + t * stride + w) : _mm512_setzero_si512();
      transpose_words(rows);
      if (count == 16 && n == 16) {
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + 16 * i, rows[i]);
      } else {
        for (int i = 0; i < 16; ++i)
          if (i < n) _mm512_mask_storeu_epi32(out + 16 * i, lanes, rows[i]);
      }
    }
    return;
  }
#endif
  for (int t = 0; t < count; ++t)
    for (int w = 0; w < num_words; ++w) out[16 * w + t] = words[t * stride + w];
}

}  // namespace ov
