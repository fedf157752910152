// Rotation of queries and keys and the write of K and V in one pass over a step's rows.
//
// Knows nothing of: plans.
#pragma once

#include <cstdint>

#include "kv.h"
#include "pool.h"
#include "rope.h"
#include "view.h"

namespace ov {

struct RopeKvArgs {
  View q, k, v;  // [rows, heads * head_dim], [rows, kv_heads * head_dim], [rows, kv_heads * v_head_dim] f32
  int32_t heads, head_dim;
  const KvLayer* layer;
  const RopeTable* table;
  const int32_t* slots;
};

// q and k are rotated in place; k and v go to their slots.
void rope_kv(ov_pool* pool, const RopeKvArgs& args, int64_t rows);

}  // namespace ov
