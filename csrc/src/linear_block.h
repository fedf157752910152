// One piece of a linear layer: some tiles of one segment times some rows. linear.cpp cuts the work into these;
// linear_int8.cpp and linear_float.cpp compute them. Knows nothing of: threads.
#pragma once

#include "byte_lanes.h"
#include "linear.h"
#include "rotate.h"
#include "shared_rows.h"
#include "tiles.h"
#include "tiles_ahead.h"

namespace ov {

// Two column tiles side by side, the second of which may be past a weight's last.
struct TilePair {
  const LinearSegment* segment;
  int64_t tile;     // the first
  NextTiles after;  // what this thread most likely reads after them
};

// Pairs of tiles of a linear that a thread takes while it walks.
struct TilePairs {
  bool (*take)(void* context, TilePair* pair);  // false: none is left
  void* context;
};

struct LinearBlock {
  const LinearSegment* segment;
  const char* in;  // row 0 of the whole input, prepared
  int64_t in_stride;
  int64_t first_row, rows;
  int64_t first_tile, tiles;
  bool is_prompt;
  const LinearGate* gate;               // or nullptr
  NextTiles after;                      // what this thread reads after the block
  const LinearSegment* next = nullptr;  // of the block that this thread most likely takes after it, or nullptr
  int64_t next_tile = 0;                // its first tile
  uint64_t call = 0;                    // blocks of a number above 0 read the same rows
  const TilePairs* pairs = nullptr;     // of segments like this one, instead of its tiles (linear_int8_takes_pairs)
  SharedRows* shared = nullptr;         // where its rows may be offered to others (linear_shares_rows)
  const SharedUnit* taken = nullptr;    // somebody else's of which this thread takes parts, `first_part` before
  int64_t first_part = 0;
};

// Rows and tiles of a register block. Quantised: kDirectRows rows of kDirectTiles tiles straight from the packed codes,
// or as many rows of kPanelTiles expanded tiles as the form of the kind allows; up to kDirectLimit rows in all the
// former is faster. With more tiles a row's four activations are read once for several dot products; that what then
// does not fit in the registers lies in the first-level cache for a group costs less.
#if defined(__AVX512VNNI__)
inline constexpr int kDirectRows = 8, kDirectTiles = 2, kDirectLimit = 16, kPanelTiles = 2;
inline constexpr int kSymmetricRows = 8, kMinimumRows = 8, kHalvesRows = 6;
inline constexpr int kFloatRows = 8, kFloatTiles = 2;
#elif defined(__AVX2__)
inline constexpr int kDirectRows = 3, kDirectTiles = 1, kDirectLimit = 3, kPanelTiles = 1;
inline constexpr int kSymmetricRows = 3, kMinimumRows = 3, kHalvesRows = 3;
inline constexpr int kFloatRows = 3, kFloatTiles = 2;
#elif defined(__ARM_FEATURE_DOTPROD)
inline constexpr int kDirectRows = 4, kDirectTiles = 1, kDirectLimit = 4, kPanelTiles = 1;
inline constexpr int kSymmetricRows = 4, kMinimumRows = 4, kHalvesRows = 4;
inline constexpr int kFloatRows = 6, kFloatTiles = 1;
#else
inline constexpr int kDirectRows = 1, kDirectTiles = 1, kDirectLimit = 1, kPanelTiles = 1;
inline constexpr int kSymmetricRows = 1, kMinimumRows = 1, kHalvesRows = 1;
inline constexpr int kFloatRows = 2, kFloatTiles = 1;
#endif

// kPromptType: how quantised kinds read prompt tokens.
// kRowStep: register blocks of that many rows are the best. kBf16Speed: of bf16 activations against int8 ones.
#if defined(OV_HAS_TILES)
inline constexpr int kRowStep = 32, kBf16Speed = 4;
inline constexpr int kPromptType = OV_BF16;
#else
inline constexpr int kRowStep = 1, kBf16Speed = 1;
#if defined(OV_ROTATES_PROMPTS)
inline constexpr int kPromptType = OV_A8R;
#else
inline constexpr int kPromptType = OV_A8;
#endif
#endif

void linear_int8(const LinearBlock& block);
void linear_int8_gated(const LinearBlock& block);  // the same of two weights, with their gate
void linear_float(const LinearBlock& block);       // BF16 and F32
// Prompt tokens where kPromptType is OV_A8R:
void linear_rotated(const LinearBlock& block);
void linear_rotated_gated(const LinearBlock& block);
// Where the level has tile registers (tiles.h):
void linear_bf16_tiles(const LinearBlock& block);      // BF16
void linear_expanded_tiles(const LinearBlock& block);  // quantised, of prompt tokens
// Whether blocks of so many rows may offer parts of them while they compute; and such a part and what is left after it,
// for another thread, false if none was left.
bool linear_shares_rows(int kind, bool is_prompt, int64_t rows);
bool linear_take_rows(SharedRows& shared);
// The bits of linear_int8 sooner, where linear_int8_in_tiles says so of a weight's kind and the rows of a block:
void linear_int8_tiles(const LinearBlock& block);
bool linear_int8_in_tiles(int kind, int64_t rows);
// Whether it goes once over the pairs of tiles, so that a thread takes each when it is ready for it.
bool linear_int8_takes_pairs(int kind, int64_t rows);

// Stores R rows x C tiles: accumulator, + bias, + residual.
template <int R, int C>
OV_ALWAYS_INLINE void store_block(const LinearSegment& s, int64_t row, int64_t tile, const Lanes (&acc)[R][C]) {
  const int64_t first = tile * kTileColumns;
  char* const out = reinterpret_cast<char*>(s.out + first) + row * s.out_stride;
  const char* const residual =
      s.residual ? reinterpret_cast<const char*>(s.residual + first) + row * s.residual_stride : nullptr;
  const float* const bias = s.bias ? s.bias + first : nullptr;
  const int64_t columns = s.weight->n - first;
  unroll<C>([&](auto c) OV_INLINED {
    const int64_t left = columns - c.value * kLanes;  // none for a tile past the last
    const int count = static_cast<int>(left < 0 ? 0 : left < kLanes ? left : kLanes);
    const Lanes b = bias ? load_part(bias + c.value * kLanes, count) : set1(0.0f);
    unroll<R>([&](auto r) OV_INLINED {
      Lanes x = acc[r.value][c.value];
      if (bias) x = x + b;
      const int64_t offset = 4 * c.value * kLanes;
      if (residual)
        x = x + load_part(reinterpret_cast<const float*>(residual + r.value * s.residual_stride + offset), count);
      if (count == kLanes)
        store(reinterpret_cast<float*>(out + r.value * s.out_stride + offset), x);
      else
        store_part(reinterpret_cast<float*>(out + r.value * s.out_stride + offset), x, count);
    });
  });
}

// f(first, count) over `rows` rows in nearly equal parts of at most `limit`.
template <class F>
inline void for_row_parts(int64_t rows, int64_t limit, F&& f) {
  const int64_t parts = ceil_div(rows, limit);
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = rows * i / parts;
    f(begin, rows * (i + 1) / parts - begin);
  }
}

}  // namespace ov
