#include "embed.h"

#include <cstring>

#include "weights.h"

namespace ov {

void embed(ov_pool* pool, const ov_weight& weight, const int32_t* ids, float scale, View out, int64_t rows) {
  parallel_rows(pool, rows, weight.k * 4, [&](int64_t row, int) {
    float* y = out.f32(row);
    weight_row(weight, ids[row], y);
    if (scale != 1.0f)
      for (int64_t c = 0; c < weight.k; ++c) y[c] *= scale;
  });
}

void gather(ov_pool* pool, View in, const int32_t* index, View out, int64_t rows) {
  const auto bytes = ov_row_bytes(in.dtype, in.cols);
  parallel_rows(pool, rows, in.cols, [&](int64_t row, int) {
    const void* from = in.row(index ? index[row] : row);
    if (in.dtype == OV_F32)
      memcpy(out.row(row), from, static_cast<size_t>(in.cols) * sizeof(float));
    else
      memcpy(out.row(row), from, static_cast<size_t>(bytes));
  });
}

}  // namespace ov
