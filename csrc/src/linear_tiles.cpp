// BF16 weights times bf16 activations in the tile registers of AMX, accumulated in f32.
//
// A packed group of 16 pairs of k is a B operand as it lies, 32 values of a prepared row are a row of an A operand.
// The arithmetic of an output is that of the instruction over k in steps of 32, whatever rows share the registers.
#include "linear_block.h"
#include "scratch.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

namespace {

constexpr int64_t kStepBytes = 1024;  // 32 values of k x 16 columns
constexpr int64_t kRegisterRows = 16, kPartRows = 2 * kRegisterRows;

// Registers: 0-3 sums (row tile * 2 + column tile), 4 and 5 activations, 6 and 7 weights.
TileConfig shapes(int64_t rows) {
  TileConfig c;
  const int64_t first = rows > kRegisterRows ? (rows + 1) / 2 : rows, second = rows > first ? rows - first : 1;
  for (int i = 0; i < 2; ++i) {
    c.set(i, first, 64);
    c.set(2 + i, second, 64);
    c.set(6 + i, 16, 64);
  }
  c.set(4, first, 64);
  c.set(5, second, 64);
  return c;
}

// One or two row tiles (the second starts `half` rows below) x one or two column tiles over all of k, into
// sums[rows][16 Columns].
template <int Rows, int Columns>
void multiply(const char* in, int64_t in_stride, int64_t half, const uint8_t* codes, int64_t tile_bytes, int64_t steps,
              float* sums) {
  constexpr int64_t kAhead = 4096;
  const char* const second = in + half * in_stride;
  unroll<Rows>([&](auto r) OV_INLINED { unroll<Columns>([&](auto c) OV_INLINED { tile_zero<2 * r.value + c.value>(); }); });
  for (int64_t i = 0; i < steps; ++i, codes += kStepBytes) {
    if constexpr (Rows == 1)  // few rows: weights come from memory
      unroll<Columns>([&](auto c) OV_INLINED {
        for (int line = 0; line < kStepBytes; line += 64)
          __builtin_prefetch(codes + c.value * tile_bytes + kAhead + line, 0, 2);
      });
    tile_load<4>(in + 64 * i, in_stride);
    tile_load<6>(codes, 64);
    tile_dot_bf16<0, 4, 6>();
    if constexpr (Columns == 2) {
      tile_load<7>(codes + tile_bytes, 64);
      tile_dot_bf16<1, 4, 7>();
    }
    if constexpr (Rows == 2) {
      tile_load<5>(second + 64 * i, in_stride);
      tile_dot_bf16<2, 5, 6>();
      if constexpr (Columns == 2) tile_dot_bf16<3, 5, 7>();
    }
  }
  constexpr int64_t kSumsStride = Columns * 64;
  tile_store<0>(sums, kSumsStride);
  if constexpr (Columns == 2) tile_store<1>(sums + 16, kSumsStride);
  if constexpr (Rows == 2) {
    float* const below = sums + half * Columns * 16;
    tile_store<2>(below, kSumsStride);
    if constexpr (Columns == 2) tile_store<3>(below + 16, kSumsStride);
  }
}

template <int Columns>
void tiles_of(const LinearBlock& b, int64_t tile, int64_t row, int64_t rows, float* sums) {
  const ov_weight& w = *b.segment->weight;
  const char* in = b.in + row * b.in_stride;
  const int64_t steps = ceil_div(w.k, 32), half = (rows + 1) / 2;
  if (rows > kRegisterRows)
    multiply<2, Columns>(in, b.in_stride, half, tile_codes(w, tile), w.tile_bytes, steps, sums);
  else
    multiply<1, Columns>(in, b.in_stride, 0, tile_codes(w, tile), w.tile_bytes, steps, sums);
  for (int64_t r = 0; r < rows; ++r) {
    Lanes acc[1][Columns];
    unroll<Columns>([&](auto c) OV_INLINED { acc[0][c.value] = load(sums + (r * Columns + c.value) * kLanes); });
    store_block(*b.segment, row + r, tile, acc);
  }
}

}  // namespace

void linear_bf16_tiles(const LinearBlock& b) {
  static thread_local Scratch scratch;
  float* sums = static_cast<float*>(scratch.take(kPartRows * 2 * 64));
  const int64_t end = b.first_tile + b.tiles;
  int64_t shaped = b.rows < kPartRows ? b.rows : kPartRows;
  TileShapes registers(shapes(shaped));
  for_row_parts(b.rows, kPartRows, [&](int64_t first, int64_t rows) {
    if (rows != shaped) registers.load(shapes(shaped = rows));
    int64_t t = b.first_tile;
    for (; t + 2 <= end; t += 2) tiles_of<2>(b, t, b.first_row + first, rows, sums);
    if (t < end) tiles_of<1>(b, t, b.first_row + first, rows, sums);
  });
}

}  // namespace ov

#endif
