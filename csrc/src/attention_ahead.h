// Asking memory for K and V before they are read.
//
// A request that decodes reads each line of its cache once, sub-block by sub-block, which lie anywhere: the processor's own
// prefetchers stop at their ends. Whoever reads a sub-block asks, line by line, for one that this thread reads some KB
// later, also in the next partition, head and request. Knows nothing of: how scores and sums of V are computed.
#pragma once

#include "attention_sub_blocks.h"
#include "attention_task.h"
#include "prefetch.h"

namespace ov {

// What is read in order: item i is some partitions of the cache of some rows.
struct KvOrder {
  struct Item {
    QueryRows rows;
    int32_t first, end;  // partitions
  };
  Item (*item)(const void* context, int64_t i);
  const void* context;
};

// A partition's K is read before its V; they are asked for so, too, or in the order of memory, K and V of a block together.
constexpr bool kIsInMemoryOrder = !kAsksForAll;

class KvAhead {
 public:
  KvAhead(const AttentionArgs& a, const ov_step& step, const KvOrder& order)
      : a_(a), step_(step), order_(order), shape_(a.layer->shape) {}

  // Item i is read next, and the ones up to `end` after it.
  void begin(int64_t i, int64_t end) {
    if (i != expected_) {
      end_ = end;
      open(i);
      // all of K is read before the V that was asked for with it
      const int64_t of_v = kIsInMemoryOrder ? kSubsPerPartition * shape_.k_sub_bytes : 0;
      for (int64_t asked = 0; asked < kAheadBytes + of_v; asked += shape_.k_sub_bytes) {
        const char* const p = next(nullptr);
        if (!p) break;
        for (int64_t at = 0; at < shape_.k_sub_bytes; at += 64) ask_for(p + at);
      }
    }
    expected_ = i + 1;
  }

  // The sub-block to ask for while one is read; `other` if none is known.
  const char* next(const char* other) {
    if (i_ >= end_) return other;
    const int32_t* table = step_.block_tables[a_.layer->group] + item_.rows.request * step_.block_table_stride;
    char* share = a_.layer->share(table[place_.block]);
    const int sub = place_.sub, head = item_.rows.kv_head;
    const char* const found = in_v_ ? shape_.v_sub(share, head, sub) : shape_.k_sub(share, head, sub);
    if (shape_.dtype == OV_I8 || shape_.dtype == OV_F8_E4M3)
      ask_for(in_v_ ? shape_.v_scales(share, head, sub) : shape_.k_scales(share, head, sub));
    advance();
    return found;
  }

 private:
  void open(int64_t i) {
    i_ = i;
    if (i >= end_) return;
    item_ = order_.item(order_.context, i);
    open_partition(item_.first);
  }
  void open_partition(int32_t partition) {
    partition_ = partition;
    const SubSpan span(item_.rows, partition * kPartition);
    first_ = sub_ = span.first;
    last_ = span.last;
    start_ = place_ = SubPlace(shape_, partition * kPartition + sub_ * kSubBlock);
    in_v_ = false;
  }

  void advance() {
    if constexpr (kIsInMemoryOrder) {
      in_v_ = !in_v_;
      if (in_v_) return;
      place_.advance(shape_);
      if (++sub_ < last_) return;
    } else {
      place_.advance(shape_);
      if (++sub_ < last_) return;
      sub_ = first_;
      place_ = start_;
      in_v_ = !in_v_;
      if (in_v_) return;
    }
    if (partition_ + 1 < item_.end)
      open_partition(partition_ + 1);
    else
      open(i_ + 1);
  }

  const AttentionArgs& a_;
  const ov_step& step_;
  const KvOrder order_;
  const KvShape& shape_;
  int64_t expected_ = -1, i_ = 0, end_ = 0;
  KvOrder::Item item_;
  int32_t partition_ = 0;
  int sub_ = 0, first_ = 0, last_ = 0;  // of the partition
  SubPlace place_, start_;              // of sub_ and first_
  bool in_v_ = false;
};

static_assert(sizeof(KvAhead) <= Workspace::kAheadRoom);

}  // namespace ov
