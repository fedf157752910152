// Quantised weights times int8 activations.
//
// Per group of 32 k values: exact integer sums, then acc = fma(sum, d * a_scale, acc) and, with a minimum,
// acc = fma(m, a_sum, acc); with a scale for either half, acc = fma(fma(sum1, d1, sum0 * d0), a_scale, acc). The offset of symmetric kinds is in the integer sum from the start. Few rows read the
// packed tiles and expand codes in registers; many rows expand two tiles into a panel once and go over it. Both
// run the same multiply().
#include "linear_block.h"
#include "linear_int8_pairs.h"
#include "prepare.h"
#include "scratch.h"
#include "tile_codec.h"

namespace ov {

namespace {

// The prepared rows of a block and the starting values of their integer sums.
struct IntInput {
  const char* row;  // first row
  int64_t stride;
  A8Layout layout;
  const int32_t* start;  // [rows][start_stride]
  int64_t start_stride;
};

// What multiply() has to do for a kind; kinds share it.
template <int Bits, bool Minimum, bool Halves>
struct Form {
  static constexpr int kBits = Bits;
  static constexpr bool kMinimum = Minimum;
  static constexpr bool kHalves = Halves;
  static constexpr int kRecord = 512 + 64 + (Minimum || Halves ? 64 : 0);  // bytes of a group in a panel
  // what a fold needs besides the sums decides how many rows fit in the registers
  static constexpr int kPanelRows = Halves ? kHalvesRows : Minimum ? kMinimumRows : kSymmetricRows;
};
template <int Kind>
using FormOf = Form<dot_bits(Block<Kind>::kBits), Block<Kind>::kMinimum, Block<Kind>::kHalves>;

// After the codes of a group in a panel.
template <class Form>
OV_ALWAYS_INLINE void store_scales(uint8_t* record, GroupScales s) {
  store(reinterpret_cast<float*>(record + 512), s.first);
  if constexpr (Form::kMinimum || Form::kHalves) store(reinterpret_cast<float*>(record + 576), s.second);
}

template <int Kind>
using TilesAheadOf = TilesAhead<Tile<Kind>::kRecordBytes / Tile<Kind>::kRecordGroups, Tile<Kind>::kBits == 8>;

// Packed tiles, expanded in registers; with Fills into a panel, too.
template <int Kind, int Tiles, bool Fills>
class DirectSource {
  using Ahead = std::conditional_t<Fills, WholeTilesAhead, TilesAheadOf<Kind>>;

 public:
  using T = Tile<Kind>;
  using Form = FormOf<Kind>;
  static constexpr int kTiles = Tiles;

  OV_ALWAYS_INLINE DirectSource(const ov_weight& w, int64_t tile, Ahead& ahead, uint8_t* panel)
      : group_(tile_codes<Kind>(w, tile) - T::kStepToRecord), ahead_(ahead), panel_(panel) {
    for (int c = 0; c < Tiles; ++c) reader_[c].open(tile_scales<Kind>(w, tile) + c * T::kScaleBytes);
  }
  OV_ALWAYS_INLINE void begin(int64_t g) {
    group_ += g % T::kRecordGroups == 0 ? T::kStepToRecord : T::kGroupStep;
    ahead_.ask();
    unroll<Tiles>([&](auto c) OV_INLINED { scales_[c.value] = reader_[c.value].read(g); });
    if constexpr (Fills) {
      record_ = panel_ + g * Tiles * Form::kRecord;
      unroll<Tiles>([&](auto c)
                        OV_INLINED { store_scales<Form>(record_ + c.value * Form::kRecord, scales_[c.value]); });
    }
  }
  template <int Quad>
  OV_ALWAYS_INLINE Bytes quad(int c) const {
    const Bytes bytes = expand_quad<Kind, Quad>(group_ + 64 * c);
    if constexpr (Fills) store_bytes(record_ + c * Form::kRecord + 64 * Quad, bytes);
    return bytes;
  }
  OV_ALWAYS_INLINE GroupScales scales(int c) const { return scales_[c]; }

 private:
  ScaleReader<Kind> reader_[Tiles];
  const uint8_t* group_;
  Ahead& ahead_;
  uint8_t* panel_;
  uint8_t* record_ = nullptr;  // of the group at hand
  GroupScales scales_[Tiles];
};

// Expanded tiles: per group and tile eight quads, then the scales as f32.
template <class F, int Tiles>
class PanelSource {
 public:
  using Form = F;
  static constexpr int kTiles = Tiles;

