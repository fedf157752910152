// act(x W) * (x V) as int8 groups, where both weights are multiplied in vector registers.
//
// Thirty-two columns of either are a group of the output: they are computed into this thread's memory, gated and
// quantised while they are in its nearest cache. Knows nothing of: threads.
#include "act_lanes.h"
#include "linear_block.h"
#include "prepare.h"
#include "quantize_groups.h"
#include "scratch.h"

namespace ov {
namespace {

constexpr int kColumns = 32;    // of a group
constexpr int kRowsAtOnce = 16;  // whose groups are quantised together

// Groups of `Rows` rows from `row` on, side by side in x, to where the layout of a row has group `group`.
template <int Rows>
void quantize_rows(const float* x, const View& out, const A8Layout& l, int64_t row, int64_t group) {
  alignas(64) int8_t q[Rows * kColumns];
  alignas(64) float scale[kRowsAtOnce], sum[kRowsAtOnce];
  alignas(64) int32_t sum16[2 * kRowsAtOnce];
  quantize_groups<Rows>(x, {q, scale, sum, sum16});
  for (int r = 0; r < Rows; ++r) {
    char* const to = static_cast<char*>(out.row(row + r));
    memcpy(to + kColumns * group, q + kColumns * r, kColumns);
    memcpy(to + l.scale + 4 * group, scale + r, 4);
    memcpy(to + l.sum + 4 * group, sum + r, 4);
    memcpy(to + l.sum16 + 8 * group, sum16 + 2 * r, 8);
  }
}

// x[r][..] = act(x[r][..]) * up[r][..], quantised, for the rows of a block.
void gate_group(const LinearGate& gate, int64_t first_row, int64_t rows, int64_t group, float* x, const float* up) {
  const A8Layout l = a8_layout(gate.out.cols);
  with_act(gate.act, [&](auto f) {
    for (int64_t i = 0; i < rows * kColumns; i += kLanes) store(x + i, f(load(x + i)) * load(up + i));
  });
  int64_t r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce)
    quantize_rows<kRowsAtOnce>(x + r * kColumns, gate.out, l, first_row + r, group);
  const auto rest = [&]<int N>() {
    if (!((rows - r) & N)) return;
    quantize_rows<N>(x + r * kColumns, gate.out, l, first_row + r, group);
    r += N;
  };
  rest.operator()<8>();
  rest.operator()<4>();
  rest.operator()<2>();
  rest.operator()<1>();
}

// Two tiles of a segment into [rows][32] floats.
void compute_pair(LinearBlock b, LinearSegment segment, int64_t tile, const NextTiles& after, float* out) {
  segment.out_stride = 4 * kColumns;
  // addressed from the first row and column of the whole output
  segment.out = out - tile * kTileColumns - b.first_row * kColumns;
  b.segment = &segment;
  b.first_tile = tile;
  b.tiles = 2;
  b.after = after;
  linear_int8(b);
}

}  // namespace

void linear_int8_gated(const LinearBlock& b) {
  static thread_local Scratch scratch;
  float* const x = static_cast<float*>(scratch.take(2 * 4 * b.rows * kColumns));
  float* const up = x + b.rows * kColumns;
  for (int64_t t = b.first_tile, end = t + b.tiles; t < end; t += 2) {
    compute_pair(b, *b.segment, t, next_tiles(*b.gate->up->weight, t), x);
    compute_pair(b, *b.gate->up, t, t + 2 < end ? next_tiles(*b.segment->weight, t + 2) : b.after, up);
    gate_group(*b.gate, b.first_row, b.rows, t / 2, x, up);
  }
}

}  // namespace ov
