// One partition of attention in vector registers: every level and cache but bf16 and one-byte caches in tile registers.
//
// Knows nothing of: tasks, threads.
#pragma once

#include "attention_ahead.h"
#include "attention_block.h"
#include "attention_expanded.h"
#include "attention_softmax.h"
#include "attention_softmax_steps.h"
#include "attention_sub_blocks.h"
#include "attention_task.h"

namespace ov {

// A partition's K and V, as some rows of one request see them.
template <class Cache>
class LanesPartition {
 public:
  LanesPartition(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, int partition,
                 const Workspace& ws) {
    const KvShape& s = a.layer->shape;
    start_ = partition * kPartition;
    from_ = rows.low > start_ ? rows.low / kSubBlock * kSubBlock : start_;
    const int32_t to = rows.high < start_ + kPartition ? rows.high : start_ + kPartition;
    subs_ = (to - from_ + kSubBlock - 1) / kSubBlock;
    const int32_t seq_len = step.seq_lens[rows.request];
    const int32_t* table = step.block_tables[a.layer->group] + rows.request * step.block_table_stride;
    SubPlace place(s, from_);
    for (int i = 0; i < subs_; ++i, place.advance(s)) {
      const int32_t token = from_ + i * kSubBlock;
      char* share = a.layer->share(table[place.block]);
      const int sub = place.sub;
      k_[i] = s.k_sub(share, rows.kv_head, sub);
      v_[i] = s.v_sub(share, rows.kv_head, sub);
      if constexpr (Cache::kHasScales) {  // and finite codes, whatever slot they are in
        const int at = scores_from() / kSubBlock + i;
        scales_.k[at] = s.k_scales(share, rows.kv_head, sub);
        scales_.v[at] = s.v_scales(share, rows.kv_head, sub);
      } else if (token + kSubBlock > seq_len) {
        v_[i] = silenced(s, v_[i], seq_len - token, ws.v_tail);
      }
    }
    if constexpr (kInSteps && Cache::kHasScales) {
      // beside these nothing is visible, but loads with an empty mask have an address, too
      const int first = scores_from() / kSubBlock, end = first + subs_;
      if (first % 2) scales_.k[first - 1] = scales_.v[first - 1] = scales_.k[first];
      if (end % 2) scales_.k[end] = scales_.v[end] = scales_.k[end - 1];
    }
  }

  // The result of the partition for the vectors of a tile.
  void run(const AttentionArgs& a, const TileJob& job, const Workspace& ws) {
    if constexpr (kExpands) {
      if (job.rows.vectors > kFewVectors) {
        expand(a.layer->shape, ws);
        return compute<Bf16Cache>(a, job, ws);
      }
    }
    compute<Cache>(a, job, ws);
  }

 private:
  // Kernel: how the products read what k_ and v_ point to.
  template <class Kernel>
  void compute(const AttentionArgs& a, const TileJob& job, const Workspace& ws) const {
    const KvShape& s = a.layer->shape;
    const QueryRows& tile = job.rows;
    const int64_t q_stride = int64_t{4} / Kernel::kPerWord * s.k_pad;
    const int words = s.k_pad / Kernel::kPerWord;
    const bool asks = tile.vectors <= kFewVectors;  // lines are read once, and by nobody before
    const char* ahead[kSubsPerPartition];
    if (asks) ask(ws, k_, ahead);
    for (int n = 0; n < subs_; n += kBlockCols) {
      const int count = subs_ - n < kBlockCols ? subs_ - n : kBlockCols;
      each_row_block(tile.vectors, [&](int m, auto rows) {
        constexpr int kRows = decltype(rows)::value;
        const char* q = job.q + m * q_stride;
        float* scores = ws.scores + m * kPartition + scores_from() + n * kSubBlock;
        if (asks && m == 0)
          score_rows<Kernel, kRows, true>(q, q_stride, {k_ + n, ahead + n}, count, words, scores);
        else
          score_rows<Kernel, kRows, false>(q, q_stride, {k_ + n, nullptr}, count, words, scores);
      });
    }
    softmax_vectors(a, tile, ws, job.result);
    if (asks) ask(ws, v_, ahead);
    sum_values<Kernel>(s, tile, ws, asks ? ahead : nullptr, job.result);
  }

  // The partition's codes to the worker's panels.
  void expand(const KvShape& s, const Workspace& ws) {
    if constexpr (kExpands) {
      for (int i = 0; i < subs_; ++i) {
        char* const k = ws.k_panel + int64_t{2} * i * kSubBlock * s.k_pad;
        char* const v = ws.v_panel + int64_t{2} * i * kSubBlock * s.v_dim;
        Cache::expand_k(k_[i], s.k_dim, k);
        Cache::expand_v(v_[i], s.v_dim, s.v_dim, v);
        k_[i] = k;
        v_[i] = v;
      }
    }
  }

  // For each sub-block that is read one to ask for.
  void ask(const Workspace& ws, const char* const* read, const char** ahead) const {
    for (int i = 0; i < subs_; ++i) ahead[i] = ws.ahead->next(read[i]);
  }

