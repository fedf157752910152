// What one task of attention works on, and a worker's memory for it.
//
// Knows nothing of: how scores and sums of V are computed.
#pragma once

#include <cmath>
#include <cstring>

#include "attention.h"
#include "attention_block.h"
#include "tiles.h"

namespace ov {

#if defined(OV_HAS_TILES)
constexpr int kTileVectors = 32;  // query vectors (rows x heads of one KV head) that share the products' operands
constexpr int kTilesPerTask = 8;  // tiles that share a partition's operands, once these are ready
constexpr int kTileStages = 3;    // tiles that have scores at a time
constexpr int kPanelValues = kPartition;           // tokens of K and of V that are kept as operands, in bf16
constexpr int kScoreStride = kPartition + kLanes;  // of a vector's scores: no two rows start in the same set of a cache
#else
constexpr int kTilesPerTask = 1;
constexpr int kTileStages = 1;
#if defined(__AVX512BF16__)
constexpr int kTileVectors = 48;          // codes of a cache are expanded once for so many
constexpr int kPanelValues = kPartition;  // tokens of a one-byte cache, as bf16
#else
constexpr int kTileVectors = 24;
constexpr int kPanelValues = 0;
#endif
constexpr int kScoreStride = kPartition;
#endif

// So few query vectors read each line of the cache once: what is read next is asked for (attention_ahead.h).
constexpr int kFewVectors = 8;

class KvAhead;

// Consecutive query rows of one request that share one KV head.
struct QueryRows {
  int32_t request = 0, kv_head = 0;
  int32_t first_token = 0;  // index in the step
  int32_t first_position = 0;
  int32_t rows = 0, vectors = 0;  // vectors = rows * heads per KV head
  int32_t low = 0, high = 0;      // tokens [low, high) are visible to some row

  QueryRows part(const AttentionArgs& a, int32_t first_row, int32_t max_rows) const {
    QueryRows t = *this;
    t.first_token += first_row;
    t.first_position += first_row;
    t.rows = rows - first_row < max_rows ? rows - first_row : max_rows;
    t.see(a);
    return t;
  }
  void see(const AttentionArgs& a) {
    vectors = rows * (a.num_heads / a.layer->shape.num_kv_heads);
    low = a.window > 0 && first_position - a.window + 1 > 0 ? first_position - a.window + 1 : 0;
    high = first_position + rows;
  }
};

// Softmax state of `capacity` query vectors: maximum, sum, weighted V.
struct State {
  float* max = nullptr;
  float* sum = nullptr;
  float* out = nullptr;  // [capacity][v_pad]

  State() = default;
  State(float* memory, int capacity) : max(memory), sum(memory + capacity), out(memory + 2 * capacity) {}
};

// Query rows that share the products' operands, and where their result of a partition goes.
struct TileJob {
  QueryRows rows;
  const char* q = nullptr;
  State result;
};

// Accumulators of V are whole vectors.
inline int padded_v(const KvShape& s) { return (s.v_dim + kLanes - 1) / kLanes * kLanes; }

inline int64_t state_floats(int capacity, int v_pad) { return int64_t{capacity} * (v_pad + 2); }

inline int tile_rows_of(int heads_per_kv) { return heads_per_kv >= kTileVectors ? 1 : kTileVectors / heads_per_kv; }

inline int vector_capacity(int heads_per_kv) {
  return (tile_rows_of(heads_per_kv) * heads_per_kv + kLanes - 1) / kLanes * kLanes;
}

// One worker's memory.
struct Workspace {
  static constexpr int64_t kAheadRoom = 256;
  char* q;            // [tiles][capacity][k_pad] in the type of the products
  float* scores;      // [kTileStages][capacity][kScoreStride]
  uint16_t* weights;  // [capacity][kPartition] bf16, where weights do not take the place of scores
  char* v_tail;       // a sub-block of V with the slots past the end zeroed
  char* k_panel;      // [kPanelValues][k_pad] bf16
  char* v_panel;      // [kPanelValues][v_dim] bf16
  float* partials;    // [kTileStages]
  float* totals;      // [tiles]
  KvAhead* ahead;     // room for one
  int64_t q_bytes, score_floats, total_floats;  // of a tile

  static int64_t bytes(int capacity, int k_pad, int v_pad) {
    return 4 * (int64_t{kTilesPerTask} * capacity * k_pad + int64_t{kTileStages} * capacity * kScoreStride +
                int64_t{capacity} * kPartition / 2 + int64_t{kSubBlock} * v_pad +
                int64_t{kPanelValues} / 2 * (k_pad + v_pad) +
                (kTileStages + kTilesPerTask) * state_floats(capacity, v_pad)) +
           kAheadRoom + 64 * 9;
  }
  Workspace(char* memory, int capacity, int k_pad, int v_pad)
      : q_bytes(int64_t{4} * capacity * k_pad),
        score_floats(int64_t{capacity} * kScoreStride),
        total_floats(state_floats(capacity, v_pad)) {
    const auto take = [&](int64_t size) {
      char* p = memory;
      memory += (size + 63) / 64 * 64;
      return p;
    };
    q = take(kTilesPerTask * q_bytes);
    scores = reinterpret_cast<float*>(take(int64_t{4} * kTileStages * score_floats));
    weights = reinterpret_cast<uint16_t*>(take(int64_t{2} * capacity * kPartition));
    v_tail = take(int64_t{4} * kSubBlock * v_pad);
    k_panel = take(int64_t{2} * kPanelValues * k_pad);
    v_panel = take(int64_t{2} * kPanelValues * v_pad);
    partials = reinterpret_cast<float*>(take(4 * kTileStages * total_floats));
    totals = reinterpret_cast<float*>(take(4 * kTilesPerTask * total_floats));
    ahead = reinterpret_cast<KvAhead*>(take(kAheadRoom));
  }
};

// Queries as the products want them: pairs of bf16, or f32.
template <bool kRounds>
void load_queries(const AttentionArgs& a, const QueryRows& tile, char* q) {
  const KvShape& s = a.layer->shape;
  const int group = a.num_heads / s.num_kv_heads;
  for (int row = 0; row < tile.rows; ++row) {
    const float* x = a.q.f32(tile.first_token + row) + int64_t{tile.kv_head} * group * s.k_dim;
    for (int g = 0; g < group; ++g, x += s.k_dim) {
      if constexpr (kRounds) {
        auto* y = reinterpret_cast<uint16_t*>(q);
        int d = 0;
#if defined(OV_HAS_TILES)
        for (; d + 2 * kLanes <= s.k_dim; d += 2 * kLanes)
          _mm512_storeu_si512(y + d, (__m512i)_mm512_cvtne2ps_pbh(load(x + d + kLanes).v, load(x + d).v));
#endif
        for (; d + kLanes <= s.k_dim; d += kLanes) store_bf16(y + d, load(x + d));
        if (d < s.k_dim) store_bf16(y + d, load_part(x + d, s.k_dim - d), s.k_pad - d);
        q += 2 * s.k_pad;
      } else {
        memcpy(q, x, sizeof(float) * static_cast<size_t>(s.k_dim));
        q += 4 * s.k_pad;
      }
    }
  }
}

// Sub-blocks are too short for the processor to notice that it reads a stream.
OV_ALWAYS_INLINE void prefetch(const char* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

}  // namespace ov
