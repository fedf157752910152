// Attention over bf16 and one-byte caches in the tile registers of AMX.
//
// A bf16 sub-block of K is a B operand as it lies; of V two neighbours are one, copied together once for all tiles of a
// task. One-byte codes are expanded to bf16, exactly, into the same order.
// Knows nothing of: blocks, how softmax is computed.
#pragma once

#include "attention_block.h"
#include "attention_expanded.h"
#include "attention_merge.h"
#include "attention_softmax_slices.h"
#include "attention_sub_blocks.h"
#include "attention_task.h"
#include "attention_tile_products.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline bool fits_tiles(const KvShape& s) {
  return s.dtype != OV_F32 && s.k_dim % kTileDims == 0 && s.v_dim % kTileDims == 0;
}

// A partition's K and V as operands, for all tiles of a task. Steps over V are of 32 tokens at absolute positions.
template <class Cache>
class TilesPartition {
 public:
  // Expanded codes of K lie in the one panel of the worker: of the partition that was made last.
  TilesPartition(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, int partition, const Workspace& ws)
      : subs_(a, step, rows, partition), span_(rows, subs_.start) {
    if constexpr (Cache::kHasScales) {
      const KvShape& s = a.layer->shape;
      for (int i = span_.first; i < span_.last; ++i) {
        char* expanded = ws.k_panel + int64_t{2} * i * kSubBlock * s.k_pad;
        prefetch(subs_.v[i], s.v_sub_bytes);
        Cache::expand_k(subs_.k[i], s.k_dim, expanded);
        subs_.k[i] = expanded;
      }
    }
  }
  TilesPartition() = default;

  int32_t start() const { return subs_.start; }
  const Scales& scales() const { return subs_.scales; }
  const char* const* k() const { return subs_.k; }
  // Dims [d, d + dims) of V -> panel.
  void fill(int v_dim, int d, int dims, char* panel) const {
    for (int i = 2 * span_.first_step(); i < 2 * span_.last_step(); ++i) fill_sub(i, v_dim, d, dims, panel);
  }

 private:
  // Dims [d, d + dims) of sub-block i -> panel.
  void fill_sub(int i, int v_dim, int d, int dims, char* panel) const {
    panel += int64_t{2} * i * kSubBlock * dims;
    const int row = 4 * dims;  // bytes of a pair of tokens
    if (!subs_.v[i]) {
      memset(panel, 0, static_cast<size_t>(row) * kSubBlock / 2);
    } else if constexpr (Cache::kHasScales) {  // finite codes in every slot
      Cache::expand_v(subs_.v[i] + d, v_dim, dims, panel);
    } else {
      // moves alone: for a while after a tile instruction arithmetic has one port
      for (int pair = 0; pair < kSubBlock / 2; ++pair)
        for (int at = 0; at < row; at += 64)
          _mm512_storeu_si512(panel + row * pair + at, _mm512_loadu_si512(subs_.v[i] + 4 * (pair * v_dim + d) + at));
      auto* slots = reinterpret_cast<uint16_t*>(panel);
      const int valid = subs_.valid - i * kSubBlock;
      for (int t = valid < 0 ? 0 : valid; t < kSubBlock; ++t)  // hold anything, also NaN
        for (int x = 0; x < dims; ++x) slots[(t / 2) * 2 * dims + 2 * x + (t & 1)] = 0;
    }
  }

  SubBlocks<Cache> subs_;
  SubSpan span_;
};

// Query vectors over a partition, and where their result goes.
struct TileUnit {
  QueryRows rows;
  const char* q = nullptr;
  int partition = 0;
  State total;
  bool is_added = false;  // to what total has
};

// Units of one task go through three stages, each while its neighbours are in the others: scores, weights, sums of V. The
// weights of a unit are made in slices beside the scores of the one after it and the sums of the one before it.
template <class Cache>
class TilePipeline {
 public:
  // `rows`: of the task. A task of one tile copies V by 32 dims, which stay in the first-level cache.
  TilePipeline(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, bool is_single, const Workspace& ws)
      : a_(a),
        step_(step),
        rows_(rows),
        ws_(ws),
        is_single_(is_single),
        capacity_(vector_capacity(a.num_heads / a.layer->shape.num_kv_heads)) {}

  void push(const TileUnit& unit) {
    Stage& next = stages_[number_ % kStages];
    next.unit = unit;
    next.is_live = true;
    if (unit.partition != partition_) {
      partition_ = unit.partition;
      ++num_partitions_;
      partitions_[num_partitions_ % kStages] = TilesPartition<Cache>(a_, step_, rows_, partition_, ws_);
    }
    next.partition = num_partitions_ % kStages;
    advance(&next);
  }
  // Finishes what was pushed.
  void drain() {
    for (int i = 0; i < kStages - 1; ++i) {
      stages_[number_ % kStages].is_live = false;
      advance(nullptr);
    }
  }

 private:
  static constexpr int kStages = kTileStages;
  static constexpr int kPlacesPerSub = 8;  // between tile instructions
  struct Stage {
    TileUnit unit;
    int partition = 0;
    bool is_live = false;
  };

