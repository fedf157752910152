// Packed tiles of quantised kinds as bf16 operands of the tile registers.
//
// A panel holds, per 32 values of k, two operands side by side: column tiles of one weight or of two. An operand is what
// tile_dot_bf16 reads: 16 rows of 64 bytes, row i the pair (k = 2 i, 2 i + 1) of each of 16 columns. A value is
// code * scale (+ minimum), exactly that of the format as f32, then rounded to bf16, to nearest even. Present where the
// level has tile registers. Knows nothing of: activations.
#pragma once

#include <new>

#include "tile_codec.h"
#include "tiles.h"
#include "tiles_ahead.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int64_t kOperandBytes = 1024;  // 32 values of k x 16 columns
inline constexpr int64_t kPanelStep = 2 * kOperandBytes;

// One of the column tiles of a panel.
struct PanelColumn {
  const ov_weight* weight = nullptr;
  int64_t tile = 0;
};

// Of eight columns, each twice: what the values of a pair are multiplied with and added to.
struct PairScales {
  __m512 scale[2], shift[2];  // columns 0-7 and 8-15

  OV_ALWAYS_INLINE void set(Lanes scales, Lanes shifts) {
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    scale[0] = _mm512_permutexvar_ps(low, scales.v);
    scale[1] = _mm512_permutexvar_ps(high, scales.v);
    shift[0] = _mm512_permutexvar_ps(low, shifts.v);
    shift[1] = _mm512_permutexvar_ps(high, shifts.v);
  }
};

// What a group of a column tile is made of: byte codes and the scales of either half.
struct OperandGroup {
  alignas(64) uint8_t codes[8][64];
  PairScales scales[2];
};

// Two rows of an operand from a quad of codes, four values of k of sixteen columns, in eight pieces, so that tile
// instructions can stand between them.
class OperandRows {
 public:
  template <int Piece>
  OV_ALWAYS_INLINE void piece(const OperandGroup& group, uint32_t quad, char* out) {
    const PairScales& s = group.scales[quad / 4];
    if constexpr (Piece == 0) {
      quad_ = _mm512_load_si512(group.codes[quad]);
      place<0>();
    } else if constexpr (Piece == 1) {
      place<1>();
      convert<0>();
    } else if constexpr (Piece == 2) {
      convert<1>();
      scale<0>(s);
    } else if constexpr (Piece == 3) {
      scale<1>(s);
      place<2>();
    } else if constexpr (Piece == 4) {
      _mm512_store_si512(out, (__m512i)_mm512_cvtne2ps_pbh(value_[1], value_[0]));
      place<3>();
    } else if constexpr (Piece == 5) {
      convert<2>();
      convert<3>();
    } else if constexpr (Piece == 6) {
      scale<2>(s);
      scale<3>(s);
    } else {
      _mm512_store_si512(out + 64, (__m512i)_mm512_cvtne2ps_pbh(value_[3], value_[2]));
    }
  }
  OV_ALWAYS_INLINE void all(const OperandGroup& group, uint32_t quad, char* out) {
    unroll<8>([&](auto i) OV_INLINED { piece<i.value>(group, quad, out); });
  }
  // What has been computed is computed here, before what is written after it.
  template <int Piece>
  OV_ALWAYS_INLINE void pin() {
    if constexpr (Piece < 4) asm volatile("" : "+v"(quad_), "+v"(value_[0]), "+v"(value_[1]));
    if constexpr (Piece >= 3 && Piece < 7) asm volatile("" : "+v"(value_[2]), "+v"(value_[3]));
  }

 private:
  // byte 4 c + j is value j of column c; words become (column, value) in the order of an operand's row
  template <int I>
  OV_ALWAYS_INLINE void place() {
    struct Places {
      alignas(64) uint8_t at[64];
    };
    static constexpr Places kPlaces = [] {
      Places p = {};
      for (int word = 0; word < 16; ++word)
        p.at[4 * word] = static_cast<uint8_t>(4 * (8 * (I % 2) + word / 2) + 2 * (I / 2) + word % 2);
      return p;
    }();
    constexpr __mmask64 kLowBytes = 0x1111111111111111u;
    value_[I] = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi8(kLowBytes, _mm512_load_si512(kPlaces.at), quad_));
  }
  template <int I>
  OV_ALWAYS_INLINE void convert() {
    value_[I] = _mm512_cvtepi32_ps(_mm512_castps_si512(value_[I]));
  }
  template <int I>
  OV_ALWAYS_INLINE void scale(const PairScales& s) {
    value_[I] = _mm512_fmadd_ps(value_[I], s.scale[I % 2], s.shift[I % 2]);
  }

  __m512i quad_ = _mm512_setzero_si512();
  __m512 value_[4] = {};
};

// Reads a column tile group by group.
template <int Kind>
class GroupReader {
 public:
  GroupReader(const PanelColumn& c, const NextTiles& after)
      : scales_(tile_scales<Kind>(*c.weight, c.tile)),
        codes_(tile_codes<Kind>(*c.weight, c.tile)),
        ahead_(*c.weight, c.tile, after) {}
  GroupReader(const GroupReader&) = delete;
  GroupReader& operator=(const GroupReader&) = delete;

  void read(OperandGroup& out) {
    ahead_.ask();
    const GroupScales s = scales_.read(group_);
    const uint8_t* const codes = codes_ + codes_offset<Kind>(group_++);
    const Lanes offset = set1(-static_cast<float>(T::kOffset));
    // a product by an offset is exact, and so is the sum that takes it away again
    out.scales[0].set(s.first, T::kMinimum ? s.second : s.first * offset);
    if constexpr (T::kHalves)
      out.scales[1].set(s.second, s.second * offset);
    else
      out.scales[1] = out.scales[0];
    unroll<8>([&](auto q) OV_INLINED { store_bytes(out.codes[q.value], expand_quad<Kind, q.value>(codes)); });
  }

 private:
  using T = Tile<Kind>;

  ScaleReader<Kind> scales_;
  const uint8_t* codes_;
  int64_t group_ = 0;
  LinesAhead<T::kRecordBytes / T::kRecordGroups> ahead_;
};

// The same of any kind.
class AnyGroupReader {
 public:
  void open(const PanelColumn& c, const NextTiles& after) {
    visit_quantized(c.weight->kind, [&]<int Kind>() {
      using Reader = GroupReader<Kind>;
      static_assert(sizeof(Reader) <= sizeof memory_ && alignof(Reader) <= 64);
      new (memory_) Reader(c, after);
      read_ = [](char* memory, OperandGroup& out) { std::launder(reinterpret_cast<Reader*>(memory))->read(out); };
    });
  }
  void read(OperandGroup& out) { read_(memory_, out); }

 private:
  void (*read_)(char*, OperandGroup&) = nullptr;
  alignas(64) char memory_[1536];
};

}  // namespace ov

#endif
