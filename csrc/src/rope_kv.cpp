#include "rope_kv.h"

namespace ov {

void rope_kv(ov_pool* pool, const RopeKvArgs& a, int64_t rows) {
  const int32_t kv_heads = a.layer->shape.num_kv_heads;
  const int64_t work = int64_t{a.heads + 2 * kv_heads} * a.head_dim * kKvWriteWork;
  parallel_kv_runs(pool, a.slots, rows, work, [&](int64_t first, int count) {
    for (int64_t row = first; row < first + count; ++row) {
      rope_token(a.q.f32(row), a.heads, a.head_dim, *a.table, row);
      rope_token(a.k.f32(row), kv_heads, a.head_dim, *a.table, row);
    }
    kv_write_run(*a.layer, a.slots[first], count, a.k, a.v, first);
  });
}

}  // namespace ov
