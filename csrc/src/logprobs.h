// Log-softmax statistics of one row of logits. Knows nothing of: plans, requests.
#pragma once

#include <cstdint>

#include "lanes.h"

namespace ov {

// Ascending keys order tokens by falling logit, ties by rising id (-0 equals +0).
inline uint64_t logit_key(float logit, int32_t id) {
  const uint32_t u = float_bits(logit + 0.0f);
  const uint32_t rising = u & 0x80000000u ? ~u : u | 0x80000000u;
  return uint64_t{~rising} << 32 | static_cast<uint32_t>(id);
}
inline int32_t key_id(uint64_t key) { return static_cast<int32_t>(static_cast<uint32_t>(key)); }

struct RowStats {
  float max;       // -inf: nothing allowed
  int32_t argmax;  // lowest id that has it
  bool is_finite;  // no NaN and no +inf
};

// allowed: bits of ids (allowed.h), as if all others were -inf; null: all.
RowStats row_stats(const float* x, int32_t n, const uint32_t* allowed = nullptr);

// log(sum(exp(x))): f32 within blocks of 256, f64 over blocks, in order. max is the row's maximum, finite.
double log_sum_exp(const float* x, int32_t n, float max);

// Number of values > x[id], plus 1.
int32_t rank_of(const float* x, int32_t n, int32_t id);

// Keys of the `count` largest values, sorted, into keys (room for n + 16); returns how many (min(count, n)).
int32_t top_keys(const float* x, int32_t n, int32_t count, uint64_t* keys);

}  // namespace ov
