// BF16 weights, and quantised ones for prompt tokens, times bf16 activations in the tile registers of AMX, accumulated
// in f32.
//
// A packed group of 16 pairs of k is a B operand as it lies, 32 values of a prepared row are a row of an A operand.
// Quantised tiles are expanded to such operands first, two tiles at a time for all rows of a block.
// The arithmetic of an output is that of the instruction over k in steps of 32, whatever rows share the registers.
#include "linear_block.h"
#include "scratch.h"
#include "tile_panel.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

namespace {

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

// Shapes of the registers follow the rows of a part.
class Registers {
 public:
  // f(first, count) over `rows` rows: parts of kPartRows, then the rest.
  template <class F>
  OV_ALWAYS_INLINE void for_parts(int64_t rows, F&& f) {
    for (int64_t first = 0; first < rows; first += kPartRows) {
      const int64_t count = rows - first < kPartRows ? rows - first : kPartRows;
      if (count != shaped_) registers_.load(shapes(shaped_ = count));
      f(first, count);
    }
  }

 private:
  int64_t shaped_ = kPartRows;
  TileShapes registers_{shapes(kPartRows)};
};

// Output rows of a part, which the nearest cache is asked for while the sums are computed.
struct Rows {
  char* data;
  int64_t stride, rows;

  OV_ALWAYS_INLINE void ask(int64_t row) const {
    if (row >= rows) return;
    asm volatile("prefetchw %0" ::"m"(data[row * stride]));
    asm volatile("prefetchw %0" ::"m"(data[row * stride + 64]));
  }
};

// Where sums go: rows of `stride` bytes; the second row tile starts `half` rows below the first.
struct Sums {
  char* data;
  int64_t stride, half;
};

// Operands of one or two column tiles: `column` bytes from one to the next, `step` from 32 values of k to the next.
struct Operands {
  const char* data;
  int64_t column, step, steps;
};

// Of operands that many rows read, so many steps stay in the first-level cache; the rest and all activations, which are
// more than it holds, pass by.
constexpr int64_t kNearSteps = 18;

template <int Tile>
OV_ALWAYS_INLINE void load_operand(const char* p, bool stays) {
  stays ? tile_load<Tile>(p, 64) : tile_load_once<Tile>(p, 64);
}

template <int RowTiles, int Columns>
OV_ALWAYS_INLINE void store_sums(const Sums& sums) {
  tile_store<0>(sums.data, sums.stride);
  if constexpr (Columns == 2) tile_store<1>(sums.data + 64, sums.stride);
  if constexpr (RowTiles == 2) {
    char* const below = sums.data + sums.half * sums.stride;
    tile_store<2>(below, sums.stride);
    if constexpr (Columns == 2) tile_store<3>(below + 64, sums.stride);
  }
}

// Two row tiles x two column tiles over all of k. A register is loaded for the next step right after the last product
// that reads it: its load waits for that product, and the products meanwhile have theirs.
OV_ALWAYS_INLINE void multiply_four(const char* in, int64_t in_stride, const Operands& weights, const Sums& sums,
                                    const Rows& out) {
  const char* second = in + sums.half * in_stride;
  const char* operand = weights.data;
  unroll<4>([&](auto i) OV_INLINED { tile_zero<i.value>(); });
  tile_load_once<4>(in, in_stride);
  tile_load<6>(operand, 64);
  tile_load<7>(operand + weights.column, 64);
  tile_load_once<5>(second, in_stride);
  for (int64_t i = 1; i < weights.steps; ++i) {
    in += 64;
    second += 64;
    operand += weights.step;
    const bool stays = i < kNearSteps;
    out.ask(2 * i - 2);
    out.ask(2 * i - 1);
    tile_dot_bf16<0, 4, 6>();
    tile_dot_bf16<1, 4, 7>();
    tile_load_once<4>(in, in_stride);
    tile_dot_bf16<2, 5, 6>();
    load_operand<6>(operand, stays);
    tile_dot_bf16<3, 5, 7>();
    load_operand<7>(operand + weights.column, stays);
    tile_load_once<5>(second, in_stride);
  }
  tile_dot_bf16<0, 4, 6>();
  tile_dot_bf16<1, 4, 7>();
  tile_dot_bf16<2, 5, 6>();
  tile_dot_bf16<3, 5, 7>();
  store_sums<2, 2>(sums);
}

// The same for one row tile or one column tile. ask(): asks memory for the operands some steps ahead.
template <int RowTiles, int Columns, class Ask>
OV_ALWAYS_INLINE void multiply(const char* in, int64_t in_stride, const Operands& weights, const Sums& sums,
                               const Rows& out, Ask&& ask) {
  if constexpr (RowTiles == 2 && Columns == 2) return multiply_four(in, in_stride, weights, sums, out);
  const char* const second = in + sums.half * in_stride;
  const char* operand = weights.data;
  unroll<2 * RowTiles>([&](auto i) OV_INLINED { tile_zero<i.value>(); });
  for (int64_t i = 0; i < weights.steps; ++i, operand += weights.step) {
    ask();
    tile_load<4>(in + 64 * i, in_stride);
    tile_load<6>(operand, 64);
    tile_dot_bf16<0, 4, 6>();
    if constexpr (Columns == 2) {
      tile_load<7>(operand + weights.column, 64);
      tile_dot_bf16<1, 4, 7>();
    }
    if constexpr (RowTiles == 2) {
      tile_load<5>(second + 64 * i, in_stride);
      tile_dot_bf16<2, 5, 6>();
    }
  }
  store_sums<RowTiles, Columns>(sums);
}

// Sums, + bias, + residual, to the output; sixteen columns of `rows` rows.
void finish(const LinearSegment& s, int64_t tile, int64_t row, int64_t rows, const char* sums, int64_t stride) {
  const int64_t first = tile * kTileColumns, left = s.weight->n - first;
  const int count = static_cast<int>(left < kLanes ? left : kLanes);
  char* out = reinterpret_cast<char*>(s.out + first) + row * s.out_stride;
  const char* residual =
      s.residual ? reinterpret_cast<const char*>(s.residual + first) + row * s.residual_stride : nullptr;
  const Lanes bias = s.bias ? load_part(s.bias + first, count) : set1(0.0f);
  for (int64_t r = 0; r < rows; ++r, sums += stride, out += s.out_stride) {
    Lanes x = load(reinterpret_cast<const float*>(sums));
    if (s.bias) x = x + bias;
    if (residual) {
      x = x + load_part(reinterpret_cast<const float*>(residual), count);
      residual += s.residual_stride;
    }
    store_part(reinterpret_cast<float*>(out), x, count);
  }
}

// `rows` rows of one part from `row` on; multiply(rows of tiles, sums).
template <int Columns, class Multiply>
OV_ALWAYS_INLINE void part_of(const LinearBlock& b, int64_t tile, int64_t row, int64_t rows, char* scratch,
                              Multiply&& multiply) {
  const LinearSegment& s = *b.segment;
  const bool direct = !s.bias && !s.residual && s.weight->n >= (tile + Columns) * kTileColumns;
  const Rows out = {reinterpret_cast<char*>(s.out + tile * kTileColumns) + row * s.out_stride, s.out_stride, rows};
  Sums sums = {scratch, 64 * Columns, (rows + 1) / 2};
  if (direct) {
    sums.data = out.data;
    sums.stride = out.stride;
  }
  if (rows > kRegisterRows)
    multiply(Index<2>{}, sums, out);
  else
    multiply(Index<1>{}, sums, out);
  if (direct) return;
  for (int c = 0; c < Columns && tile + c < s.weight->num_tiles; ++c)
    finish(s, tile + c, row, rows, scratch + 64 * c, 64 * Columns);
}

template <int Columns>
void float_tiles(const LinearBlock& b, int64_t tile, int64_t row, int64_t rows, char* scratch) {
  const ov_weight& w = *b.segment->weight;
  const Operands operands = {reinterpret_cast<const char*>(tile_codes(w, tile)), w.tile_bytes, kOperandBytes,
                             ceil_div(w.k, 32)};
  const NextTiles after = tile + Columns < b.first_tile + b.tiles ? next_tiles(w, tile + Columns) : b.after;
  part_of<Columns>(b, tile, row, rows, scratch, [&](auto parts, const Sums& sums, const Rows& out) OV_INLINED {
    const char* in = b.in + row * b.in_stride;
    TilesAhead<Columns, kOperandBytes, 0> ahead(w, tile, w.tile_bytes, after);
    multiply<parts.value, Columns>(in, b.in_stride, operands, sums, out, [&]() OV_INLINED {
      if constexpr (parts.value == 1) ahead.ask();  // few rows: weights come from memory
    });
  });
}

char* sums_scratch() {
  static thread_local Scratch scratch;
  return static_cast<char*>(scratch.take(kPartRows * 2 * 64));
}

template <int Kind>
void expanded_tiles(const LinearBlock& b, char* panel) {
  const ov_weight& w = *b.segment->weight;
  const Operands operands = {panel, kOperandBytes, 2 * kOperandBytes, w.k / 32};
  char* const scratch = sums_scratch();
  const int64_t end = b.first_tile + b.tiles;
  Registers registers;
  for (int64_t t = b.first_tile; t < end; t += 2) {
    // past the weight's last tile it is read again, and not stored
    const int64_t step = t + 2 <= w.num_tiles ? w.tile_bytes : 0;
    expand_panel<Kind, 2>(w, t, step, t + 2 < end ? next_tiles(w, t + 2) : b.after, panel);
    registers.for_parts(b.rows, [&](int64_t first, int64_t rows) {
      const int64_t row = b.first_row + first;
      part_of<2>(b, t, row, rows, scratch, [&](auto parts, const Sums& sums, const Rows& out) OV_INLINED {
        multiply<parts.value, 2>(b.in + row * b.in_stride, b.in_stride, operands, sums, out, [] {});
      });
    });
  }
}

}  // namespace

void linear_bf16_tiles(const LinearBlock& b) {
  char* const scratch = sums_scratch();
  const int64_t end = b.first_tile + b.tiles;
  Registers registers;
  for (int64_t t = b.first_tile; t < end; t += 2) {
    registers.for_parts(b.rows, [&](int64_t first, int64_t rows) {
      if (t + 2 <= end)
        float_tiles<2>(b, t, b.first_row + first, rows, scratch);
      else
        float_tiles<1>(b, t, b.first_row + first, rows, scratch);
    });
  }
}

void linear_expanded_tiles(const LinearBlock& b) {
  static thread_local Scratch panels;
  const ov_weight& w = *b.segment->weight;
  char* const panel = static_cast<char*>(panels.take(w.k / 32 * 2 * kOperandBytes));
  visit_quantized(w.kind, [&]<int Kind>() { expanded_tiles<Kind>(b, panel); });
}

}  // namespace ov

#endif
