// Results of partitions -> those of query vectors.
//
// Partitions are merged in rising order, so that the sequence of operations is the same whoever computed them. Knows
// nothing of: how a partition is computed.
#pragma once

#include "attention_task.h"
#include "prepare.h"
#include "vmath.h"

namespace ov {

// total = total merged with the next partition; the first one is taken as it is.
inline void fold(const State& total, const State& next, int vectors, int v_pad) {
  const Lanes minus_infinity = set1(-INFINITY);
  for (int m = 0; m < vectors; m += kLanes) {
    const int n = vectors - m < kLanes ? vectors - m : kLanes;
    const Lanes before = load_part(total.max + m, n), other = load_part(next.max + m, n);
    const Lanes top = max(before, other);
    const Lanes shift = select(less_equal(top, minus_infinity), set1(0.0f), top);
    alignas(64) float keep[kLanes], take[kLanes];
    store(keep, vexp(before - shift));
    store(take, vexp(other - shift));
    store_part(total.max + m, top, n);
    store_part(total.sum + m, fma(load_part(next.sum + m, n), load(take), load_part(total.sum + m, n) * load(keep)), n);
    for (int i = 0; i < n; ++i) {
      float* t = total.out + int64_t{m + i} * v_pad;
      const float* o = next.out + int64_t{m + i} * v_pad;
      for (int d = 0; d < v_pad; d += kLanes)
        store(t + d, fma(load(o + d), set1(take[i]), load(t + d) * set1(keep[i])));
    }
  }
}

// Sinks and division by the sum, into the output rows. What linears read is prepared from the result in its own place.
inline void finish(const AttentionArgs& a, const QueryRows& tile, const State& total) {
  const KvShape& s = a.layer->shape;
  const int group = a.num_heads / s.num_kv_heads;
  for (int m = 0; m < tile.vectors; ++m) {
    const int head = tile.kv_head * group + m % group;
    Lanes factor = set1(1.0f), sum = set1(total.sum[m]);
    if (a.sinks) {
      const Lanes before = set1(total.max[m]), sink = set1(a.sinks[head]);
      const Lanes top = max(before, sink);
      factor = vexp(before - top);
      sum = fma(sum, factor, vexp(sink - top));
    }
    float* const o = total.out + int64_t{m} * padded_v(s);
    const int64_t row = tile.first_token + m / group, first = int64_t{head} * s.v_dim;
    const bool is_prepared = a.out.dtype != OV_F32;
    float* const y = is_prepared ? o : a.out.f32(row) + first;
    for (int d = 0; d < s.v_dim; d += kLanes) {
      const int n = s.v_dim - d < kLanes ? s.v_dim - d : kLanes;
      Lanes x = load(o + d);
      if (a.sinks) x = x * factor;
      store_part(y + d, x / sum, n);
    }
    if (is_prepared) prepare_part(a.out, row, first, s.v_dim, o);
  }
}

}  // namespace ov
