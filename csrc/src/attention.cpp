#include "attention.h"

#include <cmath>
#include <cstring>
#include <new>
#include <type_traits>

#include "attention_ahead.h"
#include "attention_few.h"
#include "attention_lanes.h"
#include "attention_merge.h"
#include "attention_task.h"
#include "attention_tasks.h"
#include "attention_tiles.h"
#include "runs.h"
#include "vmath.h"

namespace ov {
namespace {

constexpr int64_t kInlineWork = 200000;  // multiply-adds that one thread does by itself

bool uses_tiles(const KvShape& s) {
#if defined(OV_HAS_TILES)
  return fits_tiles(s);
#else
  return s.block_size < 0;  // never
#endif
}

// Whether rows take the kernels that read each line of the cache once.
bool reads_few(const KvShape& s, const QueryRows& rows) {
#if defined(OV_HAS_TILES)
  return fits_tiles(s) && rows.vectors <= kFewVectors && s.k_dim <= kQueryStride;
#else
  return s.block_size < 0 && rows.rows < 0;  // never
#endif
}

// Whether whoever computes rows asks for K and V ahead.
bool asks_ahead(const KvShape& s, const QueryRows& rows) {
  return uses_tiles(s) ? reads_few(s, rows) : rows.vectors <= kFewVectors;
}

// f(std::type_identity of the cache's elements).
template <class F>
void with_cache(const KvShape& s, F&& f) {
#if defined(__AVX512BF16__) && !defined(OV_HAS_TILES)
  if (expands(s)) {
    if (s.dtype == OV_I8) return f(std::type_identity<Expanded<Int8Cache>>());
    return f(std::type_identity<Expanded<Fp8Cache>>());
  }
#endif
  switch (s.dtype) {
    case OV_BF16: return f(std::type_identity<Bf16Cache>());
    case OV_I8: return f(std::type_identity<Int8Cache>());
    case OV_F8_E4M3: return f(std::type_identity<Fp8Cache>());
    default: return f(std::type_identity<F32Cache>());
  }
}

#if defined(OV_HAS_TILES)
// The same for what fits_tiles().
template <class F>
void with_tile_cache(int32_t dtype, F&& f) {
  switch (dtype) {
    case OV_BF16: return f(std::type_identity<Bf16Cache>());
    case OV_I8: return f(std::type_identity<Expanded<Int8Cache>>());
    default: return f(std::type_identity<Expanded<Fp8Cache>>());
  }
}
#endif

// The result of one partition for the vectors of a tile.
void attend_partition(const AttentionArgs& a, const ov_step& step, const TileJob& job, int partition,
                      const Workspace& ws) {
  const KvShape& s = a.layer->shape;
#if defined(OV_HAS_TILES)
  if (reads_few(s, job.rows))
    return with_tile_cache(s.dtype, [&]<class Cache>(std::type_identity<Cache>) {
      FewPartition<Cache>(a, step, job.rows, partition, ws).run(a, job, ws);
    });
  if (uses_tiles(s))
    return with_tile_cache(s.dtype, [&]<class Cache>(std::type_identity<Cache>) {
      TilePipeline<Cache> pipeline(a, step, job.rows, true, ws);
      pipeline.push({job.rows, job.q, partition, job.result, false});
      pipeline.drain();
    });
#endif
  with_cache(s, [&]<class Cache>(std::type_identity<Cache>) {
    LanesPartition<Cache>(a, step, job.rows, partition, ws).run(a, job, ws);
  });
}

bool has_bf16_queries(const KvShape& s) {
#if defined(OV_HAS_TILES)
  return s.dtype == OV_BF16 || uses_tiles(s);
#else
  return s.dtype == OV_BF16 || expands(s);
#endif
}

void load_rows(const AttentionArgs& a, const QueryRows& tile, char* q) {
  const KvShape& s = a.layer->shape;
  has_bf16_queries(s) ? load_queries<true>(a, tile, q) : load_queries<false>(a, tile, q);
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

namespace {

// f(i, memory of its worker) for each item; each worker takes its own in order and asks for K and V ahead. item(i): what
// it reads.
template <class At, class ItemAt, class F>
void parallel_reads(ov_pool* pool, const AttentionArgs& a, const ov_step& step, int64_t items, const ItemAt& item,
                    At&& workspace, F&& f) {
  const KvOrder order = {[](const void* context, int64_t i) { return (*static_cast<const ItemAt*>(context))(i); },
                         &item};
  const int threads = pool_size(pool);
  for (int t = 0; t < threads; ++t) new (workspace(t).ahead) KvAhead(a, step, order);
  parallel_takers(pool, items, [&](Taker& taker) {
    const Workspace ws = workspace(taker.worker());
    for (int64_t i; (i = taker.take()) >= 0;) {
      if (asks_ahead(a.layer->shape, item(i).rows)) {
        const int64_t run = ((i + 1) * threads - 1) / items;
        ws.ahead->begin(i, Runs::begin(items, threads, static_cast<int>(run) + 1));
      }
      f(i, ws);
    }
  });
}

// Few tasks: their partitions are spread over the workers; the merge is the same sequence of operations.
struct SplitMemory {
  float *slots, *folds;
  int64_t floats;  // of a slot and of a fold
  int32_t num_slots;
};

template <class At>
void attend_split(ov_pool* pool, const AttentionArgs& a, const ov_step& step, const Tasks& tasks, int capacity,
                  const SplitMemory& memory, At&& workspace) {
  struct Item {
    int32_t task, partition;
    bool is_first;
  };
  constexpr int kMaxItems = 1024;
  Item items[kMaxItems];
  const int v_pad = padded_v(a.layer->shape);
  const int limit = memory.num_slots < kMaxItems ? memory.num_slots : kMaxItems;
  const auto num_tasks = static_cast<int32_t>(tasks.size());
  const auto slot = [&](int64_t i) { return State(memory.slots + i * memory.floats, capacity); };
  const auto total = [&](int64_t task) { return State(memory.folds + task * memory.floats, capacity); };
  int32_t task = 0, partition = -1;
  while (task < num_tasks) {
    int num_items = 0;
    while (task < num_tasks && num_items < limit) {
      const QueryRows rows = tasks[task];
      const bool is_first = partition < 0;
      if (is_first) partition = rows.low / kPartition;
      items[num_items++] = {task, partition, is_first};
      if (++partition * kPartition >= rows.high) {
        ++task;
        partition = -1;
      }
    }
    const auto item = [&](int64_t i) {
      return KvOrder::Item{tasks[items[i].task], items[i].partition, items[i].partition + 1};
    };
    parallel_reads(pool, a, step, num_items, item, workspace, [&](int64_t i, const Workspace& ws) {
      const QueryRows rows = tasks[items[i].task];
      load_rows(a, rows, ws.q);
      const TileJob job{rows, ws.q, items[i].is_first ? total(items[i].task) : slot(i)};
      attend_partition(a, step, job, items[i].partition, ws);
    });
    for (int i = 0; i < num_items; ++i)
      if (!items[i].is_first) fold(total(items[i].task), slot(i), tasks[items[i].task].vectors, v_pad);
  }
  for (int32_t t = 0; t < num_tasks; ++t) finish(a, tasks[t], total(t));
}

#if defined(OV_HAS_TILES)
// Queries of a tile that is to be loaded next.
void ask_for_queries(const AttentionArgs& a, const QueryRows& tile) {
  const int64_t bytes = int64_t{4} * (a.num_heads / a.layer->shape.num_kv_heads) * a.layer->shape.k_dim;
  for (int row = 0; row < tile.rows; ++row)
    prefetch(reinterpret_cast<const char*>(a.q.f32(tile.first_token + row)) + tile.kv_head * bytes, bytes);
}

void attend_tiles(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, int capacity,
                  const Workspace& ws) {
  const int tile_rows = tile_rows_of(a.num_heads / a.layer->shape.num_kv_heads);
  const int tiles = (rows.rows + tile_rows - 1) / tile_rows;
  QueryRows tile[kTilesPerTask];
  for (int t = 0; t < tiles; ++t) tile[t] = rows.part(a, t * tile_rows, tile_rows);
  ask_for_queries(a, tile[0]);
  const auto total = [&](int t) { return State(ws.totals + t * ws.total_floats, capacity); };
  with_tile_cache(a.layer->shape.dtype, [&]<class Cache>(std::type_identity<Cache>) {
    TilePipeline<Cache> pipeline(a, step, rows, tiles == 1, ws);
    for (int32_t p = rows.low / kPartition; p * kPartition < rows.high; ++p)
      for (int t = 0; t < tiles; ++t) {
        if (tile[t].high <= p * kPartition || tile[t].low >= (p + 1) * kPartition) continue;
        const bool is_first = p == tile[t].low / kPartition;
        if (is_first) {
          load_rows(a, tile[t], ws.q + t * ws.q_bytes);
          if (t + 1 < tiles) ask_for_queries(a, tile[t + 1]);
        }
        pipeline.push({tile[t], ws.q + t * ws.q_bytes, p, total(t), !is_first});
      }
    pipeline.drain();
  });
  for (int t = 0; t < tiles; ++t) finish(a, tile[t], total(t));
}
#endif

// All partitions of a task.
void attend_task(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, int capacity,
                 const Workspace& ws) {
#if defined(OV_HAS_TILES)
  if (uses_tiles(a.layer->shape) && !reads_few(a.layer->shape, rows)) return attend_tiles(a, step, rows, capacity, ws);
#endif
  const State total(ws.totals, capacity), partial(ws.partials, capacity);
  load_rows(a, rows, ws.q);
  const int32_t first = rows.low / kPartition;
  for (int32_t p = first; p * kPartition < rows.high; ++p) {
    attend_partition(a, step, {rows, ws.q, p == first ? total : partial}, p, ws);
    if (p != first) fold(total, partial, rows.vectors, padded_v(a.layer->shape));
  }
  finish(a, rows, total);
}

}  // namespace

void attention(ov_pool* pool, const AttentionArgs& a, const ov_step& step, AttentionScratch& scratch) {
  const KvShape& s = a.layer->shape;
  const int group = a.num_heads / s.num_kv_heads;
  const int tile_rows = tile_rows_of(group), capacity = vector_capacity(group), v_pad = padded_v(s);
  int64_t num_tiles = 0, visible = 0;  // query rows x tokens
  for (int32_t r = 0; r < step.num_requests; ++r) {
    const int32_t query_len = step.query_start[r + 1] - step.query_start[r];
    const int32_t tokens = a.window > 0 && a.window < step.seq_lens[r] ? a.window : step.seq_lens[r];
    visible += int64_t{query_len} * tokens;
    num_tiles += (query_len + tile_rows - 1) / tile_rows;
  }
  // a short decode step is over before another thread has woken up
  if (visible * a.num_heads * (s.k_dim + s.v_dim) < kInlineWork) pool = nullptr;
  const int threads = pool_size(pool);
  // so many tasks that the last ones leave no thread idle for long
  constexpr int kTasksPerThread = 8;
  int64_t per_task = uses_tiles(s) ? num_tiles * s.num_kv_heads / (kTasksPerThread * threads) : 1;
  per_task = per_task < 1 ? 1 : per_task < kTilesPerTask ? per_task : kTilesPerTask;
  const Tasks tasks(a, step, static_cast<int>(per_task) * tile_rows, scratch.tile_request_, scratch.tile_row_);
  const auto workspace = [&](int worker) { return Workspace(scratch.worker(worker), capacity, s.k_pad, v_pad); };
  if (threads > 1 && tasks.size() < scratch.num_folds_ && per_task == 1)
    return attend_split(pool, a, step, tasks, capacity,
                        {scratch.slots_, scratch.folds_, scratch.slot_floats_, scratch.num_slots_}, workspace);

  const auto item = [&](int64_t i) {
    const QueryRows rows = tasks[i];
    return KvOrder::Item{rows, rows.low / kPartition, (rows.high + kPartition - 1) / kPartition};
  };
  parallel_reads(pool, a, step, tasks.size(), item, workspace,
                 [&](int64_t i, const Workspace& ws) { attend_task(a, step, tasks[i], capacity, ws); });
}

}  // namespace ov
