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

void rms_norm_head(const float* x, float* y, const NormArgs& a) {
  const float squares = reduce(x, a.cols, [](Lanes v, Lanes acc, int) { return fma(v, v, acc); });
  const Lanes inverse = set1(1.0f / std::sqrt(squares / static_cast<float>(a.cols) + a.eps));
  const Lanes offset = set1(a.offset);
  each_chunk(a.cols, [&](int32_t c, int n) {
    Lanes v = load_chunk(x + c, n) * inverse;
    if (a.weight) v = v * (load_chunk(a.weight + c, n) + offset);
    store_chunk(y + c, v, n);
  });
}

void layer_norm_head(const float* x, float* y, const NormArgs& a) {
  const float count = static_cast<float>(a.cols);
  const Lanes mean = set1(reduce(x, a.cols, [](Lanes v, Lanes acc, int) { return acc + v; }) / count);
  const float squares = reduce(x, a.cols, [&](Lanes v, Lanes acc, int n) {
    Lanes d = v - mean;
    if (n < kLanes) d = select(mask_from_bits((1u << n) - 1u), d, set1(0.0f));
    return fma(d, d, acc);
  });
  const Lanes inverse = set1(1.0f / std::sqrt(squares / count + a.eps));
  const Lanes offset = set1(a.offset);
  each_chunk(a.cols, [&](int32_t c, int n) {
    Lanes v = (load_chunk(x + c, n) - mean) * inverse;
    if (a.weight) v = v * (load_chunk(a.weight + c, n) + offset);
    if (a.bias) v = v + load_chunk(a.bias + c, n);
    store_chunk(y + c, v, n);
  });
}

template <class Head>
void norm_rows(ov_pool* pool, const NormArgs& a, int64_t rows, float* scratch, int64_t scratch_stride, Head&& head) {
  const int32_t width = a.heads * a.cols;
  parallel_rows(pool, rows, int64_t{width} * 4, [&](int64_t row, int worker) {
    const float* x = a.in.f32(row);
    if (a.residual) {
      const float* r = a.residual.f32(row);
      float* sum = a.sum.f32(row);
      each_chunk(width,
                 [&](int32_t c, int n) { store_chunk(sum + c, load_chunk(x + c, n) + load_chunk(r + c, n), n); });
      x = sum;
    }
    float* y = a.out.dtype == OV_F32 ? a.out.f32(row) : scratch + worker * scratch_stride;
    for (int32_t h = 0; h < a.heads; ++h) head(x + h * a.cols, y + h * a.cols, a);
    if (a.out.dtype != OV_F32) prepare_row(a.out, row, y);
  });
}

}  // namespace

void rms_norm(ov_pool* pool, const NormArgs& args, int64_t rows, float* scratch, int64_t scratch_stride) {
  norm_rows(pool, args, rows, scratch, scratch_stride, rms_norm_head);
}

void layer_norm(ov_pool* pool, const NormArgs& args, int64_t rows, float* scratch, int64_t scratch_stride) {
  norm_rows(pool, args, rows, scratch, scratch_stride, layer_norm_head);
}

}  // namespace ov