  OV_ALWAYS_INLINE PanelSource(const uint8_t* panel, WholeTilesAhead& ahead)
      : panel_(panel), group_(panel), ahead_(ahead) {}
  OV_ALWAYS_INLINE void begin(int64_t g) {
    group_ = panel_ + g * Tiles * Form::kRecord;
    ahead_.ask();
  }
  template <int Quad>
  OV_ALWAYS_INLINE Bytes quad(int c) const {
    return load_bytes(group_ + c * Form::kRecord + 64 * Quad);
  }
  OV_ALWAYS_INLINE GroupScales scales(int c) const {
    const float* at = reinterpret_cast<const float*>(group_ + c * Form::kRecord + 512);
    if constexpr (Form::kMinimum || Form::kHalves) return {load(at), load(at + kLanes)};
    return {load(at), set1(0.0f)};
  }

 private:
  const uint8_t* panel_;
  const uint8_t* group_;
  WholeTilesAhead& ahead_;
};

#if defined(OV_HAS_ROW_PAIRS)

template <int Kind, int Tiles>
void fill_panel(const ov_weight& w, int64_t tile, uint8_t* panel) {
  using Panel = FormOf<Kind>;
  for (int c = 0; c < Tiles; ++c) {
    ScaleReader<Kind> reader(tile_scales<Kind>(w, tile + c));
    const uint8_t* const codes = tile_codes<Kind>(w, tile + c);
    uint8_t* out = panel + c * Panel::kRecord;
    for (int64_t g = 0; g < w.k / 32; ++g, out += Tiles * Panel::kRecord) {
      const uint8_t* const group = codes + codes_offset<Kind>(g);
      Bytes quad[8];  // all loads before all stores, which might alias
      unroll<8>([&](auto q) OV_INLINED { quad[q.value] = expand_quad<Kind, q.value>(group); });
      pair_columns(quad);
      const GroupScales s = reader.read(g);
      unroll<8>([&](auto q) OV_INLINED { store_bytes(out + 64 * q.value, quad[q.value]); });
      store_scales<Panel>(out, s);
    }
  }
}

#endif

// What a group adds to a row's accumulator: its integer sum (of the last half, with `first_half` scaled before) and scales.
template <class Form>
OV_ALWAYS_INLINE void fold_group(Lanes& x, Lanes sum, const Lanes& first_half, GroupScales s, const A8Layout& layout,
                                 const char* row, int64_t g) {
  const Lanes a_scale = set1(reinterpret_cast<const float*>(row + layout.scale)[g]);
  if constexpr (Form::kHalves)
    x = fma(fma(sum, s.second, first_half), a_scale, x);
  else
    x = fma(sum, s.first * a_scale, x);
  if constexpr (Form::kMinimum) x = fma(s.second, set1(reinterpret_cast<const float*>(row + layout.sum)[g]), x);
}

// R rows of `in` from `first` on x Source::kTiles tiles over all of k.
template <int R, class Source>
OV_ALWAYS_INLINE void multiply(Source& source, const IntInput& in, int64_t first, Lanes (&acc)[R][Source::kTiles]) {
  constexpr int C = Source::kTiles;
  constexpr bool kHalves = Source::Form::kHalves;
  const char* const rows = in.row + first * in.stride;
  const int32_t* const starts = in.start + first * in.start_stride;
  unroll<R>([&](auto r) OV_INLINED { unroll<C>([&](auto c) OV_INLINED { acc[r.value][c.value] = set1(0.0f); }); });
  for (int64_t g = 0; g < in.layout.groups; ++g) {
    source.begin(g);
    Dot<Source::Form::kBits> dot[R][C];
    const auto start = [&](int half) OV_INLINED {
      unroll<R>([&](auto r) OV_INLINED {
        unroll<C>([&](auto c) OV_INLINED {
          dot[r.value][c.value].start(starts + r.value * in.start_stride + (kHalves ? 2 * g + half : g));
        });
      });
    };
    Lanes first_half[R][C];
    const auto fold = [&]() OV_INLINED {
      unroll<R>([&](auto r) OV_INLINED {
        const char* row = rows + r.value * in.stride;
        unroll<C>([&](auto c) OV_INLINED {
          fold_group<typename Source::Form>(acc[r.value][c.value], dot[r.value][c.value].finish(),
                                            first_half[r.value][c.value], source.scales(c.value), in.layout, row, g);
        });
      });
    };
    start(0);
    unroll<8>([&](auto q) OV_INLINED {
      if constexpr (kHalves && q.value == 4) {
        unroll<R>([&](auto r) OV_INLINED {
          unroll<C>([&](auto c) OV_INLINED {
            first_half[r.value][c.value] = dot[r.value][c.value].finish() * source.scales(c.value).first;
          });
        });
        start(1);
      }
      Bytes w[C];
      unroll<C>([&](auto c) OV_INLINED { w[c.value] = source.template quad<q.value>(c.value); });
      unroll<R>([&](auto r) OV_INLINED {
        const int8_t* a = reinterpret_cast<const int8_t*>(rows + r.value * in.stride) + 32 * g + 4 * q.value;
        unroll<C>([&](auto c) OV_INLINED { dot[r.value][c.value].template step<q.value>(w[c.value], a); });
      });
    });
    fold();
  }
}

#if defined(OV_HAS_ROW_PAIRS)

// The same over a panel, whose quads are in pairs of columns, for two rows at a time; an odd last row is its own neighbour.
template <int R, class Form>
OV_ALWAYS_INLINE void multiply_pairs(PanelSource<Form, 1>& source, const IntInput& in, int64_t first,
                                     Lanes (&acc)[R][1]) {
  constexpr int kPairs = (R + 1) / 2;
  const auto row = [&](int r) OV_INLINED { return in.row + (first + (r < R ? r : R - 1)) * in.stride; };
  const auto starts = [&](int r) OV_INLINED { return in.start + (first + (r < R ? r : R - 1)) * in.start_stride; };
  unroll<R>([&](auto r) OV_INLINED { acc[r.value][0] = set1(0.0f); });
  for (int64_t g = 0; g < in.layout.groups; ++g) {
    source.begin(g);
    const GroupScales scales = source.scales(0);
    PairDot dot[kPairs];
    Lanes first_half[R];
    const auto start = [&](int64_t at) OV_INLINED {
      unroll<kPairs>([&](auto p)
                         OV_INLINED { dot[p.value].start(starts(2 * p.value) + at, starts(2 * p.value + 1) + at); });
    };
    start(Form::kHalves ? 2 * g : g);
    unroll<4>([&](auto j) OV_INLINED {
      if constexpr (Form::kHalves && j.value == 2) {
        unroll<R>([&](auto r) OV_INLINED {
          first_half[r.value] = dot[r.value / 2].template finish<r.value % 2>() * scales.first;
        });
        start(2 * g + 1);
      }
      const Bytes low = source.template quad<2 * j.value>(0), high = source.template quad<2 * j.value + 1>(0);
      unroll<kPairs>([&](auto p) OV_INLINED {
        const auto eight = [&](int r) OV_INLINED {
          return vld1_s8(reinterpret_cast<const int8_t*>(row(r)) + 32 * g + 8 * j.value);
        };
        dot[p.value].step(low, high, vcombine_s8(eight(2 * p.value), eight(2 * p.value + 1)));
      });
    });
    unroll<R>([&](auto r) OV_INLINED {
      fold_group<Form>(acc[r.value][0], dot[r.value / 2].template finish<r.value % 2>(), first_half[r.value], scales,
                       in.layout, row(r.value), g);
    });
  }
}

#endif

template <class Form, int R>
void panel_rows(const LinearBlock& b, int64_t tile, const IntInput& in, int64_t first, const uint8_t* panel,
                WholeTilesAhead& ahead) {
  Lanes acc[R][kPanelTiles];
  PanelSource<Form, kPanelTiles> source(panel, ahead);
#if defined(OV_HAS_ROW_PAIRS)
  multiply_pairs<R, Form>(source, in, first, acc);
#else
  multiply<R>(source, in, first, acc);
#endif
  store_block(*b.segment, b.first_row + first, tile, acc);
}

// f(Index<R>{}) for a row count R in [First, Last].
template <int First, int Last, class F>
inline void visit_rows(int64_t rows, F&& f) {
  if constexpr (First == Last)
    f(Index<Last>{});
  else if (rows == Last)
    f(Index<Last>{});
  else
    visit_rows<First, Last - 1>(rows, f);
}

// The smallest part of more than kDirectLimit rows in parts of at most `limit` (for_row_parts): smaller ones need no
// code.
constexpr int smallest_panel_part(int limit) {
  int smallest = limit;
  for (int rows = kDirectLimit + 1; rows <= kDirectLimit + 2 * limit; ++rows) {
    const int part = rows / ((rows + limit - 1) / limit);
    smallest = part < smallest ? part : smallest;
  }
  return smallest;
}

template <int Kind, int R, bool Fills, class Ahead>
void direct_rows(const LinearBlock& b, int64_t tile, Ahead& ahead, const IntInput& in, int64_t first, uint8_t* panel) {
  DirectSource<Kind, kDirectTiles, Fills> source(*b.segment->weight, tile, ahead, panel);
  Lanes acc[R][kDirectTiles];
  multiply<R>(source, in, first, acc);
  store_block(*b.segment, b.first_row + first, tile, acc);
}

template <int Kind>
void direct_tiles(const LinearBlock& b, int64_t tile, const NextTiles& after, const IntInput& in) {
  TilesAheadOf<Kind> ahead(*b.segment->weight, tile, after, b.rows, ceil_div(b.rows, kDirectRows));
  for_row_parts(b.rows, kDirectRows, [&](int64_t first, int64_t count) {
    visit_rows<1, kDirectRows>(count,
                               [&](auto r) { direct_rows<Kind, r.value, false>(b, tile, ahead, in, first, nullptr); });
  });
}

// The first part of the rows expands the panel as it goes.
template <int Kind>
void panel_tiles(const LinearBlock& b, int64_t tile, const NextTiles& after, const IntInput& in, uint8_t* panel) {
  using Form = FormOf<Kind>;
  constexpr int kFewest = smallest_panel_part(Form::kPanelRows);
  const int64_t parts = ceil_div(b.rows, Form::kPanelRows);
  WholeTilesAhead ahead(after, in.layout.groups, parts);
#if defined(OV_HAS_ROW_PAIRS)
  fill_panel<Kind, kPanelTiles>(*b.segment->weight, tile, panel);
#endif
  for_row_parts(b.rows, Form::kPanelRows, [&](int64_t first, int64_t count) {
    visit_rows<kFewest, Form::kPanelRows>(count, [&](auto r) {
      if constexpr (!kHasRowPairs) {
        if (first == 0) return direct_rows<Kind, r.value, true>(b, tile, ahead, in, first, panel);
      }
      panel_rows<Form, r.value>(b, tile, in, first, panel, ahead);
    });
  });
}

// -offset * (sum of the group's or half group's activations).
template <int Kind>
void fill_starts(const IntInput& in, int64_t rows, int32_t* out) {
  for (int64_t r = 0; r < rows; ++r, out += in.start_stride) {
    const int32_t* sum16 = reinterpret_cast<const int32_t*>(in.row + r * in.stride + in.layout.sum16);
    if constexpr (Block<Kind>::kHalves)
      for (int64_t i = 0; i < 2 * in.layout.groups; ++i) out[i] = -Block<Kind>::kOffset * sum16[i];
    else
      for (int64_t g = 0; g < in.layout.groups; ++g) out[g] = -Block<Kind>::kOffset * (sum16[2 * g] + sum16[2 * g + 1]);
  }
}

template <int Kind>
void run(const LinearBlock& b) {
  static thread_local Scratch starts, panels;
  IntInput in;
  in.row = b.in + b.first_row * b.in_stride;
  in.stride = b.in_stride;
  in.layout = a8_layout(b.segment->weight->k);
  // zeros are read as the others are: the compiler would copy them between registers, which takes an execution port
  in.start_stride = Block<Kind>::kMinimum ? 0 : in.layout.groups * (Block<Kind>::kHalves ? 2 : 1);
  int32_t* start =
      static_cast<int32_t*>(starts.take(4 * b.rows * (in.start_stride ? in.start_stride : in.layout.groups)));
  if constexpr (Block<Kind>::kMinimum)
    memset(start, 0, static_cast<size_t>(in.layout.groups) * 4);
  else
    fill_starts<Kind>(in, b.rows, start);
  in.start = start;
  const auto for_tiles = [&](int count, auto&& f) {
    const ov_weight& w = *b.segment->weight;
    for (int64_t t = b.first_tile, end = t + b.tiles; t < end; t += count)
      f(t, t + count < end ? next_tiles(w, t + count) : b.after);
  };
  // codes of eight bits are no work to expand: a panel only pays where it has another order
  constexpr bool kNeedsPanel = Block<Kind>::kBits < 8 || kHasRowPairs;
  if constexpr (kNeedsPanel) {
    if (b.rows > (Block<Kind>::kBits < 8 ? kDirectLimit : 4 * kDirectLimit)) {
      uint8_t* panel = static_cast<uint8_t*>(panels.take(in.layout.groups * kPanelTiles * FormOf<Kind>::kRecord));
      for_tiles(kPanelTiles,
                [&](int64_t tile, const NextTiles& after) { panel_tiles<Kind>(b, tile, after, in, panel); });
      return;
    }
  }
  for_tiles(kDirectTiles, [&](int64_t tile, const NextTiles& after) { direct_tiles<Kind>(b, tile, after, in); });
}

}  // namespace

void linear_int8(const LinearBlock& block) {
  visit_quantized(block.segment->weight->kind, [&]<int Kind>() { run<Kind>(block); });
}

}  // namespace ov
