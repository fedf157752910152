#include "attention.h"

#include <cmath>
#include <cstring>

#include "attention_block.h"
#include "attention_softmax.h"
#include "attention_tiles.h"
#include "vmath.h"

namespace ov {
namespace {

constexpr int64_t kInlineWork = 200000;  // multiply-adds that one thread does by itself
#if defined(OV_HAS_TILES)
constexpr int kTileVectors = kTileVectorsHeld;
constexpr int64_t kPanelFloats = kPanelSubs * kSubBlock / 2;  // per dim
#else
constexpr int64_t kPanelFloats = 0;
constexpr int kTileVectors = 24;  // query vectors (rows x heads of one KV head) that share a tile's K and V
#endif

// Query rows of one request that share one KV head.
struct Tile {
  int32_t request, kv_head;
  int32_t first_token;  // index in the step
  int32_t first_position;
  int32_t rows, vectors;  // vectors = rows * heads per KV head
  int32_t low, high;      // tokens [low, high) are visible to some row
};

// Softmax state of `capacity` query vectors: maximum, sum, weighted V.
struct State {
  float* max;
  float* sum;
  float* out;  // [capacity][v_pad]

  State(float* memory, int capacity) : max(memory), sum(memory + capacity), out(memory + 2 * capacity) {}
};

// Accumulators of V are whole vectors.
int padded_v(const KvShape& s) { return (s.v_dim + kLanes - 1) / kLanes * kLanes; }

int64_t state_floats(int capacity, int v_pad) { return int64_t{capacity} * (v_pad + 2); }

int vector_capacity(int heads_per_kv) {
  const int rows = heads_per_kv >= kTileVectors ? 1 : kTileVectors / heads_per_kv;
  return (rows * heads_per_kv + kLanes - 1) / kLanes * kLanes;
}

// One worker's memory.
struct Workspace {
  char* q;            // [capacity][k_pad] in the cache's type
  float* scores;      // [capacity][kPartition]
  uint16_t* weights;  // [capacity][kPartition] bf16; an f32 cache keeps them in scores
  char* v_tail;       // a sub-block of V with the slots past the end zeroed
  char* k_panel;      // kPanelSubs sub-blocks of K in bf16
  float* partial;
  float* total;

