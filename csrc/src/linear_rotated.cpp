// Quantised weights times prompt tokens in their rotated form (rotate.h), on AVX-512 levels without tile registers.
//
// Two tiles are expanded into a panel once per block of rows, and all rows of the block go over it. Per group of 64 k
// values: an exact integer sum, then acc = fma(sum, scale * a_scale, acc). Knows nothing of: threads.
#include "linear_block.h"
#include "rotated_panel.h"
#include "scratch.h"

#if defined(OV_ROTATES_PROMPTS)

namespace ov {
namespace {

constexpr int kTiles = 2, kRows = 7;
constexpr int64_t kStep = kTiles * kRotatedRecord;  // bytes of a group in a panel

struct RotatedInput {
  const char* row;  // first row
  int64_t stride;
  RotatedLayout layout;
};

template <int R>
void multiply_rotated(const LinearBlock& b, int64_t tile, const RotatedInput& in, int64_t first, const uint8_t* panel,
                      WholeTilesAhead& ahead) {
  const char* const rows = in.row + first * in.stride;
  Lanes acc[R][kTiles];
  unroll<R>([&](auto r) OV_INLINED { unroll<kTiles>([&](auto c) OV_INLINED { acc[r.value][c.value] = set1(0.0f); }); });
  for (int64_t g = 0; g < in.layout.groups; ++g, panel += kStep) {
    ahead.ask();
    ahead.ask();  // of either 32 values
    __m512i sum[R][kTiles];
    unroll<R>([&](auto r) OV_INLINED {
      int32_t start;
      memcpy(&start, rows + r.value * in.stride + in.layout.start + 4 * g, 4);
      unroll<kTiles>([&](auto c) OV_INLINED { sum[r.value][c.value] = _mm512_set1_epi32(start); });
    });
    unroll<16>([&](auto q) OV_INLINED {
      __m512i w[kTiles];
      unroll<kTiles>(
          [&](auto c) OV_INLINED { w[c.value] = _mm512_load_si512(panel + c.value * kRotatedRecord + 64 * q.value); });
      unroll<R>([&](auto r) OV_INLINED {
        int32_t four;
        memcpy(&four, rows + r.value * in.stride + kRotatedGroup * g + 4 * q.value, 4);
        const __m512i a = _mm512_set1_epi32(four);
        unroll<kTiles>([&](auto c) OV_INLINED {
          sum[r.value][c.value] = _mm512_dpbusd_epi32(sum[r.value][c.value], w[c.value], a);
        });
      });
    });
    Lanes scale[kTiles];
    unroll<kTiles>([&](auto c) OV_INLINED {
      scale[c.value] = load(reinterpret_cast<const float*>(panel + (c.value + 1) * kRotatedRecord - 64));
    });
    unroll<R>([&](auto r) OV_INLINED {
      float a_scale;
      memcpy(&a_scale, rows + r.value * in.stride + in.layout.scale + 4 * g, 4);
      unroll<kTiles>([&](auto c) OV_INLINED {
        const Lanes x{_mm512_cvtepi32_ps(sum[r.value][c.value])};
        acc[r.value][c.value] = fma(x, scale[c.value] * set1(a_scale), acc[r.value][c.value]);
      });
    });
  }
  store_block(*b.segment, b.first_row + first, tile, acc);
}

// f(Index<R>{}) for a row count R in [1, Last].
template <int Last, class F>
void visit_part(int64_t rows, F&& f) {
  if constexpr (Last > 1) {
    if (rows < Last) return visit_part<Last - 1>(rows, f);
  }
  f(Index<Last>{});
}

void expand_pair(const ov_weight& w, int64_t tile, uint8_t* panel) {
  visit_quantized(w.kind, [&]<int Kind>() {
    for (int c = 0; c < kTiles; ++c)
      rotated::expand_tile<Kind>(tile_scales<Kind>(w, tile + c), tile_codes<Kind>(w, tile + c), w.k,
                                 panel + c * kRotatedRecord, kStep);
  });
}

}  // namespace

void linear_rotated(const LinearBlock& b) {
  static thread_local Scratch panels;
  const ov_weight& w = *b.segment->weight;
  const RotatedInput in{b.in + b.first_row * b.in_stride, b.in_stride, rotated_layout(w.k)};
  uint8_t* const panel = static_cast<uint8_t*>(panels.take(in.layout.groups * kStep));
  for (int64_t t = b.first_tile, end = t + b.tiles; t < end; t += kTiles) {
    expand_pair(w, t, panel);
    const NextTiles after = t + kTiles < end ? next_tiles(w, t + kTiles) : b.after;
    WholeTilesAhead ahead(after, w.k / kGroup, ceil_div(b.rows, kRows));
    for_row_parts(b.rows, kRows, [&](int64_t first, int64_t count) {
      visit_part<kRows>(count, [&](auto r) { multiply_rotated<r.value>(b, t, in, first, panel, ahead); });
    });
  }
}

}  // namespace ov

#endif
