// Turns f32 activations into what a linear reads: int8 groups, bf16 or f32 as they are.
//
// An A8 row of `cols` columns, K = cols rounded up to 32, G = K / 32, padding zero:
//   int8 q[K]      round_to_even(x * (127 / amax)) of the group of 32
//   f32 scale[G]   amax / 127
//   f32 sum[G]     scale * (sum of the group's q)
//   int32 sum16[2 G]  sums of q over each half group
// rows are padded to 64 bytes (ov_row_bytes). A NaN in a group makes its scale NaN, so it reaches the output. An A8R row:
// rotate.h.
// A BF16 row is padded with zeros to a multiple of 32. Knows nothing of: weights, plans.
#pragma once

#include <cstdint>

#include "rotate.h"
#include "view.h"

struct ov_pool;

namespace ov {

struct A8Layout {
  int64_t k;                         // padded to 32
  int64_t groups;                    // k / 32
  int64_t scale, sum, sum16, bytes;  // offsets in a row, and its padded size
};
A8Layout a8_layout(int64_t cols);

// One row; dtype OV_A8, OV_A8R, OV_BF16 or OV_F32; out 64-byte aligned, ov_row_bytes(dtype, cols) bytes.
void prepare_row(int dtype, const float* in, int64_t cols, void* out);

// How a row of such a buffer is prepared: of OV_A8, linear_input_type says it for every quantised kind.
int prepared_type(const View& out, int64_t row);

// Row `row` of a buffer that linears read, in the form of that row.
void prepare_row(const View& out, int64_t row, const float* in);

// Columns [first, first + cols) of a row, both multiples of kPartColumns.
#if defined(OV_ROTATES_PROMPTS)
inline constexpr int64_t kPartColumns = kRotatedGroup;
#else
inline constexpr int64_t kPartColumns = 32;
#endif
void prepare_part(const View& out, int64_t row, int64_t first, int64_t cols, const float* in);

// The first `rows` rows of `out` from f32 rows at a stride in bytes, on the pool.
void prepare_rows(ov_pool* pool, int64_t rows, const void* in, int64_t in_stride, const View& out);

}  // namespace ov
