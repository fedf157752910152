// Softmax weights of query vectors over one partition where hardware rounds to bf16: as attention_softmax.h in steps of
// 32 tokens, with masks for what a row does not see and weights as pairs of bf16 in the place of their scores.
//
// A weight is p(y - floor(y)) times 2^floor(y): two instructions take the place of rounding, subtracting and bounding.
// Knows nothing of: blocks, tile registers.
#pragma once

#include "attention_softmax.h"
#include "attention_task.h"

#if defined(__AVX512BF16__)

namespace ov {

inline constexpr int kStepTokens = 32;

// Tokens [from, to) of a partition are visible to a row.
struct TileRow {
  float* scores;  // [kPartition] q . K; then the weights
  int32_t from, to;

  TileRow(const AttentionArgs& a, int32_t position, int32_t start, float* row_scores)
      : scores(row_scores),
        from(a.window > 0 && position - a.window + 1 > start ? position - a.window + 1 - start : 0),
        to(position + 1 - start < kPartition ? position + 1 - start : kPartition) {}
  int begin() const { return from < to ? from / kStepTokens : 0; }
  int end() const { return from < to ? (to + kStepTokens - 1) / kStepTokens : 0; }
  // The lanes of a step.
  uint32_t visible(int step) const {
    const int32_t low = from - step * kStepTokens, high = to - step * kStepTokens;
    return (high < kStepTokens ? (1u << high) - 1u : ~0u) & ~0u << (low > 0 ? low : 0);
  }
};

inline __mmask16 half_of(uint32_t mask, int half) { return static_cast<__mmask16>(mask >> 16 * half); }

// f(step, mask of lanes) over the visible steps; the mask of whole steps is a constant.
template <class F>
OV_ALWAYS_INLINE void each_step(const TileRow& row, F&& f) {
  int s = row.begin();
  const int end = row.end(), whole = end > 0 ? row.to / kStepTokens : 0;
  if (s < end && (row.from > s * kStepTokens || s >= whole)) {
    f(s, row.visible(s));
    ++s;
  }
  for (; s < whole; ++s) f(s, std::integral_constant<uint32_t, ~0u>{});
  if (s < end) f(s, row.visible(s));
}

// A step of a row's largest visible score of each lane: scores are stored scaled and capped unless they are plain.
template <class Cache, class Mask>
OV_ALWAYS_INLINE void max_step(const AttentionArgs& a, float* scores, int s, Mask mask, const Scales& scales,
                               bool is_plain, Lanes (&top)[2]) {
  for (int half = 0; half < 2; ++half) {
    float* p = scores + s * kStepTokens + half * kLanes;
    const __mmask16 lanes = half_of(mask, half);
    Lanes x = load(p);
    if (!is_plain) {
      x = x * set1(a.scale);
      // slots of tokens that no row sees may have no scale
      if constexpr (Cache::kHasScales) x = x * Lanes{_mm512_maskz_loadu_ps(lanes, scales.k[2 * s + half])};
      if (a.cap > 0.0f) x = set1(a.cap) * vtanh(x / set1(a.cap));
      store(p, x);
    }
    top[half].v = _mm512_mask_max_ps(top[half].v, lanes, top[half].v, x.v);
  }
}

// Largest visible score of each lane.
template <class Cache>
inline Lanes tile_row_max(const AttentionArgs& a, const TileRow& row, const Scales& scales, bool is_plain) {
  Lanes top[2] = {set1(-INFINITY), set1(-INFINITY)};
  const auto run = [&](auto plain) OV_INLINED {
    each_step(row, [&](int s, auto mask) OV_INLINED { max_step<Cache>(a, row.scores, s, mask, scales, plain, top); });
  };
  is_plain ? run(std::true_type()) : run(std::false_type());
  return max(top[0], top[1]);
}

// 2^y for y - floor(y): minimax on [0, 1], relative error <= 8e-5.
struct PowerOfTwo {
  Lanes cubic = set1(0.07802451680f), square = set1(0.2260671638f), linear = set1(0.6958335376f),
        constant = set1(0.9999252187f), lowest = set1(-126.0f);
};

// 2^y in the lanes of a mask, 0 elsewhere and below 2^-126.
OV_ALWAYS_INLINE Lanes tile_weight(Lanes y, __mmask16 lanes, const PowerOfTwo& power) {
  constexpr int kFloor = 9;  // towards minus infinity, no exceptions
  const Lanes r{_mm512_reduce_ps(y.v, kFloor)};
  Lanes p = fma(power.cubic, r, power.square);
  p = fma(p, r, power.linear);
  p = fma(p, r, power.constant);
  const __mmask16 normal = _mm512_mask_cmp_ps_mask(lanes, y.v, power.lowest.v, _CMP_NLT_UQ);  // NaN too
  return {_mm512_maskz_scalef_ps(normal, p.v, y.v)};
}

// What weights 2^(factor * log2(e) * (score - maximum)) of a row are made with.
struct WeightFactors {
  Lanes to_log2, shift;

