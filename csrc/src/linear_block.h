// One piece of a linear layer: some tiles of one segment times some rows. linear.cpp cuts the work into these;
// linear_int8.cpp and linear_float.cpp compute them. Knows nothing of: threads.
#pragma once

#include "byte_lanes.h"
#include "linear.h"

namespace ov {

struct LinearBlock {
  const LinearSegment* segment;
  const char* in;  // row 0 of the whole input, prepared
  int64_t in_stride;
  int64_t first_row, rows;
  int64_t first_tile, tiles;
};

// At most this many rows are multiplied straight from the packed tiles; above it, tiles are expanded once per block of
// rows.
#if defined(__AVX512VNNI__)
inline constexpr int kIntRows = 6, kIntTiles = 2, kFloatRows = 8, kFloatTiles = 2;
#elif defined(__AVX2__)
inline constexpr int kIntRows = 3, kIntTiles = 1, kFloatRows = 3, kFloatTiles = 2;
#else
inline constexpr int kIntRows = 1, kIntTiles = 1, kFloatRows = 2, kFloatTiles = 1;
#endif

void linear_int8(const LinearBlock& block);
void linear_float(const LinearBlock& block);  // BF16 and F32

// Stores R rows x C tiles: accumulator, + bias, + residual.
template <int R, int C>
OV_ALWAYS_INLINE void store_block(const LinearSegment& s, int64_t row, int64_t tile, const Lanes (&acc)[R][C]) {
  for (int r = 0; r < R; ++r) {
    float* out = reinterpret_cast<float*>(reinterpret_cast<char*>(s.out) + (row + r) * s.out_stride);
    const float* residual = reinterpret_cast<const float*>(reinterpret_cast<const char*>(s.residual) +
                                                           (s.residual ? (row + r) * s.residual_stride : 0));
    for (int c = 0; c < C; ++c) {
      const int64_t column = (tile + c) * kTileColumns;
      const int64_t left = s.weight->n - column;
      Lanes x = acc[r][c];
      if (left >= kLanes) {
        if (s.bias) x = x + load(s.bias + column);
        if (s.residual) x = x + load(residual + column);
        store(out + column, x);
      } else {
        const int count = static_cast<int>(left);
        if (s.bias) x = x + load_part(s.bias + column, count);
        if (s.residual) x = x + load_part(residual + column, count);
        store_part(out + column, x, count);
      }
    }
  }
}

// f(first, count) over `rows` rows in nearly equal parts of at most `limit`.
template <class F>
inline void for_row_parts(int64_t rows, int64_t limit, F&& f) {
  const int64_t parts = ceil_div(rows, limit);
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = rows * i / parts;
    f(begin, rows * (i + 1) / parts - begin);
  }
}

}  // namespace ov
