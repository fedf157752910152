#include "logprobs.h"

#include <algorithm>
#include <cmath>

#include "allowed.h"
#include "vmath.h"

namespace ov {
namespace {

constexpr int32_t kBlock = 256;

// Lanes [i, i + 16) of x; lanes past n read as -inf.
inline Lanes load_tail(const float* x, int32_t i, int32_t n) {
  const int count = n - i;
  return select(mask_from_bits((1u << count) - 1u), load_part(x + i, count), set1(-INFINITY));
}

inline Lanes load_any(const float* x, int32_t i, int32_t n) {
  return i + kLanes <= n ? load(x + i) : load_tail(x, i, n);
}

// The lowest of ids [first, last) that are allowed and whose value is `largest`; one is.
template <class Allowed>
int32_t id_of(const float* x, int32_t first, int32_t last, const Allowed& allowed, float largest) {
  const Lanes target = set1(largest);
  for (int32_t i = first; i < last; i += kLanes) {
    if (!allowed.lanes(i)) continue;
    const uint32_t hit = mask_bits(less_equal(target, load_any(x, i, last))) & allowed.lanes(i);
    if (hit) return i + __builtin_ctz(hit);
  }
  __builtin_unreachable();
}

// Block by block, so that the id of the maximum is looked for in one of them only. Asked for far ahead, as what the head has
// written lies in the last-level cache by then.
template <class Allowed>
RowStats stats_of(const float* x, int32_t n, const Allowed& allowed) {
  constexpr int32_t kStatsBlock = 1024, kAhead = 1024;
  const Lanes lowest = set1(-INFINITY);
  RowStats stats{-INFINITY, -1, false};
  int32_t best = 0;           // the first block with the maximum
  uint32_t numbers = 0xffff;  // lanes that have seen no NaN
  for (int32_t first = 0; first < n; first += kStatsBlock) {
    const int32_t last = std::min(first + kStatsBlock, n);
    Lanes top = lowest;
    const auto visit = [&](Lanes v, int32_t i) {
      v = allowed.only(v, lowest, i);
      numbers &= mask_bits(less_equal(v, v));
      top = max(v, top);
    };
    int32_t i = first;
    for (; i + kLanes <= last; i += kLanes) {
      __builtin_prefetch(x + i + kAhead);
      if (allowed.lanes(i)) visit(load(x + i), i);
    }
    if (i < last) visit(load_tail(x, i, last), i);
    if (!mask_bits(less(set1(stats.max), top))) continue;
    stats.max = max_lanes(top);
    best = first;
  }
  stats.is_finite = numbers == 0xffff && stats.max != INFINITY;
  if (stats.is_finite && stats.max != -INFINITY)
    stats.argmax = id_of(x, best, std::min(best + kStatsBlock, n), allowed, stats.max);
  return stats;
}

}  // namespace

RowStats row_stats(const float* x, int32_t n, const uint32_t* allowed) {
  return with_allowed(allowed, [&](const auto& ids) { return stats_of(x, n, ids); });
}

double log_sum_exp(const float* x, int32_t n, float max) {
  const Lanes top = set1(max);
  double total = 0.0;
  for (int32_t first = 0; first < n; first += kBlock) {
    const int32_t last = std::min(first + kBlock, n);
    Lanes sum = set1(0.0f);
    for (int32_t i = first; i < last; i += kLanes) sum = sum + vexp(load_any(x, i, n) - top);
    total += static_cast<double>(sum_lanes(sum));
  }
  return static_cast<double>(max) + std::log(total);
}

int32_t rank_of(const float* x, int32_t n, int32_t id) {
  const Lanes value = set1(x[id]);
  int32_t rank = 1, i = 0;
  for (; i + kLanes <= n; i += kLanes) rank += __builtin_popcount(mask_bits(less(value, load(x + i))));
  for (; i < n; ++i) rank += x[i] > x[id];
  return rank;
}

int32_t top_keys(const float* x, int32_t n, int32_t count, uint64_t* keys) {
  count = std::min(count, n);
  if (count <= 0) return 0;
  // candidates above the threshold are collected until the buffer is full, then only the best `count` stay
  const int32_t room = std::min<int64_t>(n, std::max<int64_t>(4 * int64_t{count}, 1024));
  int32_t held = 0;
  float threshold = -INFINITY;
  bool is_full = false;  // threshold is the count-th best so far
  const auto shrink = [&] {
    std::nth_element(keys, keys + count - 1, keys + held);
    held = count;
    threshold = x[key_id(keys[count - 1])];
    is_full = true;
  };
  for (int32_t i = 0; i < n; i += kLanes) {
    const int32_t lanes = std::min<int32_t>(kLanes, n - i);
    uint32_t hits = (1u << lanes) - 1u;
    // an equal value further right has a higher id and loses the tie
    if (is_full) hits &= mask_bits(less(set1(threshold), lanes == kLanes ? load(x + i) : load_tail(x, i, n)));
    while (hits) {
      const int32_t id = i + __builtin_ctz(hits);
      hits &= hits - 1;
      keys[held++] = logit_key(x[id], id);
    }
    if (held >= room && held > count) shrink();
  }
  if (held > count) shrink();
  std::sort(keys, keys + held);
  return held;
}

}  // namespace ov
