// From a tensor as it lies in a checkpoint to tiles. Runs at load, in parallel over tiles.
#pragma once

#include <cstdint>

#include "octavo.h"
#include "weights.h"

namespace ov {

// Fills num_tiles, strip_tiles, strip_bytes and bytes from kind, n and k.
void weight_layout(ov_weight* w);

// Writes w->data; the layout is filled in. src has rows of k values of src_type; w->kind is src_type, BF16 or F32.
void weight_pack(ov_pool* pool, int src_type, const void* src, const int32_t* row_perm, ov_weight* w);

}  // namespace ov
