// Packed tiles of a quantised kind as bf16 operands of the tile registers.
//
// A panel holds, per 32 values of k and column tile, what tile_dot_bf16 reads: 16 rows of 64 bytes, row i the pair
// (k = 2 i, 2 i + 1) of each of 16 columns. A value is code * scale (+ minimum), exactly that of the format as f32, then
// rounded to bf16, to nearest even. Present where the level has tile registers. Knows nothing of: activations.
#pragma once

#include "tile_codec.h"
#include "tiles.h"
#include "tiles_ahead.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int64_t kOperandBytes = 1024;  // 32 values of k x 16 columns

// Of eight columns, each twice: what the values of a pair are multiplied with and added to.
struct PairScales {
  __m512 scale[2], shift[2];  // columns 0-7 and 8-15

  OV_ALWAYS_INLINE void set(__m512 scales, __m512 shifts) {
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    scale[0] = _mm512_permutexvar_ps(low, scales);
    scale[1] = _mm512_permutexvar_ps(high, scales);
    shift[0] = _mm512_permutexvar_ps(low, shifts);
    shift[1] = _mm512_permutexvar_ps(high, shifts);
  }
};

// Two rows of an operand from a quad of codes: four values of k of sixteen columns.
OV_ALWAYS_INLINE void expand_operand_rows(Bytes quad, const PairScales& s, char* out) {
  // byte 4 c + j is value j of column c; words become (column, value) in the order of an operand's row
  alignas(64) static constexpr auto kPlaces = [] {
    struct {
      uint8_t at[4][64];
    } p = {};
    for (int i = 0; i < 4; ++i)
      for (int word = 0; word < 16; ++word)
        p.at[i][4 * word] = static_cast<uint8_t>(4 * (8 * (i % 2) + word / 2) + 2 * (i / 2) + word % 2);
    return p;
  }();
  constexpr __mmask64 kLowBytes = 0x1111111111111111u;
  const auto values = [&](int i) OV_INLINED {
    const __m512i codes = _mm512_maskz_permutexvar_epi8(kLowBytes, _mm512_load_si512(kPlaces.at[i]), quad.v);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes), s.scale[i % 2], s.shift[i % 2]);
  };
  _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(values(1), values(0)));
  _mm512_storeu_si512(out + 64, (__m512i)_mm512_cvtne2ps_pbh(values(3), values(2)));
}

// Groups [0, k / 32) of `Tiles` tiles, `step` bytes from one to the next, side by side: kOperandBytes per group and tile.
template <int Kind, int Tiles>
void expand_panel(const ov_weight& w, int64_t tile, int64_t step, const NextTiles& after, char* out) {
  using T = Tile<Kind>;
  constexpr int64_t kScaleBytes = T::kSuper ? T::kScaleBytes / 8 : T::kScaleBytes;  // of a group
  TilesAhead<Tiles, T::kGroupBytes, kScaleBytes> ahead(w, tile, step, after);
  ScaleReader<Kind> reader[Tiles];
  for (int c = 0; c < Tiles; ++c) reader[c].open(tile_scales(w, tile) + c * step);
  const uint8_t* codes = tile_codes(w, tile);
  const Lanes offset = set1(-static_cast<float>(T::kOffset));
  for (int64_t g = 0; g < w.k / 32; ++g, codes += T::kGroupBytes) {
    ahead.ask();
    for (int c = 0; c < Tiles; ++c, out += kOperandBytes) {
      const GroupScales s = reader[c].read(g);
      PairScales scales;
      // a product by an offset is exact, and so is the sum that takes it away again
      scales.set(s.first.v, (T::kMinimum ? s.second : s.first * offset).v);
      unroll<8>([&](auto q) OV_INLINED {
        if constexpr (T::kHalves && q.value == 4) scales.set(s.second.v, (s.second * offset).v);
        expand_operand_rows(expand_quad<Kind, q.value>(codes + c * step), scales, out + 128 * q.value);
      });
    }
  }
}

}  // namespace ov

#endif
