// Quantised panels in pairs of rows: USMMLA of aarch64 multiplies two rows by two columns over eight k at a time.
//
// The sums of a group are exact integers, so their bits are those of one row at a time (linear_int8.cpp), and so is the
// f32 arithmetic, which is done in rows again. Nothing here where the level has no such instruction (OV_HAS_ROW_PAIRS).
// Knows nothing of: weights' layout, threads.
#pragma once

#include "byte_lanes.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define OV_HAS_ROW_PAIRS 1

namespace ov {

inline constexpr bool kHasRowPairs = true;

// Quads 2 j and 2 j + 1 of sixteen columns -> the same 128 bytes as eight pairs of columns, eight k of each.
OV_ALWAYS_INLINE void pair_columns(Bytes (&quad)[8]) {
  const auto low = [](uint8x16_t p, uint8x16_t q) {
    return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(p), vreinterpretq_u32_u8(q)));
  };
  const auto high = [](uint8x16_t p, uint8x16_t q) {
    return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(p), vreinterpretq_u32_u8(q)));
  };
  unroll<4>([&](auto j) OV_INLINED {
    const Bytes p = quad[2 * j.value], q = quad[2 * j.value + 1];
    quad[2 * j.value] = {low(p.a, q.a), high(p.a, q.a), low(p.b, q.b), high(p.b, q.b)};
    quad[2 * j.value + 1] = {low(p.c, q.c), high(p.c, q.c), low(p.d, q.d), high(p.d, q.d)};
  });
}

// Integer sums of two rows and sixteen columns, in blocks of two rows by two columns.
class PairDot {
 public:
  OV_ALWAYS_INLINE void start(const int32_t* first, const int32_t* second) {
    const int32x2_t both = vset_lane_s32(*second, vdup_n_s32(*first), 1);
    const int32x4_t offsets = vcombine_s32(both, both);
    unroll<8>([&](auto i) OV_INLINED { sum_[i.value] = offsets; });
  }
  // Eight k of both rows (of the first, then of the second) times the pairs of columns of `low` (columns 0-7) and `high` (8-15).
  OV_ALWAYS_INLINE void step(Bytes low, Bytes high, int8x16_t rows) {
    const uint8x16_t columns[8] = {low.a, low.b, low.c, low.d, high.a, high.b, high.c, high.d};
    unroll<8>([&](auto i) OV_INLINED { sum_[i.value] = vusmmlaq_s32(sum_[i.value], columns[i.value], rows); });
  }
  template <int Row>
  OV_ALWAYS_INLINE Lanes finish() const {
    const auto four = [this](int i) {
      const int32x4_t p = sum_[i], q = sum_[i + 1];
      return vcvtq_f32_s32(Row == 0 ? vuzp1q_s32(p, q) : vuzp2q_s32(p, q));
    };
    return {four(0), four(2), four(4), four(6)};
  }

 private:
  int32x4_t sum_[8];  // [column][row]
};

}  // namespace ov

#else

namespace ov {

inline constexpr bool kHasRowPairs = false;

}  // namespace ov

#endif
