#include "prepare.h"

#include "int_lanes.h"
#include "linear.h"
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

// Largest magnitude of 32 values. Compared as integers, where a NaN is larger than every number: it decides the scale.
static inline float group_amax(const float* x) {
  const IntLanes magnitude = set1_int(0x7fffffff);
  const IntLanes a = as_int(load(x)) & magnitude, b = as_int(load(x + kLanes)) & magnitude;
  return bits_float(static_cast<uint32_t>(max_lanes(max(a, b))));
}

static inline void quantize_group(const float* x, float factor, int8_t* q, int32_t* sums) {
  const Lanes f = set1(factor);
  store_group(q, to_int(load(x) * f), to_int(load(x + kLanes) * f), sums);
}

// The groups of `cols` columns, the first of which is group `begin` of a row of layout l.
static void prepare_a8(const float* in, int64_t cols, const A8Layout& l, int64_t begin, char* out) {
  int8_t* q = reinterpret_cast<int8_t*>(out) + 32 * begin;
  float* scale = reinterpret_cast<float*>(out + l.scale) + begin;
  float* sum = reinterpret_cast<float*>(out + l.sum) + begin;
  int32_t* sum16 = reinterpret_cast<int32_t*>(out + l.sum16) + 2 * begin;
  const int64_t whole = cols / 32, groups = ceil_div(cols, 32);
  alignas(64) float tail[32] = {};
  if (whole < groups) memcpy(tail, in + 32 * whole, static_cast<size_t>(cols - 32 * whole) * sizeof(float));
  const auto group = [&](int64_t g) { return g < whole ? in + 32 * g : tail; };
  // sixteen groups at a time, so that their divisions are two vector divisions
  for (int64_t first = 0; first < groups; first += kLanes) {
    const int count = static_cast<int>(groups - first < kLanes ? groups - first : kLanes);
    alignas(64) float amax[kLanes] = {}, factor[kLanes];
    for (int i = 0; i < count; ++i) amax[i] = group_amax(group(first + i));
    const Lanes m = load(amax);
    const Mask is_zero = less(m, set1(kSmallestAmax));
    store(factor, select(is_zero, set1(0.0f), set1(127.0f) / m));
    const Lanes s = select(is_zero, set1(0.0f), m / set1(127.0f));
    store_part(scale + first, s, count);
    alignas(64) float total[kLanes] = {};
    for (int i = 0; i < count; ++i) {
      const int64_t g = first + i;
      quantize_group(group(g), factor[i], q + 32 * g, sum16 + 2 * g);
      total[i] = static_cast<float>(sum16[2 * g] + sum16[2 * g + 1]);
    }
    store_part(sum + first, s * load(total), count);
  }
}

static void prepare_bf16(const float* in, int64_t cols, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) store_bf16(out + i, load(in + i));
  if (i < cols) store_bf16(out + i, load_part(in + i, static_cast<int>(cols - i)), static_cast<int>(cols - i));
  const int64_t end = round_up(cols, 32);
  if (cols < end) memset(out + cols, 0, static_cast<size_t>(end - cols) * sizeof(uint16_t));
}

void prepare_row(int dtype, const float* in, int64_t cols, void* out) {
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
