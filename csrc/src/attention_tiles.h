// The two products of attention over a bf16 cache in the tile registers of AMX.
//
// A sub-block of K is a B operand as it lies; of V two neighbours are one, copied together where they do not touch.
// A score is the instruction's chain over dims in steps of 32, a sum of V the one over tokens in steps of 32 at absolute
// positions: the query vectors that share the registers, one or 32, change neither. Knows nothing of: blocks, softmax.
#pragma once

#include "attention.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int kTileTokens = 2 * kSubBlock;  // of a step over V
inline constexpr int kTileDims = 32;               // of a step over K, of a block of outputs
inline constexpr int kTileVectorsHeld = 32;

inline bool fits_tiles(const KvShape& s) {
  return s.dtype == OV_BF16 && s.k_dim % kTileDims == 0 && s.v_dim % kTileDims == 0;
}

// Registers: 0-3 sums (vector tile * 2 + column tile), 4 and 5 queries or weights, 6 and 7 K or V.
inline TileConfig attention_shapes(int vectors) {
  TileConfig c;
  const int first = vectors > 16 ? (vectors + 1) / 2 : vectors, second = vectors > first ? vectors - first : 1;
  for (int i = 0; i < 2; ++i) {
    c.set(i, first, 64);
    c.set(2 + i, second, 64);
    c.set(6 + i, 16, 64);
  }
  c.set(4, first, 64);
  c.set(5, second, 64);
  return c;
}

// `steps` products of A rows (64 bytes per step) with B operands step(i, 0) and step(i, 1) -> two column tiles of sums.
struct TileProduct {
  const char* a;
  int64_t a_stride;
  int half;  // vectors of the first tile
  int steps;
  int64_t b_stride;
  float* out;
  int64_t out_stride;  // bytes
};

template <int Rows, int Columns, class Step>
OV_ALWAYS_INLINE void tile_product(const TileProduct& p, Step&& b) {
  const char* const below = p.a + p.half * p.a_stride;
  unroll<2 * Rows>([&](auto i) OV_INLINED { tile_zero<i.value>(); });
  for (int i = 0; i < p.steps; ++i) {
    tile_load<4>(p.a + 64 * i, p.a_stride);
    tile_load<6>(b(i, 0), p.b_stride);
    tile_dot_bf16<0, 4, 6>();
    if constexpr (Columns == 2) {
      tile_load<7>(b(i, 1), p.b_stride);
      tile_dot_bf16<1, 4, 7>();
    }
    if constexpr (Rows == 2) {
      tile_load<5>(below + 64 * i, p.a_stride);
      tile_dot_bf16<2, 5, 6>();
      if constexpr (Columns == 2) tile_dot_bf16<3, 5, 7>();
    }
  }
  char* const out = reinterpret_cast<char*>(p.out);
  tile_store<0>(out, p.out_stride);
  if constexpr (Columns == 2) tile_store<1>(out + 64, p.out_stride);
  if constexpr (Rows == 2) {
    tile_store<2>(out + p.half * p.out_stride, p.out_stride);
    if constexpr (Columns == 2) tile_store<3>(out + p.half * p.out_stride + 64, p.out_stride);
  }
}

// scores[m][16 n ..] = q[m] . K of sub-block k[n]; at least one, none of them null.
template <int Rows>
void score_tiles(const char* q, int64_t q_stride, int half, const char* const* k, int subs, int dims, float* scores) {
  TileProduct p{q, q_stride, half, dims / kTileDims, 64, scores, kPartition * 4};
  int n = 0;
  for (; n + 2 <= subs; n += 2, p.out += 2 * kSubBlock)
    tile_product<Rows, 2>(p, [&](int step, int column) OV_INLINED { return k[n + column] + 1024 * step; });
  if (n < subs) tile_product<Rows, 1>(p, [&](int step, int) OV_INLINED { return k[n] + 1024 * step; });
}

// A partition's V, two sub-blocks of 16 tokens to a step; where they do not follow each other, or are not all read,
// a step's 32 dims are copied into `panel` [steps][16 pairs][32 dims][2].
struct TileValues {
  const char* low[kPartition / kTileTokens];   // null: weights are 0, not read
  const char* high[kPartition / kTileTokens];  // as low
  int valid[kPartition / kTileTokens];         // slots that hold tokens, from the first of the step on
  int steps, v_dim;

  bool is_direct(int i) const { return low[i] && valid[i] >= kTileTokens && high[i] == low[i] + 32 * v_dim; }
  // Dims [d, d + 32) of step i.
  void copy(int i, int d, char* panel) const {
    for (int pair = 0; pair < kSubBlock; ++pair, panel += 4 * kTileDims) {
      const char* sub = pair < 8 ? low[i] : high[i];
      const int left = valid[i] - 2 * pair;
      __m512i x = _mm512_setzero_si512(), y = x;
      if (sub && left > 0) {
        const char* row = sub + int64_t{4} * v_dim * (pair & 7) + 4 * d;
        const __m512i keep = _mm512_set1_epi32(left > 1 ? -1 : 0xffff);
        x = _mm512_and_si512(keep, _mm512_loadu_si512(row));
        y = _mm512_and_si512(keep, _mm512_loadu_si512(row + 64));
      }
      _mm512_storeu_si512(panel, x);
      _mm512_storeu_si512(panel + 64, y);
    }
  }
};

inline constexpr int64_t kPanelBytes = int64_t{4} * kTileDims * kSubBlock * (kPartition / kTileTokens);

// out[m][0 ..) = sum over steps of weights[m] x V. panel: kPanelBytes.
template <int Rows>
void value_tiles(const char* weights, int half, const TileValues& v, char* panel, float* out, int64_t out_stride) {
  constexpr int64_t kStepBytes = int64_t{4} * kTileDims * kSubBlock;
  bool is_direct = true;
  for (int i = 0; i < v.steps; ++i) is_direct = is_direct && v.is_direct(i);
  for (int d = 0; d < v.v_dim; d += kTileDims) {
    TileProduct p{weights, 2 * kPartition, half, v.steps, 4 * v.v_dim, out + d, 4 * out_stride};
    if (is_direct) {
      tile_product<Rows, 2>(p, [&](int i, int column) OV_INLINED { return v.low[i] + 4 * d + 64 * column; });
      continue;
    }
    for (int i = 0; i < v.steps; ++i) v.copy(i, d, panel + kStepBytes * i);
    p.b_stride = 4 * kTileDims;
    tile_product<Rows, 2>(p, [&](int i, int column) OV_INLINED { return panel + kStepBytes * i + 64 * column; });
  }
}

}  // namespace ov

#endif
