#include "prepare.h"

#include "int_lanes.h"
#include "octavo.h"
#include "pool.h"

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

// Below this a group is treated as zero: 127 / amax would overflow.
static constexpr float kSmallestAmax = 1e-36f;

static inline int32_t sum_of_16(const int8_t* q) {
  int32_t s = 0;
  for (int i = 0; i < 16; ++i) s += q[i];
  return s;
}

static inline void quantize_group(Lanes a, Lanes b, int8_t* q, float* scale, float* sum, int32_t* sum16) {
  // compared as integers, a NaN is larger than every number, so it decides the scale
  const IntLanes magnitude = set1_int(0x7fffffff);
  const float amax = bits_float(static_cast<uint32_t>(max_lanes(max(as_int(a) & magnitude, as_int(b) & magnitude))));
  const float inverse = amax < kSmallestAmax ? 0.0f : 127.0f / amax;
  const Lanes factor = set1(inverse);
  store_int8(q, to_int(a * factor));
  store_int8(q + 16, to_int(b * factor));
  sum16[0] = sum_of_16(q);
  sum16[1] = sum_of_16(q + 16);
  *scale = amax < kSmallestAmax ? 0.0f : amax / 127.0f;
  *sum = *scale * static_cast<float>(sum16[0] + sum16[1]);
}

static void prepare_a8(const float* in, int64_t cols, char* out) {
  const A8Layout l = a8_layout(cols);
  int8_t* q = reinterpret_cast<int8_t*>(out);
  float* scale = reinterpret_cast<float*>(out + l.scale);
  float* sum = reinterpret_cast<float*>(out + l.sum);
  int32_t* sum16 = reinterpret_cast<int32_t*>(out + l.sum16);
  const int64_t whole = cols / 32;
  for (int64_t g = 0; g < whole; ++g)
    quantize_group(load(in + 32 * g), load(in + 32 * g + 16), q + 32 * g, scale + g, sum + g, sum16 + 2 * g);
  if (whole < l.groups) {
    alignas(64) float tail[32] = {};
    memcpy(tail, in + 32 * whole, static_cast<size_t>(cols - 32 * whole) * sizeof(float));
    quantize_group(load(tail), load(tail + 16), q + 32 * whole, scale + whole, sum + whole, sum16 + 2 * whole);
  }
}

static void prepare_bf16(const float* in, int64_t cols, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) store_bf16(out + i, load(in + i));
  if (i < cols) store_bf16(out + i, load_part(in + i, static_cast<int>(cols - i)), static_cast<int>(cols - i));
  if (cols % 2) out[cols] = 0;
}

void prepare_row(int dtype, const float* in, int64_t cols, void* out) {
  if (dtype == OV_A8)
    prepare_a8(in, cols, static_cast<char*>(out));
  else if (dtype == OV_BF16)
    prepare_bf16(in, cols, static_cast<uint16_t*>(out));
  else
    memcpy(out, in, static_cast<size_t>(cols) * sizeof(float));
}

void prepare_rows(ov_pool* pool, int dtype, int64_t rows, int64_t cols, const void* in, int64_t in_stride, void* out,
                  int64_t out_stride) {
  constexpr int64_t kRowsPerTile = 8;
  parallel_for(pool, ceil_div(rows, kRowsPerTile), [=](int64_t tile, int) {
    const int64_t end = tile * kRowsPerTile + kRowsPerTile < rows ? tile * kRowsPerTile + kRowsPerTile : rows;
    for (int64_t r = tile * kRowsPerTile; r < end; ++r) {
      const char* source = static_cast<const char*>(in) + r * in_stride;
      prepare_row(dtype, reinterpret_cast<const float*>(source), cols, static_cast<char*>(out) + r * out_stride);
    }
  });
}

}  // namespace ov
