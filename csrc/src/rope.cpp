#include "rope.h"

#include "vmath.h"

namespace ov {

void rope_fill(ov_pool* pool, const RopeTable& table, const int32_t* positions, int64_t rows) {
  parallel_rows(pool, rows, int64_t{table.half} * 32, [&](int64_t row, int) {
    float* c = table.cos + row * table.half;
    float* s = table.sin + row * table.half;
    const float position = static_cast<float>(positions[row]);
    constexpr int32_t kChunk = 64;
    float angle[kChunk];
    for (int32_t first = 0; first < table.half; first += kChunk) {
      const int32_t n = table.half - first < kChunk ? table.half - first : kChunk;
      for (int32_t i = 0; i < n; ++i) angle[i] = position * table.inv_freq[first + i];
      sin_cos(angle, n, table.scaling, c + first, s + first);
    }
  });
}

void rope_token(float* x, int32_t heads, int32_t head_dim, const RopeTable& table, int64_t row) {
  const int32_t half = table.half;
  const float* c = table.cos + row * half;
  const float* s = table.sin + row * half;
  for (int32_t h = 0; h < heads; ++h, x += head_dim) {
    int32_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const Lanes cos = load(c + i), sin = load(s + i);
      const Lanes a = load(x + i), b = load(x + half + i);
      // products rounded one by one, as in the reference
      store(x + i, a * cos - b * sin);
      store(x + half + i, b * cos + a * sin);
    }
    if (i < half) {
      const int n = half - i;
      const Lanes cos = load_part(c + i, n), sin = load_part(s + i, n);
      const Lanes a = load_part(x + i, n), b = load_part(x + half + i, n);
      store_part(x + i, a * cos - b * sin, n);
      store_part(x + half + i, b * cos + a * sin, n);
    }
  }
}

void rope(ov_pool* pool, View x, int32_t heads, int32_t head_dim, const RopeTable& table, int64_t rows) {
  parallel_rows(pool, rows, int64_t{heads} * head_dim * 2,
                [&](int64_t row, int) { rope_token(x.f32(row), heads, head_dim, table, row); });
}

}  // namespace ov
