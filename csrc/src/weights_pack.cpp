#include "weights_pack.h"

#include "convert.h"
#include "pool.h"
#include "tile_codec.h"

namespace ov {

void weight_layout(ov_weight* w) {
  w->num_tiles = ceil_div(w->n, kTileColumns);
  const bool quantized = visit_quantized(w->kind, [&]<int Kind>() {
    w->strip_tiles = kStripTiles;
    w->strip_bytes = round_up(w->k / 32 / Tile<Kind>::kRecordGroups * Tile<Kind>::kRecordBytes, 64);
  });
  if (!quantized) {
    w->strip_tiles = float_strip_tiles(w->kind);
    w->strip_bytes = w->strip_tiles * (w->kind == OV_BF16 ? round_up(w->k, 32) / 2 * 64 : w->k * 64);
  }
  w->bytes = ceil_div(w->num_tiles, w->strip_tiles) * w->strip_bytes;
}

namespace {

// Sixteen rows of the source; rows past n are a block of zeros again and again.
struct SourceRows {
  const uint8_t* row[kTileColumns];
  int64_t step[kTileColumns];  // 1, or 0 for rows past n

  template <int Kind>
  const uint8_t* block(int c, int64_t b) const {
    return row[c] + step[c] * b * Block<Kind>::kBytes;
  }
};

alignas(64) constexpr uint8_t kZeros[1024] = {};  // a piece of 256 values of any type

// Bit 4 q + r of a word to bit 8 r + q: the high bits of a block of 32 to those of a column's eight quads.
inline uint32_t quad_bits(uint32_t x) {
  uint32_t out = 0;
  for (int r = 0; r < 4; ++r) {
    uint32_t y = x >> r & 0x11111111u;
    y = (y | y >> 3) & 0x03030303u;
    y = (y | y >> 6) & 0x000f000fu;
    y = (y | y >> 12) & 0xffu;
    out |= y << 8 * r;
  }
  return out;
}

// Q4_0, Q4_1, Q5_0, Q5_1: byte i of a block holds values i and i + 16, as the low plane of a tile does, so that codes
// only change places.
template <int Kind>
void pack_nibble_group(const SourceRows& rows, int64_t group, uint8_t* scales, uint8_t* codes) {
  using B = Block<Kind>;
  using T = Tile<Kind>;
  constexpr int kCodesAt = B::kBytes - 16;
  uint32_t head[16], high[16];
  for (int c = 0; c < kTileColumns; ++c) {
    const uint8_t* block = rows.block<Kind>(c, group);
    memcpy(&head[c], block, 4);
    if constexpr (B::kBits == 5) memcpy(&high[c], block + kCodesAt - 4, 4);
    for (int j = 0; j < 4; ++j) memcpy(codes + T::kLowAt + T::kVectorStep * j + 4 * c, block + kCodesAt + 4 * j, 4);
  }
  if constexpr (B::kBits == 5) {
    for (int c = 0; c < kTileColumns; ++c) high[c] = quad_bits(high[c]);
    memcpy(codes, high, 64);
  }
  uint16_t half[32];
  for (int c = 0; c < kTileColumns; ++c) {
    half[c] = static_cast<uint16_t>(head[c]);
    half[16 + c] = static_cast<uint16_t>(head[c] >> 16);
  }
  memcpy(scales, half, T::kScaleBytes);
}

// Any other kind, through bytes: 16 rows x 32 codes to eight quads, and these to planes.
template <int Kind>
void pack_group(const SourceRows& rows, int64_t group, uint8_t* out) {
  using B = Block<Kind>;
  using T = Tile<Kind>;
  constexpr int kGroups = B::kBlock / 32;
  alignas(64) uint8_t quads[8][64];
  for (int c = 0; c < kTileColumns; ++c) {
    uint8_t codes[32];
    B::codes(rows.block<Kind>(c, group / kGroups), static_cast<int>(group % kGroups), codes);
    for (int q = 0; q < 8; ++q) memcpy(quads[q] + 4 * c, codes + 4 * q, 4);
  }
  if constexpr (B::kBits == 8) {
    for (int q = 0; q < 8; ++q) memcpy(out + T::kVectorStep * q, quads[q], 64);
    return;
  }
  for (int j = 0; j < 4; ++j) {
    uint8_t* low = out + T::kLowAt + T::kVectorStep * j;
    for (int i = 0; i < 64; ++i) low[i] = static_cast<uint8_t>((quads[j][i] & 0x0f) | quads[j + 4][i] << 4);
  }
  // so many quads share a vector of the high plane, each with so many bits of a byte
  constexpr int kShared = B::kBits == 6 ? 4 : 8, kHighBits = 8 / kShared;
  for (int first = 0; first < T::kLowAt / T::kVectorStep * kShared; first += kShared) {
    uint8_t* high = out + T::kVectorStep * (first / kShared);
    memset(high, 0, 64);
    for (int j = 0; j < kShared; ++j)
      for (int i = 0; i < 64; ++i)
        high[i] = static_cast<uint8_t>(high[i] | (quads[first + j][i] >> 4) << kHighBits * j);
  }
}

template <int Kind>
void pack_scales(const SourceRows& rows, int64_t b, uint8_t* out) {
  using B = Block<Kind>;
  uint16_t* halves = reinterpret_cast<uint16_t*>(out);
  for (int c = 0; c < kTileColumns; ++c) {
    const uint8_t* block = rows.block<Kind>(c, b);
    halves[c] = B::scale(block);
    if constexpr (B::kMinimum) halves[16 + c] = B::minimum(block);
    if constexpr (B::kHalves) {
      for (int i = 0; i < 16; ++i) out[32 + 16 * i + c] = static_cast<uint8_t>(B::sub_scale16(block, i));
    } else if constexpr (B::kSuper) {
      uint32_t six[16], word[3] = {};
      for (int j = 0; j < 8; ++j) {
        six[j] = B::sub_scale(block, j);
        six[8 + j] = B::sub_minimum(block, j);
      }
      for (int j = 0; j < 15; ++j) word[j / 5] |= six[j] << 6 * (j % 5);
      for (int i = 0; i < 3; ++i) {
        word[i] |= (six[15] >> 2 * i & 3u) << 30;
        memcpy(out + 64 + 64 * i + 4 * c, &word[i], 4);
      }
    }
  }
}

template <int Kind>
void pack_quantized_tile(const SourceRows& rows, const ov_weight& w, int64_t tile) {
  using B = Block<Kind>;
  using T = Tile<Kind>;
  uint8_t* const scales = tile_scales<Kind>(w, tile);
  uint8_t* const codes = tile_codes<Kind>(w, tile);
  for (int64_t g = 0; g < w.k / 32; ++g) {
    uint8_t* const group = codes + codes_offset<Kind>(g);
    if constexpr (!B::kSuper && B::kBits < 8) {
      pack_nibble_group<Kind>(rows, g, scales + g * T::kRecordBytes, group);
    } else {
      if (g % T::kRecordGroups == 0)
        pack_scales<Kind>(rows, g / T::kRecordGroups, scales + g / T::kRecordGroups * T::kRecordBytes);
      pack_group<Kind>(rows, g, group);
    }
  }
}

// F32 as F32 and BF16 as BF16 with even k: words of four bytes change places. step: bytes from a tile's vector to its next.
void pack_words(const SourceRows& rows, int64_t words, uint8_t* tile, int64_t step) {
  constexpr int64_t kPiece = 16;  // a cache line of each row
  for (int64_t first = 0; first < words; first += kPiece) {
    const int64_t end = first + kPiece < words ? first + kPiece : words;
    for (int c = 0; c < kTileColumns; ++c)
      for (int64_t i = first; i < end; ++i)
        memcpy(tile + step * i + 4 * c, rows.step[c] ? rows.row[c] + 4 * i : kZeros, 4);
  }
}

// Anything else as floats, through f32 in pieces of 256 values of k, a multiple of every block.
void pack_float_tile(int src_type, const SourceRows& rows, const ov_weight& w, uint8_t* tile, int64_t step) {
  constexpr int64_t kPiece = 256;
  const TypeInfo& type = *type_info(src_type);
  alignas(64) float piece[kTileColumns][kPiece];
  for (int64_t k0 = 0; k0 < w.k; k0 += kPiece) {
    const int64_t count = w.k - k0 < kPiece ? w.k - k0 : kPiece;
    for (int c = 0; c < kTileColumns; ++c) {
      to_f32(src_type, rows.row[c] + rows.step[c] * (k0 / type.block * type.block_bytes), count, piece[c]);
      if (count % 2) piece[c][count] = 0.0f;
    }
    if (w.kind == OV_F32) {
      for (int64_t k = 0; k < count; ++k) {
        float* const out = reinterpret_cast<float*>(tile + (k0 + k) * step);
        for (int c = 0; c < kTileColumns; ++c) out[c] = piece[c][k];
      }
    } else {
      for (int64_t pair = 0; pair < ceil_div(count, 2); ++pair) {
        uint16_t* const out = reinterpret_cast<uint16_t*>(tile + (k0 / 2 + pair) * step);
        for (int c = 0; c < kTileColumns; ++c)
          for (int64_t i = 0; i < 2; ++i) out[2 * c + i] = to_bf16(piece[c][2 * pair + i]);
      }
    }
  }
}

}  // namespace

void weight_pack(ov_pool* pool, int src_type, const void* src, const int32_t* row_perm, ov_weight* w) {
  const TypeInfo& type = *type_info(src_type);
  const int64_t row_bytes = w->k / type.block * type.block_bytes;
  const ov_weight& weight = *w;
  parallel_for(pool, round_up(weight.num_tiles, weight.strip_tiles), [&](int64_t t, int) {
    SourceRows rows;
    for (int64_t c = 0; c < kTileColumns; ++c) {
      const int64_t r = t * kTileColumns + c;
      const int64_t source = r < weight.n && row_perm ? row_perm[r] : r;
      rows.row[c] = r < weight.n ? static_cast<const uint8_t*>(src) + source * row_bytes : kZeros;
      rows.step[c] = r < weight.n;
    }
    if (visit_quantized(weight.kind, [&]<int Kind>() { pack_quantized_tile<Kind>(rows, weight, t); })) return;
    uint8_t* const tile = float_tile(weight, t);
    const int64_t step = 64 * weight.strip_tiles;
    if (weight.kind == OV_BF16)
      for (int64_t pair = ceil_div(weight.k, 2); pair < round_up(weight.k, 32) / 2; ++pair)
        memset(tile + step * pair, 0, 64);
    if (weight.kind == src_type && row_bytes % 4 == 0)
      pack_words(rows, row_bytes / 4, tile, step);
    else
      pack_float_tile(src_type, rows, weight, tile, step);
  });
}

}  // namespace ov
