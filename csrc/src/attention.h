// Paged causal attention over batches that mix prefill and decode.
//
// Softmax runs over partitions of kPartition tokens at absolute positions: each has its own maximum, sum and weighted
// V, and partitions are merged in rising order. A query row's arithmetic is therefore the same however rows are tiled,
// whatever was cached, and however many threads took part (Dao, "FlashAttention-2", 2023, with fixed blocks). With a
// bf16 cache queries and probabilities are rounded to bf16 and sums kept in f32; the denominator sums the rounded
// probabilities. Cache slots past a request's length are never read into a sum. Knows nothing of: plans, schedulers.
#pragma once

#include <cstdint>

#include "kv.h"
#include "octavo.h"
#include "pool.h"
#include "view.h"

namespace ov {

inline constexpr int kPartition = 256;

struct AttentionArgs {
  View q;    // [T, num_heads * k_dim] f32, rotated
  View out;  // [T, num_heads * v_dim], f32 or, if v_dim is a multiple of 32, prepared (prepare.h)
  const KvLayer* layer;
  const float* sinks;  // [num_heads] or nullptr: one more logit in each head's
                       // denominator
  int32_t num_heads;
  int32_t window;  // 0: full
  float scale, cap;
};

// Memory of attention, allocated once for the largest shapes of a plan.
class AttentionScratch {
 public:
  AttentionScratch() = default;
  ~AttentionScratch();
  AttentionScratch(const AttentionScratch&) = delete;
  AttentionScratch& operator=(const AttentionScratch&) = delete;

  // False: out of memory. max_heads_per_kv, k_dim, v_dim: largest of any layer; max_tokens, max_requests bound a step.
  bool allocate(int workers, int max_heads_per_kv, int k_dim, int v_dim, int64_t max_tokens);

  char* worker(int index) const { return workers_ + index * worker_bytes_; }

 private:
  friend void attention(ov_pool*, const AttentionArgs&, const ov_step&, AttentionScratch&);
  int num_workers_ = 0;
  int64_t worker_bytes_ = 0;
  char* workers_ = nullptr;
  float* slots_ = nullptr;  // partial results of split tiles
  int64_t slot_floats_ = 0;
  int32_t num_slots_ = 0;
  float* folds_ = nullptr;  // running results of split tiles, one per tile
  int32_t num_folds_ = 0;
  int32_t* tile_request_ = nullptr;  // [max_tokens]
  int32_t* tile_row_ = nullptr;      // [max_tokens] first query row within the request
  int64_t slots_bytes_ = 0, folds_bytes_ = 0, workers_bytes_ = 0, tiles_bytes_ = 0;
};

void attention(ov_pool* pool, const AttentionArgs& args, const ov_step& step, AttentionScratch& scratch);

}  // namespace ov
