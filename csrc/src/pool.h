// The compute thread pool: own pthreads, work claimed tile by tile.
//
// The caller takes part as worker 0, so a pool of one thread runs everything inline. A job never waits for a worker
// that has not woken up: whoever is awake claims the remaining tiles. Workers spin for at most spin_us after a job,
// then sleep in a futex; an idle pool uses no CPU. Knows nothing of: plans, tensors.
#pragma once

#include <cstdint>
#include <type_traits>

struct ov_pool;

namespace ov {

// Number of workers, the caller included.
int pool_size(const ov_pool* pool);

using TileFn = void (*)(void* context, int64_t tile, int worker);

// Runs fn(context, tile, worker) for each tile in [0, tiles), tiles < 2^32; returns when all are done. Not reentrant:
// fn must not start another job on the same pool. Calls from several threads are serialised. pool may be NULL: runs
// inline.
void pool_run(ov_pool* pool, int64_t tiles, TileFn fn, void* context);

// f(int64_t tile, int worker); must not throw. worker < pool_size(pool) indexes per-worker scratch.
template <class F>
inline void parallel_for(ov_pool* pool, int64_t tiles, F&& f) {
  using Fn = std::remove_reference_t<F>;
  if (tiles <= 0) return;
  if (tiles == 1) {
    f(int64_t{0}, 0);
    return;
  }
  pool_run(
      pool, tiles, [](void* context, int64_t tile, int worker) { (*static_cast<Fn*>(context))(tile, worker); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

// Point-wise work: f(int64_t first, int64_t last, int worker) for spans of rows, `work` being about the number of elements
// a row touches. Little work stays on the caller, since waking a thread costs as much as 10,000 elements; results do not
// depend on the choice.
template <class F>
inline void parallel_spans(ov_pool* pool, int64_t rows, int64_t work, F&& f) {
  constexpr int64_t kTileWork = 16384;
  const int64_t per_tile = work >= kTileWork ? 1 : kTileWork / (work > 0 ? work : 1);
  int64_t tiles = (rows + per_tile - 1) / per_tile;
  if (tiles <= 1) {
    f(int64_t{0}, rows, 0);
    return;
  }
  // as many for each thread, nearly equal
  const int64_t threads = pool_size(pool);
  tiles = (tiles + threads - 1) / threads * threads;
  tiles = tiles < rows ? tiles : rows;
  parallel_for(pool, tiles,
               [&](int64_t tile, int worker) { f(rows * tile / tiles, rows * (tile + 1) / tiles, worker); });
}

// The same row by row: f(int64_t row, int worker).
template <class F>
inline void parallel_rows(ov_pool* pool, int64_t rows, int64_t work, F&& f) {
  parallel_spans(pool, rows, work, [&](int64_t first, int64_t last, int worker) {
    for (int64_t row = first; row < last; ++row) f(row, worker);
  });
}

}  // namespace ov
