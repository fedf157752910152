// Choosing tokens: penalties, masks, truncation of the distribution, one draw, and the log-probabilities reported with
// it.
//
// Rows are independent and each is done by one thread in a fixed order, so a row's token depends on its logits and its
// own sampling values alone. Knows nothing of: plans, requests, Python.
#pragma once

#include <cstdint>

#include "logit_blocks.h"
#include "octavo.h"
#include "pool.h"
#include "view.h"

namespace ov {

enum class LogprobsMode { kNone, kRaw, kProcessed };

// What is reported of rows that ask.
struct Reporting {
  LogprobsMode mode = LogprobsMode::kNone;
  bool is_logits = false;  // the logits themselves, not their log-softmax
};

// A chunk of logit rows: row i of `logits` is row first + i of the sampling arrays and of the output.
struct LogitChunk {
  View logits;  // [rows, vocab] f32, changed in place
  int64_t first, rows;
  int32_t vocab;
  const ov_sampling* sampling;
  ov_sample_output* out;
  int32_t* last_tokens;
  const LogitBlocks* blocks;  // of the logits as the head gave them; nullptr: not known
  Reporting reporting;
};

// Whether something changes a row's logits (penalties, biases, masks, a matcher, a hook) before its token is chosen.
bool is_changed(const ov_sampling& sampling, int64_t row);

// Whether all rows [first, first + rows) are decided by their largest logit alone, unchanged and unreported.
bool needs_no_logits(const ov_sampling& sampling, const ov_sample_output& out, int64_t first, int64_t rows);

// Memory of the sampler, allocated once per plan; pages are touched only by rows that need them.
class SamplerScratch {
 public:
  SamplerScratch() = default;
  ~SamplerScratch();
  SamplerScratch(const SamplerScratch&) = delete;
  SamplerScratch& operator=(const SamplerScratch&) = delete;

  bool allocate(int workers, int32_t vocab,
                int32_t chunk_rows);  // false: out of memory

  char* worker(int index) const { return memory_ + index * worker_bytes_; }
  // Unprocessed logits of a chunk row that will be changed before its token is known.
  float* raw_row(int64_t row) const { return raw_ + row * raw_stride_; }
  double* log_sum(int64_t row) const { return log_sums_ + row; }

 private:
  char* memory_ = nullptr;
  int64_t worker_bytes_ = 0, memory_bytes_ = 0;
  float* raw_ = nullptr;
  int64_t raw_stride_ = 0, raw_bytes_ = 0;
  double* log_sums_ = nullptr;
  int64_t log_sums_bytes_ = 0;
};

// Biases and bans, then repetition, frequency and presence penalties.
void penalize(ov_pool* pool, const LogitChunk& chunk);

// -inf where a row's mask bit is 0, or its matcher refuses; only of rows where sample() does not look at masks by itself.
void mask(ov_pool* pool, const LogitChunk& chunk, const SamplerScratch& scratch);

// The caller's hook, if there is one, on this thread.
void call_logits_hook(const LogitChunk& chunk);

// Statistics of the logits as they are now, for rows that ask; the chosen id's column is filled in by sample().
void raw_logprobs(ov_pool* pool, const LogitChunk& chunk, const SamplerScratch& scratch, bool is_logits);

// Picks a token per row (or takes the target), sets last_tokens and status, and completes the log-probabilities.
void sample(ov_pool* pool, const LogitChunk& chunk, const SamplerScratch& scratch);

}  // namespace ov
