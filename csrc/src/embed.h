// Rows by index: token embeddings out of a packed weight, and the rows whose logits are wanted. Knows nothing of:
// plans.
#pragma once

#include <cstdint>

#include "octavo.h"
#include "pool.h"
#include "view.h"

namespace ov {

// out[t] = scale * row ids[t] of weight; ids are in range.
void embed(ov_pool* pool, const ov_weight& weight, const int32_t* ids, float scale, View out, int64_t rows);

// out[l] = in[index[l]], or in[l] without an index; same dtype and columns.
void gather(ov_pool* pool, View in, const int32_t* index, View out, int64_t rows);

}  // namespace ov