  // A sub-block of V whose slots past the first `valid` hold anything, also NaN, which a weight of 0 would not silence.
  static const char* silenced(const KvShape& s, const char* v, int valid, char* copy) {
    memcpy(copy, v, static_cast<size_t>(s.v_sub_bytes));
    if constexpr (Cache::kPerWord == 2) {
      auto* tail = reinterpret_cast<uint16_t*>(copy);
      for (int t = valid; t < kSubBlock; ++t)
        for (int d = 0; d < s.v_dim; ++d) tail[(t / 2) * 2 * s.v_dim + 2 * d + (t & 1)] = 0;
    } else {
      memset(copy + int64_t{4} * valid * s.v_dim, 0, static_cast<size_t>(4 * (kSubBlock - valid) * s.v_dim));
    }
    return copy;
  }

  // Where the first score of a vector is. In steps, scores lie at their places in the partition, since a row's steps are
  // the same whatever it is computed with.
  int32_t scores_from() const { return kInSteps ? from_ - start_ : 0; }

  void softmax_vectors(const AttentionArgs& a, const QueryRows& tile, const Workspace& ws, const State& result) const {
#if defined(__AVX512BF16__)
    if constexpr (kInSteps) {
      const int first = scores_from() / kStepTokens, end = scores_from() + subs_ * kSubBlock;
      return tile_softmax<Cache>(a, tile, start_, ws.scores, scales_, first, (end + kStepTokens - 1) / kStepTokens,
                                 result);
    }
#endif
    const int group = a.num_heads / a.layer->shape.num_kv_heads;
    const auto row = [&](int m) {
      const int32_t position = tile.first_position + m / group;
      const int32_t low = a.window > 0 && position - a.window + 1 > 0 ? position - a.window + 1 : 0;
      return SoftmaxRow(ws.scores + m * kPartition, ws.weights + m * kPartition, subs_, from_, low, position + 1);
    };
    // maxima of all rows first: weights of a row need not wait for its own
    for (int m = 0; m < tile.vectors; ++m) result.max[m] = softmax_max<Cache>(a, row(m), scales_);
    const float factor = has_plain_scores<Cache>(a) ? a.scale : 1.0f;
    for (int m = 0; m < tile.vectors; ++m) {
      result.sum[m] = softmax_weights<Cache>(row(m), scales_, result.max[m], factor);
      result.max[m] *= factor;
    }
  }

  // ahead: what to ask for, or null.
  template <class Kernel>
  void sum_values(const KvShape& s, const QueryRows& tile, const Workspace& ws, const char* const* ahead,
                  const State& result) const {
    const char* weights = reinterpret_cast<const char*>(ws.scores);
    if (kInSteps)
      weights += 2 * scores_from();  // pairs of bf16 in the place of scores
    else if (Cache::kPerWord == 2)
      weights = reinterpret_cast<const char*>(ws.weights);
    const int v_pad = padded_v(s);
    each_row_block(tile.vectors, [&](int m, auto rows) {
      constexpr int kRows = decltype(rows)::value;
      const char* w = weights + m * kWeightStride;
      float* out = result.out + int64_t{m} * v_pad;
      if (ahead && m == 0)
        sum_rows<Kernel, kRows, true>(s, w, ahead, out, v_pad);
      else
        sum_rows<Kernel, kRows, false>(s, w, nullptr, out, v_pad);
    });
  }

  template <class Kernel, int kRows, bool kAsks>
  void sum_rows(const KvShape& s, const char* weights, const char* const* ahead, float* out, int v_pad) const {
    constexpr int64_t kDimBytes = Kernel::kValueBytes / kLanes;  // of a row
    const char *v[kSubsPerPartition], *next[kSubsPerPartition];
    for (int d = 0; d < s.v_dim;) {
      for (int i = 0; i < subs_; ++i) {
        v[i] = v_[i] + kDimBytes * d;
        if constexpr (kAsks) next[i] = ahead[i] + kDimBytes * d;
      }
      const ValueArgs args{weights, kWeightStride, {v, next}, subs_, kDimBytes * s.v_dim, out + d, v_pad, s.v_dim - d};
      if (d + kBlockCols * kLanes <= s.v_dim) {
        value_block<Kernel, kRows, kBlockCols, false, kAsks>(args);
        d += kBlockCols * kLanes;
      } else if (d + kLanes <= s.v_dim) {
        value_block<Kernel, kRows, 1, false, kAsks>(args);
        d += kLanes;
      } else {
        value_block<Kernel, kRows, 1, true, kAsks>(args);
        d = s.v_dim;
      }
    }
  }

#if defined(__AVX512BF16__)
  static constexpr bool kInSteps = Cache::kPerWord == 2 && kScoreStride == kPartition;
  static constexpr bool kExpands = kInSteps && Cache::kHasScales;
#else
  static constexpr bool kInSteps = false, kExpands = false;
#endif
  static constexpr int64_t kWeightStride = int64_t{4} / (kInSteps ? 1 : Cache::kPerWord) * kPartition;

  int32_t start_, from_;
  int subs_;
  const char* k_[kSubsPerPartition];
  const char* v_[kSubsPerPartition];
  Scales scales_;
};

}  // namespace ov