  void advance(Stage* next) {
    Stage& middle = stages_[(number_ + 2) % kStages];
    Stage& last = stages_[(number_ + 1) % kStages];
    if (middle.is_live && middle.unit.rows.vectors <= SoftmaxSlices<Cache>::kMaxVectors) {
      begin_weights(middle);
      auto maxima = slices_.maxima();
      const int done = next ? score(*next, 0, middle.unit.rows.vectors / kPlacesPerSub, maxima) : 0;
      auto weights = slices_.weights();
      if (next) score(*next, done, kSubsPerPartition, weights);
      if (last.is_live) sum_values(last, weights);
      slices_.finish(weights);
    } else {
      NothingBeside nothing;
      if (middle.is_live) whole_weights(middle);
      if (next) score(*next, 0, kSubsPerPartition, nothing);
      if (last.is_live) sum_values(last, nothing);
    }
    last.is_live = false;
    ++number_;
  }
  int slot(const Stage& s) const { return static_cast<int>(&s - stages_); }
  float* scores(const Stage& s) const { return ws_.scores + slot(s) * ws_.score_floats; }
  State result(const Stage& s) const {
    return s.unit.is_added ? State(ws_.partials + slot(s) * ws_.total_floats, capacity_) : s.unit.total;
  }
  const TilesPartition<Cache>& partition(const Stage& s) const { return partitions_[s.partition]; }
  SubSpan span(const Stage& s) const { return {s.unit.rows, partition(s).start()}; }

  // Scores of at most `most` sub-blocks from the one after `done` on; returns how many are done.
  template <class Beside>
  int score(const Stage& s, int done, int most, Beside& beside) {
    const KvShape& shape = a_.layer->shape;
    const int64_t q_stride = int64_t{2} * shape.k_pad;
    const SubSpan seen = span(s);
    const int first = seen.first + done, left = seen.last - first, subs = left < most ? left : most;
    if (subs <= 0) return done;
    each_part(s.unit.rows.vectors, [&](int m, int half, auto tiles) OV_INLINED {
      const ScoreTiles t{s.unit.q + m * q_stride,
                         q_stride,
                         half,
                         partition(s).k() + first,
                         subs,
                         shape.k_dim,
                         scores(s) + int64_t{m} * kScoreStride + first * kSubBlock};
      score_tiles<decltype(tiles)::value>(t, beside);
    });
    return done + subs;
  }

  void begin_weights(const Stage& s) {
    const SubSpan seen = span(s);
    slices_.begin(a_, s.unit.rows, partition(s).start(), scores(s), partition(s).scales(), seen.first_step(),
                  seen.last_step(), result(s));
  }

  void whole_weights(const Stage& s) {
    const SubSpan seen = span(s);
    tile_softmax<Cache>(a_, s.unit.rows, partition(s).start(), scores(s), partition(s).scales(), seen.first_step(),
                        seen.last_step(), result(s));
  }

  template <class Beside>
  void sum_values(const Stage& s, Beside& beside) {
    const KvShape& shape = a_.layer->shape;
    const int dims = is_single_ ? kTileDims : shape.v_dim, v_pad = padded_v(shape);
    const SubSpan seen = span(s);
    const int first = seen.first_step() * kStepTokens, steps = seen.last_step() - seen.first_step();
    const State out = result(s);
    for (int d = 0; d < shape.v_dim; d += dims) {
      if (is_single_ || in_panel_ != s.unit.partition) partition(s).fill(shape.v_dim, d, dims, ws_.v_panel);
      in_panel_ = s.unit.partition;
      each_part(s.unit.rows.vectors, [&](int m, int half, auto tiles) OV_INLINED {
        const auto* weights = reinterpret_cast<const uint16_t*>(scores(s) + int64_t{m} * kScoreStride) + first;
        const ValueTiles t{
            reinterpret_cast<const char*>(weights), half, ws_.v_panel + int64_t{2} * first * dims, steps, dims,
            out.out + int64_t{m} * v_pad + d,       v_pad};
        value_tiles<decltype(tiles)::value>(t, beside);
      });
    }
    if (s.unit.is_added) fold(s.unit.total, out, s.unit.rows.vectors, v_pad);
  }

  // f(first vector, vectors of the first tile, tiles) for what fits in the registers.
  template <class F>
  OV_ALWAYS_INLINE void each_part(int vectors, F&& f) {
    for (int m = 0; m < vectors; m += kTileVectors) {
      const int count = vectors - m < kTileVectors ? vectors - m : kTileVectors;
      if (count != shaped_) registers_.load(two_by_two(shaped_ = count));
      const int half = count > 16 ? (count + 1) / 2 : count;
      count > 16 ? f(m, half, std::integral_constant<int, 2>{}) : f(m, half, std::integral_constant<int, 1>{});
    }
  }

  const AttentionArgs& a_;
  const ov_step& step_;
  const QueryRows& rows_;
  const Workspace& ws_;
  const bool is_single_;
  const int capacity_;
  int shaped_ = kTileVectors;
  TileShapes registers_{two_by_two(kTileVectors)};
  Stage stages_[kStages];
  TilesPartition<Cache> partitions_[kStages];
  SoftmaxSlices<Cache> slices_;
  int number_ = 0, num_partitions_ = 0, partition_ = -1, in_panel_ = -1;
};

}  // namespace ov

#endif
