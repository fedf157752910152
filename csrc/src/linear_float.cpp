// BF16 weights times bf16 activations and F32 weights times f32 activations, accumulated in f32 in rising k.
#include "linear_block.h"
#include "tile_codec.h"

namespace ov {

namespace {

// One step: a pair of k values (bf16) or one (f32); 64 bytes of a tile either way, 4 bytes of a row.
template <bool Bf16>
OV_ALWAYS_INLINE Lanes step(Lanes acc, const uint8_t* w, const char* a) {
  if constexpr (Bf16) {
    uint32_t pair;
    memcpy(&pair, a, 4);
    return dot_pairs(acc, load_pairs(reinterpret_cast<const uint16_t*>(w)), set1_pair(pair));
  } else {
    return fma(load(reinterpret_cast<const float*>(w)), set1(*reinterpret_cast<const float*>(a)), acc);
  }
}

constexpr int64_t kStepBytes = 64 * kFloatTiles;  // a vector of each of the tiles side by side
constexpr int64_t kStepsPerAsk = 8;
using StepsAhead = TilesAhead<kStepsPerAsk * kStepBytes>;

template <bool Bf16, int R>
void multiply(const LinearBlock& b, int64_t tile, int64_t row, StepsAhead& ahead) {
  constexpr int C = kFloatTiles;
  const ov_weight& w = *b.segment->weight;
  const int64_t steps = Bf16 ? ceil_div(w.k, 2) : w.k;
  const uint8_t* at = float_tile(w, tile);
  const char* in = b.in + row * b.in_stride;
  Lanes acc[R][C];
  unroll<R>([&](auto r) OV_INLINED { unroll<C>([&](auto c) OV_INLINED { acc[r.value][c.value] = set1(0.0f); }); });
  for (int64_t i = 0; i < steps; ++i, at += kStepBytes) {
    if (i % kStepsPerAsk == 0) ahead.ask();
    unroll<C>([&](auto c) OV_INLINED {
      unroll<R>([&](auto r) OV_INLINED {
        acc[r.value][c.value] =
            step<Bf16>(acc[r.value][c.value], at + 64 * c.value, in + r.value * b.in_stride + 4 * i);
      });
    });
  }
  store_block(*b.segment, row, tile, acc);
}

template <bool Bf16, int R = kFloatRows>
void rows_of(const LinearBlock& b, int64_t tile, int64_t row, int64_t rows, StepsAhead& ahead) {
  if constexpr (R > 1) {
    if (rows < R) return rows_of<Bf16, R - 1>(b, tile, row, rows, ahead);
  }
  multiply<Bf16, R>(b, tile, row, ahead);
}

template <bool Bf16>
void run(const LinearBlock& b) {
  static_assert(float_strip_tiles(Bf16 ? OV_BF16 : OV_F32) == kFloatTiles);
  const ov_weight& w = *b.segment->weight;
  for (int64_t t = b.first_tile, end = t + b.tiles; t < end; t += kFloatTiles) {
    const NextTiles after = t + kFloatTiles < end ? next_tiles(w, t + kFloatTiles) : b.after;
    StepsAhead ahead(w, t, after, b.rows, ceil_div(b.rows, kFloatRows));
    for_row_parts(b.rows, kFloatRows,
                  [&](int64_t first, int64_t count) { rows_of<Bf16>(b, t, b.first_row + first, count, ahead); });
  }
}

}  // namespace

void linear_float(const LinearBlock& block) {
  if (block.segment->weight->kind == OV_BF16)
#if defined(OV_HAS_TILES)
    linear_bf16_tiles(block);
#else
    run<true>(block);
#endif
  else
    run<false>(block);
}

}  // namespace ov
