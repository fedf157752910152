#include "norm.h"

#include <cmath>

#include "lanes.h"
#include "octavo.h"
#include "prepare.h"

namespace ov {
namespace {

// f(first column, number of lanes) over cols, sixteen at a time.
template <class F>
inline void each_chunk(int32_t cols, F&& f) {
  int32_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) f(c, kLanes);
  if (c < cols) f(c, cols - c);
}

inline Lanes load_chunk(const float* p, int n) { return n == kLanes ? load(p) : load_part(p, n); }
inline void store_chunk(float* p, Lanes a, int n) { n == kLanes ? store(p, a) : store_part(p, a, n); }

// Sum over cols of f(x); four accumulators taken in turn, added as a tree, so the order depends on cols alone.
template <class F>
inline float reduce(const float* x, int32_t cols, F&& f) {
  Lanes acc[4] = {set1(0.0f), set1(0.0f), set1(0.0f), set1(0.0f)};
  int32_t c = 0;
  for (; c + 4 * kLanes <= cols; c += 4 * kLanes)
    for (int j = 0; j < 4; ++j) acc[j] = f(load(x + c + j * kLanes), acc[j], kLanes);
  for (int j = 0; c < cols; c += kLanes, ++j) {
    const int n = cols - c < kLanes ? cols - c : kLanes;
    acc[j] = f(load_chunk(x + c, n), acc[j], n);
  }
  return sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

// A head's normalised values: lanes from a column on, of which the first n count.
auto rms_norm_values(const float* x, const NormArgs& a) {
  const float squares = reduce(x, a.cols, [](Lanes v, Lanes acc, int) { return fma(v, v, acc); });
  const Lanes inverse = set1(1.0f / std::sqrt(squares / static_cast<float>(a.cols) + a.eps));
  return [x, &a, inverse, offset = set1(a.offset)](int32_t c, int n) {
    Lanes v = load_chunk(x + c, n) * inverse;
    if (a.weight) v = v * (load_chunk(a.weight + c, n) + offset);
    return v;
  };
}

auto layer_norm_values(const float* x, const NormArgs& a) {
  const float count = static_cast<float>(a.cols);
  const Lanes mean = set1(reduce(x, a.cols, [](Lanes v, Lanes acc, int) { return acc + v; }) / count);
  const float squares = reduce(x, a.cols, [&](Lanes v, Lanes acc, int n) {
    Lanes d = v - mean;
    if (n < kLanes) d = select(mask_from_bits((1u << n) - 1u), d, set1(0.0f));
    return fma(d, d, acc);
  });
  const Lanes inverse = set1(1.0f / std::sqrt(squares / count + a.eps));
  return [x, &a, mean, inverse, offset = set1(a.offset)](int32_t c, int n) {
    Lanes v = (load_chunk(x + c, n) - mean) * inverse;
    if (a.weight) v = v * (load_chunk(a.weight + c, n) + offset);
    if (a.bias) v = v + load_chunk(a.bias + c, n);
    return v;
  };
}

// Asks for a row that is normalised next: a part of its lines is in the cache of the thread that wrote them.
void ask_for_row(const View& v, int64_t row, int32_t width) {
  const float* const x = v.f32(row);
  for (int32_t c = 0; c < width; c += kLanes) __builtin_prefetch(x + c);
}

// values_of(x, args): the function of a head's values.
template <class ValuesOf>
void norm_rows(ov_pool* pool, const NormArgs& a, int64_t rows, float* scratch, int64_t scratch_stride,
               ValuesOf&& values_of) {
  constexpr int64_t kManyRows = 64;  // asking for fewer costs more than it gains
  const int32_t width = a.heads * a.cols;
  parallel_rows(pool, rows, int64_t{width} * 4, [&](int64_t row, int worker) {
    if (rows >= kManyRows && row + 1 < rows) {
      ask_for_row(a.in, row + 1, width);
      if (a.residual) ask_for_row(a.residual, row + 1, width);
    }
    const float* x = a.in.f32(row);
    if (a.residual) {
      const float* r = a.residual.f32(row);
      float* sum = a.sum.f32(row);
      each_chunk(width,
                 [&](int32_t c, int n) { store_chunk(sum + c, load_chunk(x + c, n) + load_chunk(r + c, n), n); });
      x = sum;
    }
    if (prepared_type(a.out, row) == OV_BF16 && a.cols % (2 * kLanes) == 0) {
      uint16_t* y = reinterpret_cast<uint16_t*>(a.out.row(row));
      for (int32_t h = 0; h < a.heads; ++h, x += a.cols, y += a.cols) {
        const auto values = values_of(x, a);
        for (int32_t c = 0; c < a.cols; c += 2 * kLanes)
          store_bf16(y + c, values(c, kLanes), values(c + kLanes, kLanes));
      }
      return;
    }
    float* const y = a.out.dtype == OV_F32 ? a.out.f32(row) : scratch + worker * scratch_stride;
    for (int32_t h = 0; h < a.heads; ++h) {
      const auto values = values_of(x + h * a.cols, a);
      each_chunk(a.cols, [&](int32_t c, int n) { store_chunk(y + h * a.cols + c, values(c, n), n); });
    }
    if (a.out.dtype != OV_F32) prepare_row(a.out, row, y);
  });
}

}  // namespace

void rms_norm(ov_pool* pool, const NormArgs& args, int64_t rows, float* scratch, int64_t scratch_stride) {
  norm_rows(pool, args, rows, scratch, scratch_stride, rms_norm_values);
}

void layer_norm(ov_pool* pool, const NormArgs& args, int64_t rows, float* scratch, int64_t scratch_stride) {
  norm_rows(pool, args, rows, scratch, scratch_stride, layer_norm_values);
}

}  // namespace ov
