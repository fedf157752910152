// RMS and layer normalisation, with the residual add before and the linear input's preparation after fused in.
//
// One thread works on a row, in a fixed lane order over its columns. Knows nothing of: plans, weights' packing.
#pragma once

#include <cstdint>

#include "pool.h"
#include "view.h"

namespace ov {

struct NormArgs {
  View in;              // [rows, heads * cols] f32
  View residual;        // same shape, or absent: sum = in + residual is normalised
  View sum;             // where that sum goes; may be `in`
  View out;             // F32, or the prepared type A8 or BF16
  const float* weight;  // [cols] or nullptr
  const float* bias;    // [cols] or nullptr (layer norm)
  float eps, offset;    // offset is added to the weight
  int32_t heads, cols;
};

// scratch(worker): heads * cols floats of this worker, used when out is a prepared type.
void rms_norm(ov_pool* pool, const NormArgs& args, int64_t rows, float* scratch, int64_t scratch_stride);
void layer_norm(ov_pool* pool, const NormArgs& args, int64_t rows, float* scratch, int64_t scratch_stride);

}  // namespace ov
