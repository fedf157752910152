// Point-wise operations on f32 rows. Knows nothing of: plans.
#pragma once

#include <cstdint>

#include "pool.h"
#include "view.h"

namespace ov {

enum class Act : int32_t { kSilu = 0, kGeluErf = 1, kGeluTanh = 2, kRelu = 3 };

void add(ov_pool* pool, View a, View b, View out, int64_t rows);
void mul(ov_pool* pool, View a, View b, View out, int64_t rows);
void scale(ov_pool* pool, View a, float factor, View out, int64_t rows);
void act(ov_pool* pool, View a, Act kind, View out, int64_t rows);
// cap * tanh(x / cap), in place.
void soft_cap(ov_pool* pool, View a, float cap, int64_t rows);
// act(a) * b; out may be a prepared type (A8, BF16), then scratch holds out.cols floats per worker.
void act_mul(ov_pool* pool, View a, View b, Act kind, View out, int64_t rows, float* scratch, int64_t scratch_stride);

}  // namespace ov
