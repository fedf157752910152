// Layout of one layer's share of a KV block, and writing tokens into it.
//
// A share holds, for each KV head, the block's K sub-blocks and then its V sub-blocks, 16 tokens each. bf16: K as
// [k_pad / 2][16 tokens][2 dims] with k_pad = k_head_dim rounded up to even, V as [8 token pairs][v_head_dim][2
// tokens], both ready as the vector operand of a paired dot product. f32: K as [k_head_dim][16 tokens], V as [16
// tokens][v_head_dim]. One-byte types: as f32 with a byte for each value, then the f32 scales of the block's K and of
// its V, one per token. Knows nothing of: plans, requests.
#pragma once

#include <cstdint>

#include "octavo.h"
#include "pool.h"
#include "view.h"

namespace ov {

inline constexpr int kSubBlock = 16;

struct KvShape {
  int32_t num_kv_heads, k_dim, v_dim, k_pad;
  int32_t dtype;       // OV_F32, OV_BF16, OV_I8 or OV_F8_E4M3
  int32_t block_size;  // tokens, a multiple of 16
  int64_t k_sub_bytes, v_sub_bytes;
  int64_t head_bytes;   // one head's K and V of a block
  int64_t share_bytes;  // all heads

  char* k_sub(char* share, int head, int sub) const { return share + head * head_bytes + sub * k_sub_bytes; }
  char* v_sub(char* share, int head, int sub) const {
    return share + head * head_bytes + (block_size / kSubBlock) * k_sub_bytes + sub * v_sub_bytes;
  }
  // Scales of sixteen tokens; one-byte types only.
  float* k_scales(char* share, int head, int sub) const {
    return reinterpret_cast<float*>(v_sub(share, head, block_size / kSubBlock)) + sub * kSubBlock;
  }
  float* v_scales(char* share, int head, int sub) const { return k_scales(share, head, sub) + block_size; }
};

KvShape kv_shape(const ov_kv_layer& layer, int32_t block_size);

// Where one layer's shares lie.
struct KvLayer {
  KvShape shape;
  int32_t group;
  int64_t offset;        // of the share in a block
  char* pool;            // set by ov_plan_set_kv
  int64_t block_stride;  // bytes

  char* share(int64_t block_id) const { return pool + block_id * block_stride + offset; }
};

// K [heads * k_dim] and V [heads * v_dim], f32, of `count` rows to the slots from `slot` = block_id * block_size + offset
// on, all in one sub-block; slot < 0: nothing.
void kv_write_run(const KvLayer& layer, int32_t slot, int count, View k, View v, int64_t first_row);

// Whether a row's slot follows that of the row before it in one sub-block.
inline bool continues_run(const int32_t* slots, int64_t row) {
  return row > 0 && slots[row] > 0 && slots[row] == slots[row - 1] + 1 && slots[row] % kSubBlock != 0;
}

// Multiply-adds in whose time a value of K or V is written: a token's are in lines all over its sub-blocks, which come from memory.
inline constexpr int64_t kKvWriteWork = 8;

// f(first row, count) for each run of rows whose slots follow each other in one sub-block. A run is never shared, as two
// threads that write parts of the same lines wait for each other.
template <class F>
inline void parallel_kv_runs(ov_pool* pool, const int32_t* slots, int64_t rows, int64_t work, F&& f) {
  parallel_spans(pool, rows, work, [&](int64_t first, int64_t last, int) {
    while (first < rows && continues_run(slots, first)) ++first;
    while (last < rows && continues_run(slots, last)) ++last;
    for (int64_t row = first; row < last;) {
      int count = 1;
      while (row + count < last && continues_run(slots, row + count)) ++count;
      f(row, count);
      row += count;
    }
  });
}

void kv_write(ov_pool* pool, const KvLayer& layer, const int32_t* slots, View k, View v, int64_t rows);

}  // namespace ov
