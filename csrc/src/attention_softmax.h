// Softmax weights of one query vector over one partition.
//
// Powers of two: the scale of scores and log2 e are one factor, applied with the shift by the maximum in one fused
// multiply-add. Sub-blocks of which a row sees nothing cost nothing. Knows nothing of: blocks, threads.
#pragma once

#include <cmath>
#include <cstring>

#include "attention_block.h"
#include "vmath.h"

namespace ov {

inline constexpr int kSubsPerPartition = kPartition / kSubBlock;

// Scales of a partition's tokens, sixteen per sub-block; one-byte caches only.
struct Scales {
  const float* k[kSubsPerPartition];
  const float* v[kSubsPerPartition];
};

// Tokens [low, high) of a row's scores are visible; others get weight 0 whatever their slots hold.
struct SoftmaxRow {
  float* scores;      // [subs * 16] q . K; used as scratch, and for weights of f32
  uint16_t* rounded;  // [subs * 16] weights for a bf16 cache
  int subs;
  int32_t from, to;  // the visible ones, counted from the first score
  int begin, end;    // the sub-blocks that hold them

  SoftmaxRow(float* row_scores, uint16_t* row_rounded, int num_subs, int32_t first, int32_t low, int32_t high)
      : scores(row_scores), rounded(row_rounded), subs(num_subs) {
    from = low > first ? low - first : 0;
    to = high - first < subs * kSubBlock ? high - first : subs * kSubBlock;
    begin = from < to ? from / kSubBlock : 0;
    end = from < to ? (to + kSubBlock - 1) / kSubBlock : 0;
  }
};

// Whether scores may stay unscaled until their weights are taken.
template <class Cache>
inline bool has_plain_scores(const AttentionArgs& a) {
  return !Cache::kHasScales && a.cap <= 0.0f && a.scale > 0.0f;
}

// Largest score, as stored: scaled and capped unless they are plain. Edges are masked.
template <class Cache>
float softmax_max(const AttentionArgs& a, const SoftmaxRow& row, const Scales& scales) {
  const Lanes minus_infinity = set1(-INFINITY);
  const bool is_plain = has_plain_scores<Cache>(a);
  Lanes top = minus_infinity;
  for (int s = row.begin; s < row.end; ++s) {
    float* p = row.scores + s * kSubBlock;
    Lanes x = load(p);
    if (!is_plain) {
      x = x * set1(a.scale);
      if constexpr (Cache::kHasScales) x = x * load(scales.k[s]);
      if (a.cap > 0.0f) x = set1(a.cap) * vtanh(x / set1(a.cap));
    }
    const int32_t from = row.from > s * kSubBlock ? row.from - s * kSubBlock : 0;
    const int32_t to = row.to < (s + 1) * kSubBlock ? row.to - s * kSubBlock : kSubBlock;
    const bool is_edge = from > 0 || to < kSubBlock;
    if (is_edge) x = select(mask_from_bits(((1u << to) - 1u) & ~((1u << from) - 1u)), x, minus_infinity);
    if (is_edge || !is_plain) store(p, x);
    top = max(top, x);
  }
  return max_lanes(top);
}

template <class Cache>
inline void store_no_weight(const SoftmaxRow& row, int sub) {
  if constexpr (Cache::kPerWord == 2)
    memset(row.rounded + sub * kSubBlock, 0, kSubBlock * sizeof(uint16_t));
  else
    store(row.scores + sub * kSubBlock, set1(0.0f));
}

// Scores -> weights, 2^(factor * log2(e) * (score - maximum)), times V's scales; their sum without these, of weights as
// rounded for a bf16 cache.
template <class Cache>
float softmax_weights(const SoftmaxRow& row, const Scales& scales, float maximum, float factor) {
  constexpr float kLog2e = 1.44269504088896341f;
  const Lanes to_log2 = set1(factor * kLog2e);
  // no token visible: any finite value makes all weights 2^-inf = 0
  const Lanes shift = set1(maximum == -INFINITY ? 0.0f : maximum * (factor * -kLog2e));
  Lanes sum = set1(0.0f);
  for (int s = 0; s < row.begin; ++s) store_no_weight<Cache>(row, s);
  for (int s = row.begin; s < row.end; ++s) {
    float* p = row.scores + s * kSubBlock;
    Lanes w = vexp2<Cache::kPerWord == 2 ? 3 : 5>(fma(load(p), to_log2, shift));
    Lanes scaled = w;
    if constexpr (Cache::kHasScales)  // a slot that no token of this row lies in may hold a scale that is no number
      scaled = select(less(set1(0.0f), w), w * load(scales.v[s]), set1(0.0f));
    if constexpr (Cache::kPerWord == 2) {
      scaled = store_rounded_bf16(row.rounded + s * kSubBlock, scaled);
    } else {
      store(p, scaled);
    }
    if constexpr (!Cache::kHasScales) w = scaled;
    sum = sum + w;
  }
  for (int s = row.end; s < row.subs; ++s) store_no_weight<Cache>(row, s);
  return sum_lanes(sum);
}

}  // namespace ov
