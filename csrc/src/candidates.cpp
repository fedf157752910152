#include "candidates.h"

#include <algorithm>
#include <cmath>

#include "allowed.h"
#include "logit_blocks.h"
#include "logprobs.h"
#include "vmath.h"

namespace ov {
namespace {

inline Lanes weights_at(const float* x, int32_t i, int32_t n, Lanes max, Lanes inverse_temperature) {
  const int32_t count = std::min<int32_t>(kLanes, n - i);
  Lanes w = vexp((load_part(x + i, count) - max) * inverse_temperature);
  if (count < kLanes) w = select(mask_from_bits((1u << count) - 1u), w, set1(0.0f));
  return w;
}

// Appends ids of sixteen lanes with weight >= floor (and > 0).
inline int32_t append(const float* x, int32_t i, Lanes w, Lanes floor, Candidate* out, int32_t count) {
  uint32_t hits = mask_bits(less_equal(floor, w)) & mask_bits(less(set1(0.0f), w));
  if (!hits) return count;
  alignas(64) float lanes[kLanes];
  store(lanes, w);
  for (; hits; hits &= hits - 1) {
    const int lane = __builtin_ctz(hits);
    out[count++] = {logit_key(x[i + lane], i + lane), lanes[lane]};
  }
  return count;
}

// Ids with weight >= least (and > 0), in rising order, and the weight of all ids.
int32_t collect_and_sum(const float* x, int32_t n, float max, const Filters& f, float least, double* sum,
                        Candidate* out) {
  const Lanes top = set1(max), inverse = set1(f.inverse_temperature), floor = set1(least);
  int32_t count = 0;
  double total = 0.0;
  for (int32_t first = 0; first < n; first += kWeightBlock) {
    const int32_t last = std::min(first + kWeightBlock, n);
    Lanes block = set1(0.0f);
    for (int32_t i = first; i < last; i += kLanes) {
      const Lanes w = weights_at(x, i, n, top, inverse);
      block = block + w;
      count = append(x, i, w, floor, out, count);
    }
    total += static_cast<double>(sum_lanes(block));
  }
  *sum = total;
  return count;
}

// The same ids without the sum: exponentials only where some logit may be high enough.
int32_t collect(const float* x, const float* maxima, int32_t n, float max, const Filters& f, float least,
                Candidate* out) {
  const Lanes top = set1(max), inverse = set1(f.inverse_temperature), floor = set1(least);
  // a little lower than needed: which ids are taken is for their weights to say
  const Lanes exponent = set1(least > 0.0f ? std::log(least) - 0.001f : -88.0f);
  const auto may_hit = [&](Lanes logits) { return mask_bits(less_equal(exponent, (logits - top) * inverse)); };
  int32_t count = 0;
  const auto visit = [&](int32_t i) {
    if (may_hit(load_part(x + i, std::min<int32_t>(kLanes, n - i))))
      count = append(x, i, weights_at(x, i, n, top, inverse), floor, out, count);
  };
  if (!maxima) {
    for (int32_t i = 0; i < n; i += kLanes) visit(i);
    return count;
  }
  const int32_t blocks = (n + LogitBlocks::kColumns - 1) / LogitBlocks::kColumns;
  for (int32_t first = 0; first < blocks; first += kLanes) {
    const int32_t lanes = std::min<int32_t>(kLanes, blocks - first);
    uint32_t hits = may_hit(load_part(maxima + first, lanes)) & ((1u << lanes) - 1u);
    for (; hits; hits &= hits - 1) {
      const int32_t begin = (first + __builtin_ctz(hits)) * LogitBlocks::kColumns;
      for (int32_t i = begin; i < std::min(begin + LogitBlocks::kColumns, n); i += kLanes) visit(i);
    }
  }
  return count;
}

// The key of the last candidate that stays when the best are taken until `measure` (count or weight) reaches limit.
// Radix selection from the top byte of the keys: each pass looks at the bucket where the limit falls.
template <class Measure>
uint64_t cutoff_key(const Candidate* candidates, int32_t count, double limit, int32_t* active, Measure&& measure) {
  for (int32_t i = 0; i < count; ++i) active[i] = i;
  double before = 0.0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    double bucket[256] = {};
    for (int32_t i = 0; i < count; ++i) {
      const Candidate& c = candidates[active[i]];
      bucket[c.key >> shift & 255] += measure(c);
    }
    int chosen = 0;
    while (chosen < 256 && before + bucket[chosen] < limit) before += bucket[chosen++];
    if (chosen == 256) return UINT64_MAX;  // rounding left the limit just above the total
    int32_t kept = 0;
    for (int32_t i = 0; i < count; ++i)
      if ((candidates[active[i]].key >> shift & 255) == static_cast<uint64_t>(chosen)) active[kept++] = active[i];
    count = kept;
    if (count == 1) break;
  }
  return candidates[active[0]].key;
}

int32_t keep_up_to(Candidate* candidates, int32_t count, uint64_t cutoff) {
  int32_t kept = 0;
  for (int32_t i = 0; i < count; ++i)
    if (candidates[i].key <= cutoff) candidates[kept++] = candidates[i];
  return kept;
}

}  // namespace

