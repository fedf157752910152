#include "logit_blocks.h"

#include <cmath>

#include "octavo.h"

namespace ov {

LogitBlocks::~LogitBlocks() {
  if (maxima_) ov_memory_unmap(maxima_, bytes_);
}

bool LogitBlocks::allocate(int32_t vocab) {
  vocab_ = vocab;
  num_blocks_ = (vocab + kColumns - 1) / kColumns;
  stride_ = (int64_t{num_blocks_} + 15) / 16 * 16;
  bytes_ = 4 * stride_ * kMaxRows;
  maxima_ = static_cast<float*>(ov_memory_map(bytes_));
  return maxima_ != nullptr;
}

void LogitBlocks::take(int64_t row, int64_t rows, int64_t first, int64_t columns, const float* x, int64_t stride) {
  static_assert(kColumns == 2 * kLanes);
  const int64_t end = std::min<int64_t>(first + columns, vocab_);
  for (int64_t at = first; at < end; at += kColumns, x += kColumns) {
    float* const out = maxima_ + row * stride_ + at / kColumns;
    uint32_t numbers = 0xffff;  // lanes that saw no NaN
    if (end - at >= kColumns) {
      for (int64_t r = 0; r < rows; ++r) {
        const Lanes a = load(x + r * stride), b = load(x + r * stride + kLanes);
        // a + b is NaN if one of them is; of infinities, too, and then the slow way finds none
        const Lanes sum = a + b;
        numbers &= mask_bits(less_equal(sum, sum));
        out[r * stride_] = max_lanes(max(a, b));
      }
      if (numbers == 0xffff) continue;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const RowStats stats = row_stats(x + r * stride, static_cast<int32_t>(std::min<int64_t>(kColumns, end - at)));
      // +inf stays: it makes the row as little finite as NaN
      out[r * stride_] = stats.is_finite || stats.max == INFINITY ? stats.max : NAN;
    }
  }
}

RowStats LogitBlocks::stats(int64_t row, const float* x) const {
  RowStats s = row_stats(maxima(row), num_blocks_);
  if (s.argmax < 0) return s;
  const int32_t first = s.argmax * kColumns;
  s.argmax = first + row_stats(x + first, std::min(kColumns, vocab_ - first)).argmax;
  return s;
}

}  // namespace ov
