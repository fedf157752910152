// The tasks of a step of attention, and what a thread reads after the one at hand.
//
// Knows nothing of: how scores and sums of V are computed.
#pragma once

#include "attention_task.h"

namespace ov {

// The tasks of a step: request by request, whose heads lie next to each other; then head by head, so that neighbouring
// rows of a long prefill find K and V in the cache.
class Tasks {
 public:
  // first_request, first_row: as many entries as a step has tokens.
  Tasks(const AttentionArgs& a, const ov_step& step, int task_rows, int32_t* requests, int32_t* first_rows)
      : a_(a), step_(step), task_rows_(task_rows), requests_(requests), first_rows_(first_rows) {
    for (int32_t r = 0; r < step.num_requests; ++r) {
      const int32_t query_len = step.query_start[r + 1] - step.query_start[r];
      for (int32_t row = 0; row < query_len; row += task_rows) {
        requests[spans_] = r;
        first_rows[spans_++] = row;
      }
    }
  }
  int64_t size() const { return int64_t{spans_} * a_.layer->shape.num_kv_heads; }
  QueryRows operator[](int64_t task) const {
    const int32_t kv_heads = a_.layer->shape.num_kv_heads;
    const int64_t any = task / kv_heads;  // a span of the request, not always this one
    QueryRows t;
    t.request = requests_[any];
    const int32_t query_len = step_.query_start[t.request + 1] - step_.query_start[t.request];
    const int64_t first = any - first_rows_[any] / task_rows_, spans = (query_len + task_rows_ - 1) / task_rows_;
    const int64_t local = task - first * kv_heads;
    t.kv_head = static_cast<int32_t>(local / spans);
    const int32_t row = static_cast<int32_t>(local % spans) * task_rows_;
    t.first_token = step_.query_start[t.request] + row;
    t.first_position = step_.seq_lens[t.request] - query_len + row;
    t.rows = query_len - row < task_rows_ ? query_len - row : task_rows_;
    t.see(a_);
    return t;
  }

 private:
  const AttentionArgs& a_;
  const ov_step& step_;
  int task_rows_;
  int32_t *requests_, *first_rows_;
  int32_t spans_ = 0;
};

}  // namespace ov
