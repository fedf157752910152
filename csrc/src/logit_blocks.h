// The largest of every 32 logits of a row, taken while the head's output is still in the nearest cache.
//
// A row that nothing changes afterwards has its maximum without another pass over the vocabulary, filters pass over
// blocks that hold no candidate, and of a greedy row no logits need be kept. Knows nothing of: plans, sampling.
#pragma once

#include <algorithm>
#include <cstdint>

#include "logprobs.h"

namespace ov {

class LogitBlocks {
 public:
  static constexpr int32_t kColumns = 32;  // a head's pieces begin at pairs of tiles
  // With more rows in a chunk every thread has rows of its own to sample, and a pass over these costs less than this does.
  static constexpr int64_t kMaxRows = 4;

  LogitBlocks() = default;
  ~LogitBlocks();
  LogitBlocks(const LogitBlocks&) = delete;
  LogitBlocks& operator=(const LogitBlocks&) = delete;

  bool allocate(int32_t vocab);  // false: out of memory

  // Of columns [first, first + columns) of rows from `row` on, whose values begin at x, x + stride, ...; first is a
  // multiple of kColumns. NaN where a block holds one.
  void take(int64_t row, int64_t rows, int64_t first, int64_t columns, const float* x, int64_t stride);

  const float* maxima(int64_t row) const { return maxima_ + row * stride_; }
  // As row_stats() of the whole row. x: the row, of which the block of its maximum is read.
  RowStats stats(int64_t row, const float* x) const;
  // The block of a row's maximum; -1: it has none, or is not finite.
  int32_t best_block(int64_t row) const { return row_stats(maxima(row), num_blocks_).argmax; }

 private:
  float* maxima_ = nullptr;  // [rows][stride]
  int32_t vocab_ = 0, num_blocks_ = 0;
  int64_t stride_ = 0, bytes_ = 0;
};

}  // namespace ov
