// The two products of attention over bf16 and one-byte caches in the tile registers of AMX.
//
// A bf16 sub-block of K is a B operand as it lies; of V two neighbours are one, copied together once for all tiles of a
// task. One-byte codes are expanded to bf16, exactly, into the same order.
// A score is the instruction's chain over dims in steps of 32, a sum of V the one over tokens in steps of 32 at absolute
// positions: the query vectors that share the registers, one or 32, change neither. Knows nothing of: blocks, softmax.
#pragma once

#include "attention_block.h"
#include "attention_sub_blocks.h"
#include "attention_task.h"
#include "attention_tile_softmax.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int kTileDims = 32;  // of a step over K, of a block of outputs

// Codes that are expanded to bf16: their weights are rounded as those of a bf16 cache.
template <class Cache>
struct Expanded : Cache {
  static constexpr int kPerWord = 2;
  // Codes at p in the low halves, those at q in the high ones.
  static __m512i pair(const char* p, const char* q) {
    const __m512i low = _mm512_castps_si512(Cache::load(p).v), high = _mm512_castps_si512(Cache::load(q).v);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
  }
  // Sub-blocks of K, and some dims of one of V, as those of a bf16 cache.
  static void expand_k(const char* k, int dims, char* out) {
    for (int d = 0; d < dims; d += 2, k += 2 * kSubBlock, out += 64) _mm512_storeu_si512(out, pair(k, k + kSubBlock));
  }
  static void expand_v(const char* v, int v_dim, int dims, char* out) {
    for (int token = 0; token < kSubBlock; token += 2, v += 2 * v_dim)
      for (int d = 0; d < dims; d += kLanes, out += 64) _mm512_storeu_si512(out, pair(v + d, v + v_dim + d));
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
  TileProduct p{q, q_stride, half, dims / kTileDims, 64, scores, kScoreStride * 4};
  int n = 0;
  for (; n + 2 <= subs; n += 2, p.out += 2 * kSubBlock)
    tile_product<Rows, 2>(p, [&](int step, int column) OV_INLINED { return k[n + column] + 1024 * step; });
  if (n < subs) tile_product<Rows, 1>(p, [&](int step, int) OV_INLINED { return k[n] + 1024 * step; });
}

// out[m][0 .. dims) = sum over steps of weights[m] x V, in a panel [step][16 pairs of tokens][dims][2].
template <int Rows>
void value_tiles(const char* weights, int half, const char* panel, int steps, int dims, float* out,
                 int64_t out_stride) {
  const int64_t step_bytes = int64_t{2} * kStepTokens * dims;
  for (int d = 0; d < dims; d += kTileDims) {
    const TileProduct p{weights, 4 * kScoreStride, half, steps, 4 * dims, out + d, 4 * out_stride};
    tile_product<Rows, 2>(p,
                          [&](int i, int column) OV_INLINED { return panel + step_bytes * i + 4 * d + 64 * column; });
  }
}

// A partition's K and V as operands, for all tiles of a task. Steps over V are of 32 tokens at absolute positions.
template <class Cache>
class TilesPartition {
 public:
  TilesPartition(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, int partition, const Workspace& ws)
      : subs_(a, step, rows, partition) {
    if constexpr (Cache::kHasScales) {
      const KvShape& s = a.layer->shape;
      const SubSpan span(rows, subs_.start);
      for (int i = span.first; i < span.last; ++i) {
        char* expanded = ws.k_panel + int64_t{2} * i * kSubBlock * s.k_pad;
        prefetch(subs_.v[i], s.v_sub_bytes);
        Cache::expand_k(subs_.k[i], s.k_dim, expanded);
        subs_.k[i] = expanded;
      }
    }
  }

