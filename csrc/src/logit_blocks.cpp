#include "logit_blocks.h"

#include <cmath>

#include "octavo.h"

namespace ov {

LogitBlocks::~LogitBlocks() {
  if (maxima_) ov_memory_unmap(maxima_, bytes_);
}

bool LogitBlocks::allocate(int32_t vocab, int32_t chunk_rows) {
  vocab_ = vocab;
  num_blocks_ = (vocab + kColumns - 1) / kColumns;
  stride_ = (int64_t{num_blocks_} + 15) / 16 * 16;
  bytes_ = 4 * stride_ * chunk_rows;
  maxima_ = static_cast<float*>(ov_memory_map(bytes_));
  return maxima_ != nullptr;
}

void LogitBlocks::take(int64_t row, int64_t first, int64_t columns, const float* x) {
  static_assert(kColumns == 2 * kLanes);
  float* out = maxima_ + row * stride_ + first / kColumns;
  const int64_t end = std::min<int64_t>(first + columns, vocab_);
  for (int64_t at = first; at < end; at += kColumns, x += kColumns, ++out) {
    if (end - at >= kColumns) {
      const Lanes a = load(x), b = load(x + kLanes);
      const uint32_t numbers = mask_bits(less_equal(a, a)) & mask_bits(less_equal(b, b));
      *out = numbers == 0xffff ? max_lanes(max(a, b)) : NAN;
    } else {
      const RowStats stats = row_stats(x, static_cast<int32_t>(end - at));
      *out = stats.is_finite || stats.max == INFINITY ? stats.max : NAN;
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
