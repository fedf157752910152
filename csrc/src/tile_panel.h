// Packed tiles of quantised kinds as bf16 operands of the tile registers.
//
// A panel holds, per 32 values of k, two operands side by side: column tiles of one weight or of two. An operand is what
// tile_dot_bf16 reads: 16 rows of 64 bytes, row i the pair (k = 2 i, 2 i + 1) of each of 16 columns. A value is
// code * scale (+ minimum), exactly that of the format as f32, then rounded to bf16, to nearest even. Present where the
// level has tile registers. Knows nothing of: activations.
#pragma once

#include "tile_codec.h"
#include "tiles.h"
#include "tiles_ahead.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int64_t kOperandBytes = 1024;  // 32 values of k x 16 columns
inline constexpr int64_t kPanelStep = 2 * kOperandBytes;

// One of the column tiles of a panel.
struct PanelColumn {
  const ov_weight* weight;
  int64_t tile;
};

// Of eight columns, each twice: what the values of a pair are multiplied with and added to.
struct PairScales {
  __m512 scale[2], shift[2];  // columns 0-7 and 8-15

  OV_ALWAYS_INLINE void set(Lanes scales, Lanes shifts) {
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    scale[0] = _mm512_permutexvar_ps(low, scales.v);
    scale[1] = _mm512_permutexvar_ps(high, scales.v);
    shift[0] = _mm512_permutexvar_ps(low, shifts.v);
    shift[1] = _mm512_permutexvar_ps(high, shifts.v);
  }
};

// Two rows of an operand from a quad of codes: four values of k of sixteen columns.
OV_ALWAYS_INLINE void expand_operand_rows(Bytes quad, const PairScales& s, char* out) {
  // byte 4 c + j is value j of column c; words become (column, value) in the order of an operand's row
  struct Places {
    alignas(64) uint8_t at[4][64];
  };
  static constexpr Places kPlaces = [] {
    Places p = {};
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
  _mm512_store_si512(out, (__m512i)_mm512_cvtne2ps_pbh(values(1), values(0)));
  _mm512_store_si512(out + 64, (__m512i)_mm512_cvtne2ps_pbh(values(3), values(2)));
}

template <int Kind>
void expand_tile_of(const ov_weight& w, int64_t tile, const NextTiles& after, char* out) {
  using T = Tile<Kind>;
  TilesAhead<1, T::kGroupBytes, T::kSuper ? T::kScaleBytes / 8 : T::kScaleBytes> ahead(w, tile, w.tile_bytes, after);
  ScaleReader<Kind> reader(tile_scales(w, tile));
  const uint8_t* codes = tile_codes(w, tile);
  const Lanes offset = set1(-static_cast<float>(T::kOffset));
  for (int64_t g = 0; g < w.k / 32; ++g, codes += T::kGroupBytes, out += kPanelStep) {
    ahead.ask();
    const GroupScales s = reader.read(g);
    PairScales scales;
    // a product by an offset is exact, and so is the sum that takes it away again
    scales.set(s.first, T::kMinimum ? s.second : s.first * offset);
    unroll<8>([&](auto q) OV_INLINED {
      if constexpr (T::kHalves && q.value == 4) scales.set(s.second, s.second * offset);
      expand_operand_rows(expand_quad<Kind, q.value>(codes), scales, out + 128 * q.value);
    });
  }
}

// Two column tiles side by side; `after` is read after them.
inline void expand_panel(const PanelColumn& first, const PanelColumn& second, const NextTiles& after, char* panel) {
  const auto expand = [](const PanelColumn& c, const NextTiles& then, char* out) {
    visit_quantized(c.weight->kind, [&]<int Kind>() { expand_tile_of<Kind>(*c.weight, c.tile, then, out); });
  };
  expand(first, next_tiles(*second.weight, second.tile), panel);
  expand(second, after, panel + kOperandBytes);
}

}  // namespace ov

#endif
