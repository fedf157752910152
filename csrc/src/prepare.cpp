#include "prepare.h"

#include "int_lanes.h"
#include "linear.h"
#include "octavo.h"
#include "pool.h"
#include "quantize_groups.h"

namespace ov {

A8Layout a8_layout(int64_t cols) {
  A8Layout l;
  l.k = round_up(cols, 32);
  l.groups = l.k / 32;
  l.scale = l.k;
  l.sum = l.scale + 4 * l.groups;
  l.sum16 = l.sum + 4 * l.groups;
  l.bytes = round_up(l.sum16 + 8 * l.groups, 64);
  return l;
}

// The groups of `cols` columns, the first of which is group `begin` of a row of layout l.
static void prepare_a8(const float* in, int64_t cols, const A8Layout& l, int64_t begin, char* out) {
  const QuantizedGroups row{reinterpret_cast<int8_t*>(out), reinterpret_cast<float*>(out + l.scale),
                            reinterpret_cast<float*>(out + l.sum), reinterpret_cast<int32_t*>(out + l.sum16)};
  const QuantizedGroups to = row.from(begin);
  const int64_t whole = cols / 32;
  int64_t g = 0;
  for (; g + 16 <= whole; g += 16) quantize_groups<16>(in + 32 * g, to.from(g));
  const auto rest = [&]<int N>() {
    if (!(whole & N)) return;
    quantize_groups<N>(in + 32 * g, to.from(g));
    g += N;
  };
  rest.operator()<8>();
  rest.operator()<4>();
  rest.operator()<2>();
  rest.operator()<1>();
  if (32 * g == cols) return;
  alignas(64) float tail[32] = {};
  memcpy(tail, in + 32 * g, static_cast<size_t>(cols - 32 * g) * sizeof(float));
  quantize_groups<1>(tail, to.from(g));
}

static void prepare_bf16(const float* in, int64_t cols, uint16_t* out) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= cols; i += 2 * kLanes) store_bf16(out + i, load(in + i), load(in + i + kLanes));
  for (; i + kLanes <= cols; i += kLanes) store_bf16(out + i, load(in + i));
  if (i < cols) store_bf16(out + i, load_part(in + i, static_cast<int>(cols - i)), static_cast<int>(cols - i));
  const int64_t end = round_up(cols, 32);
  if (cols < end) memset(out + cols, 0, static_cast<size_t>(end - cols) * sizeof(uint16_t));
}

void prepare_row(int dtype, const float* in, int64_t cols, void* out) {
#if defined(OV_ROTATES_PROMPTS)
  if (dtype == OV_A8R) return rotate_row(in, cols, rotated_layout(cols), 0, static_cast<char*>(out));
#endif
  if (dtype == OV_A8)
    prepare_a8(in, cols, a8_layout(cols), 0, static_cast<char*>(out));
  else if (dtype == OV_BF16)
    prepare_bf16(in, cols, static_cast<uint16_t*>(out));
  else
    memcpy(out, in, static_cast<size_t>(cols) * sizeof(float));
}

int prepared_type(const View& out, int64_t row) {
  // every quantised kind reads the same forms
  return out.dtype == OV_A8 ? linear_input_type(OV_Q8_0, row >= out.num_generated) : out.dtype;
}

void prepare_row(const View& out, int64_t row, const float* in) {
  prepare_row(prepared_type(out, row), in, out.cols, out.row(row));
}

void prepare_part(const View& out, int64_t row, int64_t first, int64_t cols, const float* in) {
  char* const at = static_cast<char*>(out.row(row));
  const int type = prepared_type(out, row);
#if defined(OV_ROTATES_PROMPTS)
  if (type == OV_A8R) return rotate_row(in, cols, rotated_layout(out.cols), first / kRotatedGroup, at);
#endif
  if (type == OV_A8)
    prepare_a8(in, cols, a8_layout(out.cols), first / 32, at);
  else
    prepare_row(type, in, cols, at + first * (type == OV_BF16 ? sizeof(uint16_t) : sizeof(float)));
}

void prepare_rows(ov_pool* pool, int64_t rows, const void* in, int64_t in_stride, const View& out) {
  constexpr int64_t kRowsPerTile = 8;
  parallel_for(pool, ceil_div(rows, kRowsPerTile), [&](int64_t tile, int) {
    const int64_t end = tile * kRowsPerTile + kRowsPerTile < rows ? tile * kRowsPerTile + kRowsPerTile : rows;
    for (int64_t r = tile * kRowsPerTile; r < end; ++r) {
      const char* source = static_cast<const char*>(in) + r * in_stride;
      prepare_row(out, r, reinterpret_cast<const float*>(source));
    }
  });
}

}  // namespace ov
