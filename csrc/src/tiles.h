// The eight tile registers of AMX: 16 rows of 64 bytes each, and their dot products.
//
// Present where the level has them (OV_HAS_TILES). The shapes in use are a thread's state: TileShapes loads them for its
// scope and clears the registers after it, so that a thread that computes nothing has no tile state to save. The process
// must have been granted that state by the kernel before (octavo/platforms/amx.py). There is no register renaming:
// a register that is loaded waits for all earlier users. Knows nothing of: weights, activations.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
#define OV_HAS_TILES 1

#include "byte_lanes.h"

namespace ov {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t num_rows, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

constexpr int64_t kRegisterRows = 16;

// Up to 32 rows times two tiles of columns. Registers: 0-3 sums (row tile * 2 + column tile), 4 and 5 rows, 6 and 7 columns.
inline TileConfig two_by_two(int64_t rows) {
  TileConfig c;
  const int64_t first = rows > kRegisterRows ? (rows + 1) / 2 : rows, second = rows > first ? rows - first : 1;
  for (int i = 0; i < 2; ++i) {
    c.set(i, first, 64);
    c.set(2 + i, second, 64);
    c.set(6 + i, 16, 64);
  }
  c.set(4, first, 64);
  c.set(5, second, 64);
  return c;
}

class TileShapes {
 public:
  explicit TileShapes(const TileConfig& config) { load(config); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
  ~TileShapes() { asm volatile("tilerelease" ::: "memory"); }
  // Other shapes; all registers become zero.
  void load(const TileConfig& config) const { asm volatile("ldtilecfg %0" ::"m"(config)); }
};

template <int Tile>
OV_ALWAYS_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
}
template <int Tile>
OV_ALWAYS_INLINE void tile_load(const void* p, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(Tile), "r"(p), "r"(stride) : "memory");
}
// The same for what is not read again soon: it does not displace what is from the first-level cache.
template <int Tile>
OV_ALWAYS_INLINE void tile_load_once(const void* p, int64_t stride) {
  asm volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" ::"i"(Tile), "r"(p), "r"(stride) : "memory");
}
template <int Tile>
OV_ALWAYS_INLINE void tile_store(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(Tile), "r"(p), "r"(stride) : "memory");
}
// C[m][n] += sum over pairs k of A[m][k] B[k][n], bf16 to f32: two chains, of the first and of the second of each pair,
// added together and then to C.
template <int C, int A, int B>
OV_ALWAYS_INLINE void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
// The same of bytes, signed both, to int32.
template <int C, int A, int B>
OV_ALWAYS_INLINE void tile_dot_int8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

}  // namespace ov

#endif
