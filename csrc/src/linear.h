// y = x W^T on packed weights: the one entry for linear layers and the LM head.
//
// Every output element is one accumulator chain over k in rising order, the same in the one-row and the many-row
// kernels, so a row's bits do not depend on how many rows, threads or segments share the call. Knows nothing of: plans,
// requests.
#pragma once

#include <cstdint>

#include "octavo.h"
#include "weights.h"

namespace ov {

// One weight reading the shared input; strides in bytes.
struct LinearSegment {
  const ov_weight* weight;
  float* out;  // [rows, n]
  int64_t out_stride;
  const float* bias;      // [n] or nullptr
  const float* residual;  // [rows, n] or nullptr, added last; may be out itself
  int64_t residual_stride;
};

constexpr int kMaxSegments = 4;

// Type of the input a weight reads: OV_A8, OV_BF16 or OV_F32.
int linear_input_type(const ov_weight& w);

// The weights of the linear that runs after this one, as far as known: threads ask memory for them at the end of theirs.
struct NextLinear {
  const ov_weight* weights[kMaxSegments];
  int num = 0;
  int64_t rows = 0;
};

// Sixteen-column tiles are computed and only the n valid columns stored. `in` rows are prepared as linear_input_type
// says (the same for all segments, and the same k). num_segments <= kMaxSegments.
void linear_run(ov_pool* pool, const LinearSegment* segments, int num_segments, const void* in, int64_t in_stride,
                int64_t rows, const NextLinear& next);

}  // namespace ov
