// Where the K and V of a partition lie, for kernels that take V in steps of 32 tokens at absolute positions.
//
// Knows nothing of: how scores and sums of V are computed.
#pragma once

#include "attention_softmax.h"
#include "attention_task.h"

namespace ov {

// Sub-blocks of a partition that some row sees, and the steps they are in.
struct SubSpan {
  int first = 0, last = 0;
  SubSpan() = default;
  SubSpan(const QueryRows& rows, int32_t start) {
    const int32_t from = rows.low > start ? rows.low - start : 0;
    const int32_t to = rows.high - start < kPartition ? rows.high - start : kPartition;
    first = from / kSubBlock;
    last = (to + kSubBlock - 1) / kSubBlock;
  }
  int first_step() const { return first / 2; }
  int last_step() const { return (last + 1) / 2; }
};

// Where a sub-block lies: which of its request's blocks, and which one there. Counted on, as divisions take longer.
struct SubPlace {
  int32_t block = 0, sub = 0;
  SubPlace() = default;
  SubPlace(const KvShape& s, int32_t token) : block(token / s.block_size), sub(token % s.block_size / kSubBlock) {}
  void advance(const KvShape& s) {
    if (++sub * kSubBlock < s.block_size) return;
    sub = 0;
    ++block;
  }
};

template <class Cache>
struct SubBlocks {
  int32_t start, valid;  // first token; slots from it on that hold tokens
  const char* k[kSubsPerPartition];
  const char* v[kSubsPerPartition];  // null beside a sub-block that is seen: weights are 0, not read
  Scales scales;

  SubBlocks() = default;
  SubBlocks(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, int partition)
      : start(partition * kPartition), valid(step.seq_lens[rows.request] - start) {
    const KvShape& s = a.layer->shape;
    const int32_t* table = step.block_tables[a.layer->group] + rows.request * step.block_table_stride;
    const SubSpan span(rows, start);
    if (span.first % 2) v[span.first - 1] = nullptr;
    if (span.last % 2) v[span.last] = nullptr;
    SubPlace place(s, start + span.first * kSubBlock);
    for (int i = span.first; i < span.last; ++i, place.advance(s)) {
      char* share = a.layer->share(table[place.block]);
      const int sub = place.sub;
      k[i] = s.k_sub(share, rows.kv_head, sub);
      v[i] = s.v_sub(share, rows.kv_head, sub);
      if constexpr (Cache::kHasScales) {
        scales.k[i] = s.k_scales(share, rows.kv_head, sub);
        scales.v[i] = s.v_scales(share, rows.kv_head, sub);
      }
    }
    if constexpr (Cache::kHasScales) {  // of sub-blocks beside these nothing is visible
      if (span.first % 2) scales.k[span.first - 1] = scales.v[span.first - 1] = scales.k[span.first];
      if (span.last % 2) scales.k[span.last] = scales.v[span.last] = scales.k[span.last - 1];
    }
  }
};

}  // namespace ov