int32_t collect_all(const float* x, const float* maxima, int32_t n, float max, const Filters& f, Candidate* out) {
  return collect(x, maxima, n, max, f, 0.0f, out);
}

double weight_of(const Candidate* candidates, int32_t count) {
  double sum = 0.0;
  for (int32_t i = 0; i < count; ++i) sum += static_cast<double>(candidates[i].weight);
  return sum;
}

int32_t truncate(const float* x, const float* maxima, int32_t n, float max, const Filters& f, const Workspace& ws) {
  Candidate* c = ws.candidates;
  const bool has_top_k = f.top_k > 0 && f.top_k < n, has_top_p = f.top_p < 1.0f;
  // Nearly always the survivors are within e^-10 of the best; the set is widened until it provably contains them.
  for (float least : {4.5399930e-5f, 2.0611537e-9f, 0.0f}) {
    const bool is_complete = least <= f.min_p || least == 0.0f;
    double total = 0.0;
    const float floor = std::max(least, f.min_p);
    int32_t count = has_top_p && !has_top_k && !is_complete ? collect_and_sum(x, n, max, f, floor, &total, c)
                                                            : collect(x, maxima, n, max, f, floor, c);
    if (is_complete) total = weight_of(c, count);
    if (has_top_k) {
      if (count < f.top_k && !is_complete) continue;
      if (count > f.top_k)
        count = keep_up_to(c, count, cutoff_key(c, count, f.top_k, ws.active, [](const Candidate&) { return 1.0; }));
      total = weight_of(c, count);
    }
    if (has_top_p) {
      const double limit = static_cast<double>(f.top_p) * total;
      if (!has_top_k && !is_complete && weight_of(c, count) < limit) continue;
      count = keep_up_to(c, count, cutoff_key(c, count, limit, ws.active, [](const Candidate& k) {
                           return static_cast<double>(k.weight);
                         }));
    }
    return count;
  }
  return 0;  // not reached: the last pass is complete
}

int32_t draw_candidate(const Candidate* c, int32_t count, double uniform) {
  const double target = uniform * weight_of(c, count);
  double cumulative = 0.0;
  for (int32_t i = 0; i < count; ++i) {
    cumulative += static_cast<double>(c[i].weight);
    if (cumulative > target) return key_id(c[i].key);
  }
  return key_id(c[count - 1].key);
}

namespace {

// Sum of the weights of a block.
template <class Allowed>
float block_weight(const float* x, int32_t first, const Allowed& allowed, int32_t n, float max,
                   float inverse_temperature) {
  const Lanes top = set1(max), inverse = set1(inverse_temperature), nothing = set1(0.0f);
  Lanes sum = nothing;
  if (first + kWeightBlock <= n) {
    // known to be whole, so that nothing stands between the exponentials
    for (int32_t i = first; i < first + kWeightBlock; i += kLanes)
      if (allowed.lanes(i)) sum = sum + allowed.only(vexp((load(x + i) - top) * inverse), nothing, i);
  } else {
    for (int32_t i = first; i < n; i += kLanes)
      if (allowed.lanes(i)) sum = sum + allowed.only(weights_at(x, i, n, top, inverse), nothing, i);
  }
  return sum_lanes(sum);
}

template <class Allowed>
int32_t draw_of(ov_pool* pool, const float* x, const Allowed& allowed, int32_t n, float max, const Filters& f,
                double uniform, const Workspace& ws) {
  const Lanes top = set1(max), inverse = set1(f.inverse_temperature), nothing = set1(0.0f);
  const int32_t blocks = (n + kWeightBlock - 1) / kWeightBlock;
  parallel_rows(pool, blocks, 2 * kWeightBlock, [&](int64_t block, int) {
    const int32_t first = static_cast<int32_t>(block) * kWeightBlock;
    ws.block_sums[block] = static_cast<double>(block_weight(x, first, allowed, n, max, f.inverse_temperature));
  });
  double total = 0.0;
  for (int32_t b = 0; b < blocks; ++b) total += ws.block_sums[b];
  const double target = uniform * total;
  double cumulative = 0.0;
  int32_t block = 0, last_with_weight = 0;
  for (; block < blocks; ++block) {
    if (cumulative + ws.block_sums[block] > target) break;
    cumulative += ws.block_sums[block];
    if (ws.block_sums[block] > 0.0) last_with_weight = block;
  }
  if (block == blocks) block = last_with_weight;
  int32_t chosen = -1;
  for (int32_t i = block * kWeightBlock; i < std::min((block + 1) * kWeightBlock, n); i += kLanes) {
    alignas(64) float w[kLanes];
    store(w, allowed.only(weights_at(x, i, n, top, inverse), nothing, i));
    for (int lane = 0; lane < kLanes; ++lane) {
      if (w[lane] <= 0.0f) continue;
      chosen = i + lane;
      cumulative += static_cast<double>(w[lane]);
      if (cumulative > target) return chosen;
    }
  }
  return chosen;  // the block's own sum was rounded up: its last id with weight
}

}  // namespace

int32_t draw_any(ov_pool* pool, const float* x, const uint32_t* allowed, int32_t n, float max, const Filters& f,
                 double uniform, const Workspace& ws) {
  return with_allowed(allowed, [&](const auto& ids) { return draw_of(pool, x, ids, n, max, f, uniform, ws); });
}

}  // namespace ov