  static int64_t bytes(int capacity, int k_pad, int v_pad) {
    return 4 * (int64_t{capacity} * k_pad + int64_t{capacity} * kPartition + int64_t{capacity} * kPartition / 2 +
                int64_t{kSubBlock} * v_pad + kPanelFloats * k_pad + 2 * state_floats(capacity, v_pad));
  }
  Workspace(char* memory, int capacity, int k_pad, int v_pad) {
    q = memory;
    scores = reinterpret_cast<float*>(q + int64_t{4} * capacity * k_pad);
    weights = reinterpret_cast<uint16_t*>(scores + int64_t{capacity} * kPartition);
    v_tail = reinterpret_cast<char*>(weights + int64_t{capacity} * kPartition);
    k_panel = v_tail + int64_t{4} * kSubBlock * v_pad;
    partial = reinterpret_cast<float*>(k_panel + 4 * kPanelFloats * k_pad);
    total = partial + state_floats(capacity, v_pad);
  }
};

template <class Cache>
void load_queries(const AttentionArgs& a, const Tile& tile, char* q) {
  const KvShape& s = a.layer->shape;
  const int group = a.num_heads / s.num_kv_heads;
  for (int row = 0; row < tile.rows; ++row) {
    const float* x = a.q.f32(tile.first_token + row) + int64_t{tile.kv_head} * group * s.k_dim;
    for (int g = 0; g < group; ++g, x += s.k_dim) {
      if constexpr (Cache::kPerWord == 2) {
        auto* y = reinterpret_cast<uint16_t*>(q);
        int d = 0;
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

// Sub-blocks of one-byte codes are too short for the processor to notice that it reads a stream.
inline void prefetch(const char* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

// Weights of all vectors of a tile in a partition whose first score is that of token `from`.
template <class Cache>
void softmax_vectors(const AttentionArgs& a, const Tile& tile, const Workspace& ws, int subs, int32_t from,
                     const Scales& scales, const State& result) {
  const int group = a.num_heads / a.layer->shape.num_kv_heads;
  const auto row = [&](int m) {
    const int32_t position = tile.first_position + m / group;
    const int32_t low = a.window > 0 && position - a.window + 1 > 0 ? position - a.window + 1 : 0;
    return SoftmaxRow(ws.scores + m * kPartition, ws.weights + m * kPartition, subs, from, low, position + 1);
  };
  // maxima of all rows first: weights of a row need not wait for its own
  for (int m = 0; m < tile.vectors; ++m) result.max[m] = softmax_max<Cache>(a, row(m), scales);
  const float factor = has_plain_scores<Cache>(a) ? a.scale : 1.0f;
  for (int m = 0; m < tile.vectors; ++m) {
    result.sum[m] = softmax_weights<Cache>(row(m), scales, result.max[m], factor);
    result.max[m] *= factor;
  }
}

// Result of one partition for all vectors of a tile.
template <class Cache>
void run_partition(const AttentionArgs& a, const ov_step& step, const Tile& tile, int partition, const Workspace& ws,
                   const State& result) {
  const KvShape& s = a.layer->shape;
  const int32_t start = partition * kPartition;
  const int32_t from = tile.low > start ? tile.low / kSubBlock * kSubBlock : start;
  const int32_t to = tile.high < start + kPartition ? tile.high : start + kPartition;
  const int subs = (to - from + kSubBlock - 1) / kSubBlock;
  const int32_t seq_len = step.seq_lens[tile.request];
  const int32_t* table = step.block_tables[a.layer->group] + tile.request * step.block_table_stride;

  const char* k[kSubsPerPartition];
  const char* v[kSubsPerPartition];
  Scales scales;
  for (int i = 0; i < subs; ++i) {
    const int32_t token = from + i * kSubBlock;
    char* share = a.layer->share(table[token / s.block_size]);
    const int sub = token % s.block_size / kSubBlock;
    k[i] = s.k_sub(share, tile.kv_head, sub);
    v[i] = s.v_sub(share, tile.kv_head, sub);
    if constexpr (Cache::kHasScales) {  // and finite codes, whatever slot they are in
      scales.k[i] = s.k_scales(share, tile.kv_head, sub);
      scales.v[i] = s.v_scales(share, tile.kv_head, sub);
    } else if (token + kSubBlock > seq_len) {
      // slots past the end hold anything, also NaN, which a weight of 0 would not silence
      memcpy(ws.v_tail, v[i], static_cast<size_t>(s.v_sub_bytes));
      const int valid = seq_len - token;
      if constexpr (Cache::kPerWord == 2) {
        auto* tail = reinterpret_cast<uint16_t*>(ws.v_tail);
        for (int t = valid; t < kSubBlock; ++t)
          for (int d = 0; d < s.v_dim; ++d) tail[(t / 2) * 2 * s.v_dim + 2 * d + (t & 1)] = 0;
      } else {
        memset(ws.v_tail + int64_t{4} * valid * s.v_dim, 0, static_cast<size_t>(4 * (kSubBlock - valid) * s.v_dim));
      }
      v[i] = ws.v_tail;
    }
  }

  const int64_t q_stride = int64_t{4} / Cache::kPerWord * s.k_pad;
  const int words = s.k_pad / Cache::kPerWord;
  for (int n = 0; n < subs; n += kBlockCols) {
    const int count = subs - n < kBlockCols ? subs - n : kBlockCols;
    if constexpr (Cache::kHasScales) {
      for (int i = n; i < n + count; ++i) {
        if (i + kBlockCols < subs) prefetch(k[i + kBlockCols], s.k_sub_bytes);
        prefetch(v[i], s.v_sub_bytes);
      }
    }
    each_row_block(tile.vectors, [&](int m, auto rows) {
      constexpr int kRows = decltype(rows)::value;
      float* scores = ws.scores + m * kPartition + n * kSubBlock;
      score_rows<Cache, kRows>(ws.q + m * q_stride, q_stride, k + n, count, words, scores);
    });
  }

  softmax_vectors<Cache>(a, tile, ws, subs, from, scales, result);

  const char* weights =
      Cache::kPerWord == 2 ? reinterpret_cast<const char*>(ws.weights) : reinterpret_cast<const char*>(ws.scores);
  constexpr int64_t kWeightStride = int64_t{4} / Cache::kPerWord * kPartition;
  constexpr int64_t kWordBytes = Cache::kRowBytes / kLanes;
  const int64_t v_stride = kWordBytes * s.v_dim;
  const int v_pad = padded_v(s);
  each_row_block(tile.vectors, [&](int m, auto rows) {
    constexpr int kRows = decltype(rows)::value;
    const char* w = weights + m * kWeightStride;
    float* out = result.out + int64_t{m} * v_pad;
    const char* shifted[kSubsPerPartition];
    for (int d = 0; d < s.v_dim;) {
      for (int i = 0; i < subs; ++i) shifted[i] = v[i] + kWordBytes * d;
      const ValueArgs args{w, kWeightStride, shifted, subs, v_stride, out + d, v_pad, s.v_dim - d};
      if (d + kBlockCols * kLanes <= s.v_dim) {
        value_block<Cache, kRows, kBlockCols, false>(args);
        d += kBlockCols * kLanes;
      } else if (d + kLanes <= s.v_dim) {
        value_block<Cache, kRows, 1, false>(args);
        d += kLanes;
      } else {
        value_block<Cache, kRows, 1, true>(args);
        d = s.v_dim;
      }
    }
  });
}

#if defined(OV_HAS_TILES)

// The same in tile registers. Steps over V are of 32 tokens at absolute positions.
template <class Cache>
void run_partition_in_tiles(const AttentionArgs& a, const ov_step& step, const Tile& tile, int partition,
                            const Workspace& ws, const State& result) {
  const KvShape& s = a.layer->shape;
  const int32_t start = partition * kPartition;
  const int32_t from = tile.low > start ? tile.low / kTileTokens * kTileTokens : start;
  const int32_t to = tile.high < start + kPartition ? tile.high : start + kPartition;
  const int32_t* table = step.block_tables[a.layer->group] + tile.request * step.block_table_stride;

  const char* k[kSubsPerPartition];
  Scales scales;
  TileValues v;
  v.v_dim = s.v_dim;
  v.steps = (to - from + kTileTokens - 1) / kTileTokens;
  const int subs = 2 * v.steps;
  int first = subs, last = 0;  // sub-blocks that are read: some row sees a token of theirs
  for (int i = 0; i < subs; ++i) {
    const int32_t token = from + i * kSubBlock;
    k[i] = nullptr;
    const char*& value = i % 2 == 0 ? v.low[i / 2] : v.high[i / 2];
    value = nullptr;
    if (i % 2 == 0) v.valid[i / 2] = step.seq_lens[tile.request] - token;
    if (token + kSubBlock <= tile.low || token >= to) continue;
    char* share = a.layer->share(table[token / s.block_size]);
    const int sub = token % s.block_size / kSubBlock;
    k[i] = s.k_sub(share, tile.kv_head, sub);
    value = s.v_sub(share, tile.kv_head, sub);
    if constexpr (Cache::kHasScales) {
      scales.k[i] = s.k_scales(share, tile.kv_head, sub);
      scales.v[i] = s.v_scales(share, tile.kv_head, sub);
    }
    first = first < i ? first : i;
    last = i + 1;
  }

  const int64_t q_stride = int64_t{2} * s.k_pad;
  const int v_pad = padded_v(s);
  auto* panel = reinterpret_cast<char*>(ws.scores);  // which the weights have replaced by then
  static_assert(kPanelBytes <= int64_t{4} * kLanes * kPartition, "V's panel fits in the scores of 16 vectors");
  TileShapes registers(attention_shapes(tile.vectors < kTileVectorsHeld ? tile.vectors : kTileVectorsHeld));
  const auto each_part = [&](auto&& f) {
    for (int m = 0; m < tile.vectors; m += kTileVectorsHeld) {
      const int count = tile.vectors - m < kTileVectorsHeld ? tile.vectors - m : kTileVectorsHeld;
      if (tile.vectors > kTileVectorsHeld) registers.load(attention_shapes(count));
      const int half = count > 16 ? (count + 1) / 2 : count;
      count > 16 ? f(m, half, std::integral_constant<int, 2>{}) : f(m, half, std::integral_constant<int, 1>{});
    }
  };
  constexpr int kAtOnce = Cache::kHasScales ? kPanelSubs : kSubsPerPartition;
  for (int n = first; n < last; n += kAtOnce) {
    const int count = last - n < kAtOnce ? last - n : kAtOnce;
    const char* expanded[kPanelSubs];
    const char* const* operands = k + n;
    if constexpr (Cache::kHasScales) {
      for (int i = n; i < n + count; ++i) {
        const int32_t ahead = from + (i + kSubsPerPartition) * kSubBlock;  // K of the next partition
        if (ahead < tile.high) {
          char* share = a.layer->share(table[ahead / s.block_size]);
          prefetch(s.k_sub(share, tile.kv_head, ahead % s.block_size / kSubBlock), s.k_sub_bytes);
        }
        prefetch(i % 2 == 0 ? v.low[i / 2] : v.high[i / 2], s.v_sub_bytes);
      }
      expand_k<Cache>(k + n, count, s.k_dim, ws.k_panel, expanded);
      operands = expanded;
    }
    each_part([&](int m, int half, auto rows) {
      score_tiles<decltype(rows)::value>(ws.q + m * q_stride, q_stride, half, operands, count, s.k_dim,
                                         ws.scores + m * kPartition + n * kSubBlock);
    });
  }
  softmax_vectors<Cache>(a, tile, ws, subs, from, scales, result);
  each_part([&](int m, int half, auto rows) {
    value_tiles<Cache, decltype(rows)::value>(reinterpret_cast<const char*>(ws.weights + m * kPartition), half, v,
                                              panel, result.out + int64_t{m} * v_pad, v_pad);
  });
}

#endif

void clear(const State& total, int capacity, int v_pad) {
  for (int m = 0; m < capacity; ++m) {
    total.max[m] = -INFINITY;
    total.sum[m] = 0.0f;
  }
  memset(total.out, 0, sizeof(float) * static_cast<size_t>(capacity) * static_cast<size_t>(v_pad));
}

// total = total merged with the next partition.
void fold(const State& total, const State& next, int vectors, int v_pad) {
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

// Sinks and division by the sum, into the output rows.
void finish(const AttentionArgs& a, const Tile& tile, const State& total) {
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
    const float* o = total.out + int64_t{m} * padded_v(s);
    float* y = a.out.f32(tile.first_token + m / group) + int64_t{head} * s.v_dim;
    for (int d = 0; d < s.v_dim; d += kLanes) {
      const int n = s.v_dim - d < kLanes ? s.v_dim - d : kLanes;
      Lanes x = load(o + d);
      if (a.sinks) x = x * factor;
      store_part(y + d, x / sum, n);
    }
  }
}

char* map_zeroed(int64_t bytes) { return static_cast<char*>(ov_memory_map(bytes)); }

}  // namespace

AttentionScratch::~AttentionScratch() {
  if (workers_) ov_memory_unmap(workers_, workers_bytes_);
  if (slots_) ov_memory_unmap(slots_, slots_bytes_);
  if (folds_) ov_memory_unmap(folds_, folds_bytes_);
  if (tile_request_) ov_memory_unmap(tile_request_, tiles_bytes_);
}

bool AttentionScratch::allocate(int workers, int max_heads_per_kv, int k_dim, int v_dim, int64_t max_tokens) {
  const int v_pad = (v_dim + kLanes - 1) / kLanes * kLanes;
  int capacity = 0;
  for (int heads = 1; heads <= max_heads_per_kv; ++heads) {
    const int c = vector_capacity(heads);
    capacity = c > capacity ? c : capacity;
  }
  num_workers_ = workers;
  worker_bytes_ = (Workspace::bytes(capacity, k_dim, v_pad) + 4095) / 4096 * 4096;
  slot_floats_ = state_floats(capacity, v_pad);
  num_folds_ = 4 * workers;
  num_slots_ = 32 * workers;
  workers_bytes_ = worker_bytes_ * workers;
  slots_bytes_ = num_slots_ * slot_floats_ * 4;
  folds_bytes_ = num_folds_ * slot_floats_ * 4;
  tiles_bytes_ = 2 * max_tokens * 4;
  workers_ = map_zeroed(workers_bytes_);
  slots_ = reinterpret_cast<float*>(map_zeroed(slots_bytes_));
  folds_ = reinterpret_cast<float*>(map_zeroed(folds_bytes_));
  tile_request_ = reinterpret_cast<int32_t*>(map_zeroed(tiles_bytes_));
  tile_row_ = tile_request_ + max_tokens;
  return workers_ && slots_ && folds_ && tile_request_;
}

void attention(ov_pool* pool, const AttentionArgs& a, const ov_step& step, AttentionScratch& scratch) {
  const KvShape& s = a.layer->shape;
  const int group = a.num_heads / s.num_kv_heads;
  const int tile_rows = group >= kTileVectors ? 1 : kTileVectors / group;
  const int capacity = vector_capacity(group);

  int32_t num_tiles = 0;
  int64_t visible = 0;  // query rows x tokens
  for (int32_t r = 0; r < step.num_requests; ++r) {
    const int32_t query_len = step.query_start[r + 1] - step.query_start[r];
    const int32_t tokens = a.window > 0 && a.window < step.seq_lens[r] ? a.window : step.seq_lens[r];
    visible += int64_t{query_len} * tokens;
    for (int32_t row = 0; row < query_len; row += tile_rows) {
      scratch.tile_request_[num_tiles] = r;
      scratch.tile_row_[num_tiles++] = row;
    }
  }
  // a short decode step is over before another thread has woken up
  if (visible * a.num_heads * (s.k_dim + s.v_dim) < kInlineWork) pool = nullptr;
  // Request by request, whose heads lie next to each other; then head by head, so that neighbouring tiles of a long
  // prefill find K and V in the cache.
  const int64_t num_tasks = int64_t{num_tiles} * s.num_kv_heads;
  const auto task_tile = [&](int64_t task) {
    Tile t;
    const int64_t any = task / s.num_kv_heads;  // a tile of the request, not always this one
    t.request = scratch.tile_request_[any];
    const int32_t query_len = step.query_start[t.request + 1] - step.query_start[t.request];
    const int64_t first = any - scratch.tile_row_[any] / tile_rows, tiles = (query_len + tile_rows - 1) / tile_rows;
    const int64_t local = task - first * s.num_kv_heads;
    t.kv_head = static_cast<int32_t>(local / tiles);
    const int32_t row = static_cast<int32_t>(local % tiles) * tile_rows;
    t.first_token = step.query_start[t.request] + row;
    t.first_position = step.seq_lens[t.request] - query_len + row;
    t.rows = query_len - row < tile_rows ? query_len - row : tile_rows;
    t.vectors = t.rows * group;
    t.low = a.window > 0 && t.first_position - a.window + 1 > 0 ? t.first_position - a.window + 1 : 0;
    t.high = t.first_position + t.rows;
    return t;
  };
  const auto workspace = [&](int worker) { return Workspace(scratch.worker(worker), capacity, s.k_pad, padded_v(s)); };
  const auto load_tile = [&](const Tile& tile, const Workspace& ws) {
    bool rounds = s.dtype == OV_BF16;
#if defined(OV_HAS_TILES)
    rounds = rounds || fits_tiles(s);
#endif
    rounds ? load_queries<Bf16Cache>(a, tile, ws.q) : load_queries<F32Cache>(a, tile, ws.q);
  };
  const auto compute = [&](const Tile& tile, int partition, const Workspace& ws, const State& result) {
#if defined(OV_HAS_TILES)
    if (fits_tiles(s)) {
      const auto run = s.dtype == OV_BF16 ? run_partition_in_tiles<Bf16Cache>
                       : s.dtype == OV_I8 ? run_partition_in_tiles<Expanded<Int8Cache>>
                                          : run_partition_in_tiles<Expanded<Fp8Cache>>;
      return run(a, step, tile, partition, ws, result);
    }
#endif
    switch (s.dtype) {
      case OV_BF16: return run_partition<Bf16Cache>(a, step, tile, partition, ws, result);
      case OV_I8: return run_partition<Int8Cache>(a, step, tile, partition, ws, result);
      case OV_F8_E4M3: return run_partition<Fp8Cache>(a, step, tile, partition, ws, result);
      default: return run_partition<F32Cache>(a, step, tile, partition, ws, result);
    }
  };

  // Few tiles: their partitions are spread over the workers; the merge is the same sequence of operations.
  const int threads = pool_size(pool);
  if (threads > 1 && num_tasks < scratch.num_folds_) {
    struct Item {
      int32_t task, partition;
    };
    constexpr int kMaxItems = 1024;
    Item items[kMaxItems];
    const int limit = scratch.num_slots_ < kMaxItems ? scratch.num_slots_ : kMaxItems;
    for (int32_t task = 0; task < num_tasks; ++task)
      clear(State(scratch.folds_ + task * scratch.slot_floats_, capacity), capacity, padded_v(s));
    int32_t task = 0, partition = -1;
    while (task < num_tasks) {
      int num_items = 0;
      while (task < num_tasks && num_items < limit) {
        const Tile tile = task_tile(task);
        if (partition < 0) partition = tile.low / kPartition;
        items[num_items++] = {task, partition};
        if (++partition * kPartition >= tile.high) {
          ++task;
          partition = -1;
        }
      }
      parallel_for(pool, num_items, [&](int64_t i, int worker) {
        const Workspace ws = workspace(worker);
        const Tile tile = task_tile(items[i].task);
        load_tile(tile, ws);
        compute(tile, items[i].partition, ws, State(scratch.slots_ + i * scratch.slot_floats_, capacity));
      });
      for (int i = 0; i < num_items; ++i)
        fold(State(scratch.folds_ + items[i].task * scratch.slot_floats_, capacity),
             State(scratch.slots_ + i * scratch.slot_floats_, capacity), task_tile(items[i].task).vectors, padded_v(s));
    }
    for (int32_t t = 0; t < num_tasks; ++t)
      finish(a, task_tile(t), State(scratch.folds_ + t * scratch.slot_floats_, capacity));
    return;
  }

  parallel_for(pool, num_tasks, [&](int64_t task, int worker) {
    const Workspace ws = workspace(worker);
    const Tile tile = task_tile(task);
    const State partial(ws.partial, capacity), total(ws.total, capacity);
    load_tile(tile, ws);
    clear(total, capacity, padded_v(s));
    for (int32_t p = tile.low / kPartition; p * kPartition < tile.high; ++p) {
      compute(tile, p, ws, partial);
      fold(total, partial, tile.vectors, padded_v(s));
    }
    finish(a, tile, total);
  });
}

}  // namespace ov
