// A packed linear weight: tiles of 16 output columns, laid out for the kernels in linear_*.cpp.
//
// Tile t holds output columns [16 t, 16 t + 16) over all of k; columns past n are zero. The tiles that a kernel reads side
// by side are a strip, and a strip is read from its first byte to its last: memory gives one core 32 GB/s of one stream, and 24
// of the same bytes in two or four. A strip of a quantised kind is a run of records, one per group (32 k values), or per 256
// where scales belong to so many: the scales of each tile, then per group the codes of each tile (tile_codec.h). A quad is
// 4 k values x 16 columns = 64 bytes, the four values of a column side by side as vpdpbusd wants them:
//   codes of a group   vectors of 64 bytes, the first of each tile, then the second of each tile, ...:
//                      1-bit high plane (Q5_*): 1 vector, bit b of byte i belongs to byte i of quad b
//                      2-bit high plane (Q6_K): 2 vectors, for quads 0-3 and 4-7; bits 2 b and 2 b + 1 of byte i belong
//                      to byte i of the b-th of the four quads
//                      4-bit plane: 4 vectors, vector j has quad j in the low and quad j + 4 in the high nibbles
//                      8-bit (Q8_0): 8 vectors, one per quad, value + 128
//   scales             Q4_0 Q5_0 Q8_0: per group f16 d[16]; Q4_1 Q5_1: per group f16 d[16], m[16]
//                      Q4_K Q5_K: per 256: f16 d[16], dmin[16], then u32 w[3][16]: six-bit values s0..s7, m0..m7 of a
//                      column, five in each word from bit 0 up, m7 two bits at a time in bits 30-31 of the three words
//                      Q6_K: per 256: f16 d[16], then int8 s[16][16] by sub-block of 16 and column
// BF16: pairs (k, k + 1) x 16 columns = 64 bytes, k padded with zeros to a multiple of 32. F32: k x 16 columns = 64 bytes. Vectors
// of a strip's tiles in turn.
//
// Owns: the packed bytes. Knows nothing of: activations, plans.
#pragma once

#include <cstdint>

#include "octavo.h"

struct ov_weight {
  uint64_t number;  // from 1, no other weight of the process has it
  int32_t kind;     // ov_type as stored
  int64_t n, k;
  int64_t num_tiles;    // ceil(n / 16)
  int64_t strip_tiles;  // the last strip may have more than are left, which are zeros
  int64_t strip_bytes;  // multiple of 64
  uint8_t* data;        // ceil(num_tiles / strip_tiles) * strip_bytes, 64-byte aligned
  int64_t bytes;
  void* slab;  // where data was taken from (weight_memory.cpp)
};

namespace ov {

constexpr int64_t kTileColumns = 16;
constexpr int64_t kGroup = 32;

inline uint8_t* strip_of(const ov_weight& w, int64_t tile) { return w.data + tile / w.strip_tiles * w.strip_bytes; }
// Of a BF16 or F32 weight: the first vector of a tile. The next one is strip_tiles vectors further.
inline uint8_t* float_tile(const ov_weight& w, int64_t tile) { return strip_of(w, tile) + tile % w.strip_tiles * 64; }

// Row `row` of the weight as f32 [k] (embedding gather). Exactly the format's reference value.
void weight_row(const ov_weight& w, int64_t row, float* out);

}  // namespace ov