  static constexpr float kLog2e = 1.44269504088896341f;
  // no token visible: nothing is computed
  static float shift_of(float maximum, float factor) {
    return maximum == -INFINITY ? 0.0f : maximum * (factor * -kLog2e);
  }
};

inline void store_no_weights(float* scores, int step) {
  _mm512_storeu_si512(reinterpret_cast<uint16_t*>(scores) + step * kStepTokens, _mm512_setzero_si512());
}

inline Lanes ones_of_pairs() { return {_mm512_castsi512_ps(_mm512_set1_epi16(0x3f80))}; }

// A step of a row's scores -> weights times V's scales; adds to each lane's sum without these, of rounded weights for a
// bf16 cache.
template <class Cache, class Mask>
OV_ALWAYS_INLINE void weight_step(float* scores, int s, Mask mask, const Scales& scales, const WeightFactors& factors,
                                  Lanes& sum, const PowerOfTwo& power = {}, Lanes ones = ones_of_pairs()) {
  Lanes w[2];
  for (int half = 0; half < 2; ++half) {
    const __mmask16 lanes = half_of(mask, half);
    w[half] =
        tile_weight(fma(load(scores + s * kStepTokens + half * kLanes), factors.to_log2, factors.shift), lanes, power);
    if constexpr (Cache::kHasScales) {
      sum = sum + w[half];
      // no weight: the slot's scale may be no number
      const __mmask16 some = _mm512_cmp_ps_mask(w[half].v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
      w[half].v = _mm512_maskz_mul_ps(some, w[half].v, _mm512_maskz_loadu_ps(lanes, scales.v[2 * s + half]));
    }
  }
  const __m512bh pairs = _mm512_cvtne2ps_pbh(w[1].v, w[0].v);
  if constexpr (!Cache::kHasScales) sum.v = _mm512_dpbf16_ps(sum.v, pairs, (__m512bh)ones.v);
  _mm512_storeu_si512(reinterpret_cast<uint16_t*>(scores) + s * kStepTokens, (__m512i)pairs);
}

// Weights of a row in steps [first, last); each lane's sum.
template <class Cache>
inline Lanes tile_row_weights(const TileRow& row, const Scales& scales, const WeightFactors& factors, int first,
                              int last) {
  Lanes sum = set1(0.0f);
  for (int s = first; s < row.begin(); ++s) store_no_weights(row.scores, s);
  each_step(row, [&](int s, auto mask) OV_INLINED { weight_step<Cache>(row.scores, s, mask, scales, factors, sum); });
  for (int s = row.end() > first ? row.end() : first; s < last; ++s) store_no_weights(row.scores, s);
  return sum;
}

// Lane i: what `combine` makes of the lanes of row i, always in the same order. Rows: how many there are, 4 or 16.
template <int Rows, class Combine>
OV_ALWAYS_INLINE Lanes combine_rows(const Lanes* rows, Combine&& combine) {
  Lanes pairs[Rows / 2], fours[Rows / 4];
  unroll<Rows / 2>([&](auto i) OV_INLINED {
    const __m512 a = rows[2 * i.value].v, b = rows[2 * i.value + 1].v;
    pairs[i.value] = combine(Lanes{_mm512_unpacklo_ps(a, b)}, Lanes{_mm512_unpackhi_ps(a, b)});
  });
  unroll<Rows / 4>([&](auto i) OV_INLINED {
    const __m512d a = _mm512_castps_pd(pairs[2 * i.value].v), b = _mm512_castps_pd(pairs[2 * i.value + 1].v);
    fours[i.value] =
        combine(Lanes{_mm512_castpd_ps(_mm512_unpacklo_pd(a, b))}, Lanes{_mm512_castpd_ps(_mm512_unpackhi_pd(a, b))});
  });
  const auto cross = [&](Lanes a, Lanes b) OV_INLINED {
    return combine(Lanes{_mm512_shuffle_f32x4(a.v, b.v, 0x88)}, Lanes{_mm512_shuffle_f32x4(a.v, b.v, 0xdd)});
  };
  if constexpr (Rows == 4) {
    const Lanes both = cross(fours[0], fours[0]);
    return cross(both, both);
  } else {
    return cross(cross(fours[0], fours[1]), cross(fours[2], fours[3]));
  }
}

// Weights of all vectors of a tile in a partition that starts at token `start`.
template <class Cache>
void tile_softmax(const AttentionArgs& a, const QueryRows& tile, int32_t start, float* scores, const Scales& scales,
                  int first, int last, const State& result) {
  const int group = a.num_heads / a.layer->shape.num_kv_heads;
  const bool is_plain = has_plain_scores<Cache>(a);
  // f(vector, what it sees) -> lanes, of which one number is made
  const auto each = [&](float* numbers, auto&& combine, auto&& f) {
    Lanes lanes[kLanes];
    int m = 0;
    for (int row = 0; row < tile.rows; ++row) {
      for (int g = 0; g < group; ++g, ++m) {
        lanes[m % kLanes] = f(m, TileRow(a, tile.first_position + row, start, scores + int64_t{m} * kScoreStride));
        if (m % kLanes == kLanes - 1) store(numbers + m - (kLanes - 1), combine_rows<kLanes>(lanes, combine));
      }
    }
    const int left = m % kLanes;
    if (left == 0) return;
    const int rows = left <= 4 ? 4 : kLanes;
    for (int i = left; i < rows; ++i) lanes[i] = set1(0.0f);
    float* const to = numbers + m / kLanes * kLanes;  // room for whole vectors
    store(to, rows == 4 ? combine_rows<4>(lanes, combine) : combine_rows<kLanes>(lanes, combine));
  };
  // maxima of all rows first: weights of a row need not wait for its own
  each(
      result.max, [](Lanes x, Lanes y) { return max(x, y); },
      [&](int, const TileRow& row) { return tile_row_max<Cache>(a, row, scales, is_plain); });
  const float factor = is_plain ? a.scale : 1.0f;
  each(
      result.sum, [](Lanes x, Lanes y) { return x + y; },
      [&](int m, const TileRow& row) {
        const WeightFactors factors{set1(factor * WeightFactors::kLog2e),
                                    set1(WeightFactors::shift_of(result.max[m], factor))};
        return tile_row_weights<Cache>(row, scales, factors, first, last);
      });
  for (int m = 0; m < tile.vectors; m += kLanes) store(result.max + m, load(result.max + m) * set1(factor));
}

}  // namespace ov

#endif
