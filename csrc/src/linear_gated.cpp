// act(x W) * (x V) as int8 groups, where both weights are multiplied in vector registers.
//
// The columns of a group of the output are computed of either weight into this thread's memory, gated and quantised
// while they are in its nearest caches. Knows nothing of: threads.
#include "act_lanes.h"
#include "linear_block.h"
#include "prepare.h"
#include "quantize_groups.h"
#include "rotate.h"
#include "scratch.h"

namespace ov {
namespace {

constexpr int kRowsAtOnce = 16;  // whose groups are quantised together

// Groups of 32 columns of `Rows` rows from `row` on, side by side in x, to where the layout of a row has group `group`.
template <int Rows>
void quantize_rows(const float* x, const View& out, const A8Layout& l, int64_t row, int64_t group) {
  alignas(64) int8_t q[Rows * kGroup];
  alignas(64) float scale[kRowsAtOnce], sum[kRowsAtOnce];
  alignas(64) int32_t sum16[2 * kRowsAtOnce];
  quantize_groups<Rows>(x, {q, scale, sum, sum16});
  for (int r = 0; r < Rows; ++r) {
    char* const to = static_cast<char*>(out.row(row + r));
    memcpy(to + kGroup * group, q + kGroup * r, kGroup);
    memcpy(to + l.scale + 4 * group, scale + r, 4);
    memcpy(to + l.sum + 4 * group, sum + r, 4);
    memcpy(to + l.sum16 + 8 * group, sum16 + 2 * r, 8);
  }
}

// x: [rows][32]
void quantize_block(const float* x, const View& out, int64_t first_row, int64_t rows, int64_t group) {
  const A8Layout l = a8_layout(out.cols);
  int64_t r = 0;
  const auto some = [&]<int N>() {
    quantize_rows<N>(x + r * kGroup, out, l, first_row + r, group);
    r += N;
  };
  while (r + kRowsAtOnce <= rows) some.operator()<kRowsAtOnce>();
  if ((rows - r) & 8) some.operator()<8>();
  if ((rows - r) & 4) some.operator()<4>();
  if ((rows - r) & 2) some.operator()<2>();
  if ((rows - r) & 1) some.operator()<1>();
}

// Some tiles of a segment into [rows][columns] floats.
void compute_columns(LinearBlock b, LinearSegment segment, int64_t tile, int64_t tiles, const NextTiles& after,
                     void (*compute)(const LinearBlock&), float* out) {
  const int64_t columns = tiles * kTileColumns;
  segment.out_stride = 4 * columns;
  // addressed from the first row and column of the whole output
  segment.out = out - tile * kTileColumns - b.first_row * columns;
  b.segment = &segment;
  b.gate = nullptr;
  b.first_tile = tile;
  b.tiles = tiles;
  b.after = after;
  compute(b);
}

// quantize(x, group): [rows][Columns] gated values to group `group` of the output's rows.
template <int64_t Columns, class F>
void compute_gated(const LinearBlock& b, void (*compute)(const LinearBlock&), F&& quantize) {
  static thread_local Scratch scratch;
  constexpr int64_t kTiles = Columns / kTileColumns;
  const int64_t values = b.rows * Columns;
  float* const x = static_cast<float*>(scratch.take(2 * 4 * values));
  float* const up = x + values;
  for (int64_t t = b.first_tile, end = t + b.tiles; t < end; t += kTiles) {
    const bool is_last = t + kTiles >= end;
    compute_columns(b, *b.segment, t, kTiles, next_tiles(*b.gate->up->weight, t), compute, x);
    compute_columns(b, *b.gate->up, t, kTiles, is_last ? b.after : next_tiles(*b.segment->weight, t + kTiles), compute,
                    up);
    with_act(b.gate->act, [&](auto f) {
      for (int64_t i = 0; i < values; i += kLanes) store(x + i, f(load(x + i)) * load(up + i));
    });
    quantize(x, t / kTiles);
  }
}

}  // namespace

void linear_int8_gated(const LinearBlock& b) {
  compute_gated<kGroup>(b, linear_int8, [&](const float* x, int64_t group) {
    quantize_block(x, b.gate->out, b.first_row, b.rows, group);
  });
}

#if defined(OV_ROTATES_PROMPTS)
void linear_rotated_gated(const LinearBlock& b) {
  const RotatedLayout l = rotated_layout(b.gate->out.cols);
  compute_gated<kRotatedGroup>(b, linear_rotated, [&](const float* x, int64_t group) {
    const auto row = [&](int64_t r) { return static_cast<char*>(b.gate->out.row(b.first_row + r)); };
    int64_t r = 0;
    for (; r + 4 <= b.rows; r += 4) {
      const RotatedGroups<4> four(x + r * kRotatedGroup);
      for (int n = 0; n < 4; ++n) store_rotated(four, n, l, group, row(r + n));
    }
    for (; r < b.rows; ++r) store_rotated(RotatedGroups<1>(x + r * kRotatedGroup), 0, l, group, row(r));
  });
}
#endif

}  // namespace ov
