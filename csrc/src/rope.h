// Rotary position embedding, half-split pairs (i, i + rotary_dim / 2) of each head.
//
// Source: Su et al., "RoFormer" (2021); pair convention and f32 product position * inv_freq of HF's Llama. cos and sin
// rows are computed once per step and shared by all layers. Knows nothing of: plans, KV caches.
#pragma once

#include <cstdint>

#include "pool.h"
#include "view.h"

namespace ov {

// cos and sin of one step for one (inv_freq, rotary_dim, scaling): row t at t * half.
struct RopeTable {
  const float* inv_freq;
  int32_t half;  // rotary_dim / 2
  float scaling;
  float* cos;
  float* sin;
};

void rope_fill(ov_pool* pool, const RopeTable& table, const int32_t* positions, int64_t rows);

// Rotates the heads of one token in place.
void rope_token(float* x, int32_t heads, int32_t head_dim, const RopeTable& table, int64_t row);

void rope(ov_pool* pool, View x, int32_t heads, int32_t head_dim, const RopeTable& table, int64_t rows);

}  // namespace ov