  // Results of the partition for some tiles: all scores, all weights, all sums of V, as the tile unit takes 700 cycles to
  // wake up after some thousands without it.
  void run(const AttentionArgs& a, const TileJob* jobs, int num_jobs, const Workspace& ws) const {
    const KvShape& s = a.layer->shape;
    const int64_t q_stride = int64_t{2} * s.k_pad;
    int held = jobs[0].rows.vectors < kTileVectors ? jobs[0].rows.vectors : kTileVectors;  // what the shapes are for
    TileShapes registers(attention_shapes(held));
    for (int i = 0; i < num_jobs; ++i) {
      const SubSpan span(jobs[i].rows, subs_.start);
      float* scores = ws.scores + i * ws.score_floats;
      each_part(jobs[i].rows.vectors, registers, held, [&](int m, int half, auto rows) {
        score_tiles<decltype(rows)::value>(jobs[i].q + m * q_stride, q_stride, half, subs_.k + span.first,
                                           span.last - span.first, s.k_dim,
                                           scores + int64_t{m} * kScoreStride + span.first * kSubBlock);
      });
    }
    for (int i = 0; i < num_jobs; ++i) {
      const SubSpan span(jobs[i].rows, subs_.start);
      tile_softmax<Cache>(a, jobs[i].rows, subs_.start, ws.scores + i * ws.score_floats, subs_.scales,
                          span.first_step(), span.last_step(), jobs[i].result);
    }
    sum_values(s, jobs, num_jobs, ws, registers, held);
  }

 private:
  // V goes into a panel once for all tiles; for a single one by 32 dims, which stay in the first-level cache.
  void sum_values(const KvShape& s, const TileJob* jobs, int num_jobs, const Workspace& ws, TileShapes& registers,
                  int& held) const {
    int begin = kSubsPerPartition, end = 0;
    for (int i = 0; i < num_jobs; ++i) {
      const SubSpan span(jobs[i].rows, subs_.start);
      begin = span.first_step() < begin ? span.first_step() : begin;
      end = span.last_step() > end ? span.last_step() : end;
    }
    const int dims = num_jobs > 1 ? s.v_dim : kTileDims, v_pad = padded_v(s);
    for (int d = 0; d < s.v_dim; d += dims) {
      for (int i = 2 * begin; i < 2 * end; ++i) fill(i, s.v_dim, d, dims, ws.v_panel);
      for (int i = 0; i < num_jobs; ++i) {
        const SubSpan span(jobs[i].rows, subs_.start);
        const int first = span.first_step() * kStepTokens, steps = span.last_step() - span.first_step();
        const float* scores = ws.scores + i * ws.score_floats;
        each_part(jobs[i].rows.vectors, registers, held, [&](int m, int half, auto rows) {
          const auto* weights = reinterpret_cast<const uint16_t*>(scores + int64_t{m} * kScoreStride) + first;
          value_tiles<decltype(rows)::value>(reinterpret_cast<const char*>(weights), half,
                                             ws.v_panel + int64_t{2} * first * dims, steps, dims,
                                             jobs[i].result.out + int64_t{m} * v_pad + d, v_pad);
        });
      }
    }
  }

  // Dims [d, d + dims) of sub-block i -> panel.
  void fill(int i, int v_dim, int d, int dims, char* panel) const {
    panel += int64_t{2} * i * kSubBlock * dims;
    const int row = 4 * dims;  // bytes of a pair of tokens
    if (!subs_.v[i]) {
      memset(panel, 0, static_cast<size_t>(row) * kSubBlock / 2);
    } else if constexpr (Cache::kHasScales) {  // finite codes in every slot
      Cache::expand_v(subs_.v[i] + d, v_dim, dims, panel);
    } else {
      // moves alone: for a while after a tile instruction arithmetic has one port
      for (int pair = 0; pair < kSubBlock / 2; ++pair)
        for (int at = 0; at < row; at += 64)
          _mm512_storeu_si512(panel + row * pair + at, _mm512_loadu_si512(subs_.v[i] + 4 * (pair * v_dim + d) + at));
      auto* slots = reinterpret_cast<uint16_t*>(panel);
      const int valid = subs_.valid - i * kSubBlock;
      for (int t = valid < 0 ? 0 : valid; t < kSubBlock; ++t)  // hold anything, also NaN
        for (int x = 0; x < dims; ++x) slots[(t / 2) * 2 * dims + 2 * x + (t & 1)] = 0;
    }
  }

  // f(first vector, vectors of the first tile, tiles) for what fits in the registers.
  template <class F>
  static void each_part(int vectors, TileShapes& registers, int& held, F&& f) {
    for (int m = 0; m < vectors; m += kTileVectors) {
      const int count = vectors - m < kTileVectors ? vectors - m : kTileVectors;
      if (count != held) registers.load(attention_shapes(count));
      held = count;
      const int half = count > 16 ? (count + 1) / 2 : count;
      count > 16 ? f(m, half, std::integral_constant<int, 2>{}) : f(m, half, std::integral_constant<int, 1>{});
    }
  }

  SubBlocks<Cache> subs_;
};

}  // namespace ov

#endif
