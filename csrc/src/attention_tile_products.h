// The two products of attention in tile registers: scores from queries and K, sums of V by weights.
//
// A score is the instruction's chain over dims in steps of 32, a sum of V the one over tokens in steps of 32: the query
// vectors that share the registers, one or 32, change neither. beside() comes after each tile instruction: where another
// hyperthread shares the core these wait for each other, and a few vector instructions there cost nothing.
// Knows nothing of: blocks, partitions, softmax.
#pragma once

#include "attention_softmax_steps.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int kTileDims = 32;  // of a step over K, of a block of outputs

// Registers are those of two_by_two(): vectors are rows, K or V columns. Where queries stay in registers: 0 and 2 sums, 1 and
// 4 queries of the first tile, 3 and 5 those of the second.
// `steps` products of rows of A (64 bytes per step) with two operands of B -> two column tiles of sums.
struct TileProduct {
  const char* a;
  int64_t a_stride;
  int half;  // vectors of the first tile
  int steps;
  const char* b[2];
  int64_t b_stride, b_step;  // bytes from row to row, from step to step
  char* out;
  int64_t out_stride;  // bytes
};

// `beside` is a copy that no call sees: so it can live in registers.
template <int Rows, int Columns, class Beside>
__attribute__((noinline)) void tile_product(const TileProduct& p, Beside& shared) {
  Beside beside = shared;
  const char *a = p.a, *below = p.a + p.half * p.a_stride, *b = p.b[0];
  const int64_t a_stride = p.a_stride, b_stride = p.b_stride, b_step = p.b_step, column = p.b[1] - p.b[0];
  unroll<2 * Rows>([&](auto i) OV_INLINED { tile_zero<i.value>(); });
  for (int i = p.steps; i > 0; --i, a += 64, below += 64, b += b_step) {
    tile_load<4>(a, a_stride);
    beside();
    tile_load<6>(b, b_stride);
    beside();
    tile_dot_bf16<0, 4, 6>();
    beside();
    if constexpr (Columns == 2) {
      tile_load<7>(b + column, b_stride);
      beside();
      tile_dot_bf16<1, 4, 7>();
      beside();
    }
    if constexpr (Rows == 2) {
      tile_load<5>(below, a_stride);
      beside();
      tile_dot_bf16<2, 5, 6>();
      beside();
      if constexpr (Columns == 2) {
        tile_dot_bf16<3, 5, 7>();
        beside();
      }
    }
  }
  tile_store<0>(p.out, p.out_stride);
  if constexpr (Columns == 2) tile_store<1>(p.out + 64, p.out_stride);
  if constexpr (Rows == 2) {
    tile_store<2>(p.out + p.half * p.out_stride, p.out_stride);
    if constexpr (Columns == 2) tile_store<3>(p.out + p.half * p.out_stride + 64, p.out_stride);
  }
  shared = beside;
}

// Scores of some vectors: [m][16 n ..] = q[m] . K of sub-block k[n]; at least one, none of them null.
struct ScoreTiles {
  const char* q;
  int64_t q_stride;
  int half;  // vectors of the first tile
  const char* const* k;
  int subs, dims;
  float* scores;
};

// Two steps of dims: the queries stay in registers.
template <int Rows, class Beside>
__attribute__((noinline)) void scores_of_two_steps(const ScoreTiles& t, Beside& shared) {
  Beside beside = shared;
  const char* const below = t.q + t.half * t.q_stride;
  tile_load<1>(t.q, t.q_stride);
  tile_load<4>(t.q + 64, t.q_stride);
  if constexpr (Rows == 2) {
    tile_load<3>(below, t.q_stride);
    tile_load<5>(below + 64, t.q_stride);
  }
  constexpr int64_t kStride = 4 * kScoreStride;
  char *out = reinterpret_cast<char*>(t.scores), *const out_below = out + t.half * kStride;
  const char* const* k = t.k;
  for (int64_t at = 0, end = t.subs * int64_t{4} * kSubBlock; at < end; at += 4 * kSubBlock, ++k) {
    tile_load<6>(*k, 64);
    beside();
    tile_zero<0>();
    tile_dot_bf16<0, 1, 6>();
    beside();
    if constexpr (Rows == 2) {
      tile_zero<2>();
      tile_dot_bf16<2, 3, 6>();
      beside();
    }
    tile_load<7>(*k + 1024, 64);
    beside();
    tile_dot_bf16<0, 4, 7>();
    beside();
    if constexpr (Rows == 2) {
      tile_dot_bf16<2, 5, 7>();
      beside();
    }
    tile_store<0>(out + at, kStride);
    if constexpr (Rows == 2) {
      beside();
      tile_store<2>(out_below + at, kStride);
      beside();
    }
  }
  shared = beside;
}

template <int Rows, class Beside>
OV_ALWAYS_INLINE void score_tiles(const ScoreTiles& t, Beside& beside) {
  if (t.dims == 2 * kTileDims) return scores_of_two_steps<Rows>(t, beside);
  for (int n = 0; n < t.subs; n += 2) {
    const bool are_two = n + 2 <= t.subs;
    const TileProduct p{t.q,
                        t.q_stride,
                        t.half,
                        t.dims / kTileDims,
                        {t.k[n], t.k[n + are_two]},
                        64,
                        1024,
                        reinterpret_cast<char*>(t.scores + n * kSubBlock),
                        4 * kScoreStride};
    are_two ? tile_product<Rows, 2>(p, beside) : tile_product<Rows, 1>(p, beside);
  }
}

// Sums of V of some vectors: out[m][0 .. dims) = sum over steps of weights[m] x V, in a panel
// [step][16 pairs of tokens][dims][2].
struct ValueTiles {
  const char* weights;
  int half;  // vectors of the first tile
  const char* panel;
  int steps, dims;
  float* out;
  int64_t out_stride;
};

template <int Rows, class Beside>
OV_ALWAYS_INLINE void value_tiles(const ValueTiles& t, Beside& beside) {
  for (int d = 0; d < t.dims; d += kTileDims) {
    const char* const v = t.panel + 4 * d;
    const TileProduct p{t.weights,
                        4 * kScoreStride,
                        t.half,
                        t.steps,
                        {v, v + 64},
                        4 * t.dims,
                        int64_t{2} * kStepTokens * t.dims,
                        reinterpret_cast<char*>(t.out + d),
                        4 * t.out_stride};
    tile_product<Rows, 2>(p, beside);
  }
}

}  // namespace ov

#endif
