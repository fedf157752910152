// y = x W^T on packed weights: the one entry for linear layers and the LM head.
//
// Every output element is one accumulator chain over k in rising order, the same in the one-row and the many-row
// kernels, so a row's bits do not depend on how many rows, threads or segments share the call. Knows nothing of: plans,
// requests.
#pragma once

#include <cstdint>

#include "act.h"
#include "octavo.h"
#include "view.h"
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

// Sees each piece of an only segment's output once, on the thread that computed it and while it is in its nearest cache.
struct LinearSink {
  // rows x columns from (first_row, first_column) on; row r of the piece is at x + r * stride.
  void (*take)(void* context, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns, const float* x,
               int64_t stride);
  void* context;
  bool keeps_output;  // else nothing is stored in `out`
};

// Type of the input that a weight of a kind reads: OV_A8, OV_A8R, OV_BF16 or OV_F32.
int linear_input_type(int kind, bool is_prompt);

// act(segment) * up, prepared as bf16 or int8 groups, instead of the segment's output. Of both weights n is a multiple of 32.
struct LinearGate {
  const LinearSegment* up;
  Act act;
  View out;
};

// Rows of a step: [0, generated) are of generated tokens, the rest of prompts.
struct LinearRows {
  int64_t rows, generated;
};

// The weights of the linear that runs after this one, as far as known: threads ask memory for them at the end of theirs.
struct NextLinear {
  const ov_weight* weights[kMaxSegments];
  int num = 0;
  LinearRows rows = {};
  int gated = -1;  // of linear_act_mul: element type of its output
};

// Sixteen-column tiles are computed and only the n valid columns stored. `in` rows are prepared as linear_input_type
// says for either range (the same for all segments, and the same k). num_segments <= kMaxSegments.
void linear_run(ov_pool* pool, const LinearSegment* segments, int num_segments, const void* in, int64_t in_stride,
                const LinearRows& rows, const NextLinear& next, const LinearSink* sink = nullptr);

// out = act(segments[0]) * segments[1], prepared, with the bits of linear_run and act_mul: in one pass where the level,
// kinds and rows have it, else by way of the segments' outputs. No residuals. scratch: out.cols floats per worker.
void linear_act_mul(ov_pool* pool, const LinearSegment* segments, Act act, const View& out, const void* in,
                    int64_t in_stride, const LinearRows& rows, const NextLinear& next, float* scratch,
                    int64_t scratch_stride);

// One row of a generated token and some tiles of it, on this thread: the same bits.
void linear_piece(const LinearSegment& segment, const void* in, int64_t in_stride, int64_t row, int64_t first_tile,
                  int64_t tiles);

}  // namespace ov
