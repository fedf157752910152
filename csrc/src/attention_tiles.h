// The two products of attention over bf16 and one-byte caches in the tile registers of AMX.
//
// A bf16 sub-block of K is a B operand as it lies; of V two neighbours are one, copied together where they do not touch.
// One-byte codes are expanded to bf16, exactly, into the same order.
// A score is the instruction's chain over dims in steps of 32, a sum of V the one over tokens in steps of 32 at absolute
// positions: the query vectors that share the registers, one or 32, change neither. Knows nothing of: blocks, softmax.
#pragma once

#include "attention_block.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int kTileTokens = 2 * kSubBlock;  // of a step over V
inline constexpr int kTileDims = 32;               // of a step over K, of a block of outputs
inline constexpr int kTileVectorsHeld = 32;
inline constexpr int kPanelSubs = 16;  // sub-blocks of K expanded at a time

// Codes that are expanded to bf16: their weights are rounded as those of a bf16 cache.
template <class Cache>
struct Expanded : Cache {
  static constexpr int kPerWord = 2;
  // Codes at p in the low halves, those at q in the high ones.
  static __m512i pair(const char* p, const char* q) {
    const __m512i low = _mm512_castps_si512(Cache::load(p).v), high = _mm512_castps_si512(Cache::load(q).v);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
  }
  static void expand_k(const char* k, int dims, char* out) {
    for (int d = 0; d < dims; d += 2, k += 2 * kSubBlock, out += 64) _mm512_storeu_si512(out, pair(k, k + kSubBlock));
  }
};

inline bool fits_tiles(const KvShape& s) {
  return s.dtype != OV_F32 && s.k_dim % kTileDims == 0 && s.v_dim % kTileDims == 0;
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

// Sub-blocks of one-byte codes as those of a bf16 cache, one behind the other in `panel`.
template <class Cache>
void expand_k(const char* const* k, int subs, int dims, char* panel, const char** expanded) {
  for (int i = 0; i < subs; ++i, panel += 2 * kSubBlock * dims) {
    Cache::expand_k(k[i], dims, panel);
    expanded[i] = panel;
  }
}

// A partition's V, two sub-blocks of 16 tokens to a step; unless these follow each other and are read whole, a step's
// 32 dims are copied or expanded into a panel [16 pairs][32 dims][2].
struct TileValues {
  static constexpr int kSteps = kPartition / kTileTokens;
  const char* low[kSteps];   // null: weights are 0, not read
  const char* high[kSteps];  // as low
  int valid[kSteps];         // slots that hold tokens, from the first of the step on
  int steps, v_dim;

  bool is_direct(int i) const { return low[i] && valid[i] >= kTileTokens && high[i] == low[i] + 32 * v_dim; }
  template <class Cache>
  void fill(int i, int d, char* panel) const {
    fill_half<Cache>(low[i], valid[i], d, panel);
    fill_half<Cache>(high[i], valid[i] - kSubBlock, d, panel + kTileDims * 4 * kSubBlock / 2);
  }

 private:
  template <class Cache>
  void fill_half(const char* sub, int count, int d, char* panel) const {
    constexpr int kRow = 4 * kTileDims;
    if (!sub) {
      memset(panel, 0, kRow * kSubBlock / 2);
    } else if constexpr (Cache::kHasScales) {  // finite codes in every slot
      for (int token = 0; token < kSubBlock; token += 2, panel += kRow) {
        const char* p = sub + token * v_dim + d;
        for (int i = 0; i < 2; ++i) _mm512_storeu_si512(panel + 64 * i, Cache::pair(p + 16 * i, p + v_dim + 16 * i));
      }
    } else {
      // moves alone: for a while after a tile instruction arithmetic has one port
      for (int pair = 0; pair < kSubBlock / 2; ++pair) memcpy(panel + kRow * pair, sub + 4 * (pair * v_dim + d), kRow);
      auto* slots = reinterpret_cast<uint16_t*>(panel);
      for (int token = count < 0 ? 0 : count; token < kSubBlock; ++token)  // hold anything, also NaN
        for (int i = 0; i < kTileDims; ++i) slots[(token / 2) * 2 * kTileDims + 2 * i + (token & 1)] = 0;
    }
  }
};

inline constexpr int64_t kPanelBytes = int64_t{4} * kTileDims * kSubBlock * (kPartition / kTileTokens);

// out[m][0 ..) = sum over steps of weights[m] x V. panel: kPanelBytes.
template <class Cache, int Rows>
void value_tiles(const char* weights, int half, const TileValues& v, char* panel, float* out, int64_t out_stride) {
  constexpr int64_t kStepBytes = int64_t{4} * kTileDims * kSubBlock;
  bool is_direct = !Cache::kHasScales;
  for (int i = 0; i < v.steps; ++i) is_direct = is_direct && v.is_direct(i);
  for (int d = 0; d < v.v_dim; d += kTileDims) {
    TileProduct p{weights, 2 * kPartition, half, v.steps, 4 * v.v_dim, out + d, 4 * out_stride};
    if (is_direct) {
      tile_product<Rows, 2>(p, [&](int i, int column) OV_INLINED { return v.low[i] + 4 * d + 64 * column; });
      continue;
    }
    for (int i = 0; i < v.steps; ++i) v.fill<Cache>(i, d, panel + kStepBytes * i);
    p.b_stride = 4 * kTileDims;
    tile_product<Rows, 2>(p, [&](int i, int column) OV_INLINED { return panel + kStepBytes * i + 64 * column; });
  }
}

}  // namespace ov

#endif
