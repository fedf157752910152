// Many rows of int8 activations times quantised weights in the tile registers of AMX.
//
// A group's sums are exact integers, which the registers make as well as any instruction; what follows in f32 is the
// arithmetic of linear_int8.cpp in its order, so a row has the same bits in either. Two column tiles go over k with up to
// 32 rows, two groups at a time: while the registers multiply, the sums of two steps before become part of the
// accumulators, and codes of the next groups are expanded. Present where the level has tile registers. Knows nothing of:
// threads.
#include <optional>

#include "linear_block.h"
#include "prepare.h"
#include "scratch.h"
#include "tile_codec.h"

#if defined(OV_HAS_TILES)

namespace ov {

namespace {

constexpr int64_t kHalfRows = 16, kPartRows = 2 * kHalfRows;  // rows of a register, and of a walk over k
constexpr int64_t kFewestRows = 29;                           // of a part: fewer are faster in vector registers
constexpr int64_t kFactors = 2 * kPartRows;                   // per group: scales and sums of a part's rows

// Rows of a part in registers: two halves, which share a row if the number is odd.
struct Halves {
  int64_t rows, second;  // of a half; first row of the second half
  explicit Halves(int64_t all) : rows((all + 1) / 2), second(all - rows) {}
};
static_assert(kFewestRows > kHalfRows);

// The scales and sums of a block's rows by part and group, so that those of one group lie side by side. Kept from one block of
// a call to the next, as they differ in columns only.
class RowFactors {
 public:
  void take(const LinearBlock& b, const A8Layout& layout) {
    groups_ = layout.groups;
    if (b.call == call_ && b.first_row == first_row_) return;
    call_ = b.call;
    first_row_ = b.first_row;
    const int64_t floats = ceil_div(b.rows, kPartRows) * groups_ * kFactors;
    data_ = static_cast<float*>(memory_.take(4 * floats));
    // lanes that no row has are computed with, too
    memset(data_, 0, static_cast<size_t>(floats) * 4);
    int64_t part = 0;
    for_row_parts(b.rows, kPartRows, [&](int64_t skipped, int64_t rows) {
      const Halves halves(rows);
      for (int64_t r = 0; r < 2 * halves.rows; ++r) {
        const bool is_second = r >= halves.rows;
        const int64_t in_half = is_second ? r - halves.rows : r;
        const char* row = b.in + (b.first_row + skipped + (is_second ? halves.second : 0) + in_half) * b.in_stride;
        const float* scales = reinterpret_cast<const float*>(row + layout.scale);
        const float* sums = reinterpret_cast<const float*>(row + layout.sum);
        float* out = data_ + part * groups_ * kFactors + (is_second ? kHalfRows : 0) + in_half;
        for (int64_t g = 0; g < groups_; ++g, out += kFactors) {
          out[0] = scales[g];
          out[kPartRows] = sums[g];
        }
      }
      ++part;
    });
  }
  const float* part(int64_t i) const { return data_ + i * groups_ * kFactors; }

 private:
  Scratch memory_;
  float* data_ = nullptr;
  uint64_t call_ = 0;
  int64_t first_row_ = 0, groups_ = 0;
};

// Registers: 0-3 sums, two groups of two steps; 4 and 5 rows, 6 and 7 codes of either group.
TileConfig shapes(int64_t rows) {
  TileConfig c;
  for (int i = 0; i < 4; ++i) c.set(i, rows, 64);
  for (int i = 4; i < 6; ++i) c.set(i, rows, kGroup);
  for (int i = 6; i < 8; ++i) c.set(i, kGroup / 4, 64);
  return c;
}

// Two groups of k of one pair of column tiles, in the order in which a walk comes to them.
struct GroupPair {
  int64_t number, group;  // from 0; the first group
  bool is_whole;          // else the second is past the end of k
};

// The pairs of column tiles of a block times a part's rows.
template <int Kind>
class Walk {
  using T = Tile<Kind>;
  // steps of two groups: (half, column) 00 01 11 10, so that each loads two registers, the first four
  static constexpr int kSteps = 4;
  static constexpr int half_of(int step) { return step / 2; }
  static constexpr int column_of(int step) { return step == 1 || step == 2; }

 public:
  Walk(const LinearBlock& b, int64_t first_row, const Halves& halves, const float* factors)
      : in_stride_(b.in_stride),
        first_row_(first_row),
        halves_(halves),
        in_{b.in + first_row * b.in_stride, b.in + (first_row + halves.second) * b.in_stride},
        factors_(factors),
        groups_(b.segment->weight->k / kGroup) {}
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // take(TilePair&): the next pair of columns, or false.
  template <class Take>
  void run(Take&& take) {
    if (!take(opened_)) return;
    clear();
    open();
    GroupPair now = pair(0, 0);
    unroll<kSteps>([&](auto s) OV_INLINED { expand<s.value>(now); });
    load_operands<0>(now);
    GroupPair before = {-1, 0, false};
    TilePair at = opened_, multiplied = {};
    for (bool has_more = true; has_more;) {
      for (int64_t g = 0; g < groups_; g += 2) {
        ask(g);
        const bool is_last = g + 2 >= groups_;
        if (is_last && (has_more = take(opened_))) open();
        const GroupPair next = is_last ? pair(now.number + 1, 0) : pair(now.number + 1, g + 2);
        const bool has_next = !is_last || has_more;
        unroll<kSteps>([&](auto s) OV_INLINED {
          multiply<s.value, 0>();
          store_before<s.value>(now, before);
          fold_before<s.value>(now, before, [&]() OV_INLINED {
            if (now.is_whole) multiply<s.value, 1>();
            if (s.value + 1 < kSteps || has_next)
              load_operands<(s.value + 1) % kSteps>(s.value + 1 < kSteps ? now : next);
          });
          if (s.value == 1 && g == 0 && multiplied.segment) finish(multiplied);
          if (has_next) expand<s.value>(next);
        });
        before = now;
        now = next;
      }
      multiplied = at;
      at = opened_;
    }
    store_before<0>(now, before);
    fold_before<0>(now, before, [] {});
    fold_before<1>(now, before, [] {});
    finish(multiplied);
  }

 private:
  GroupPair pair(int64_t number, int64_t group) const { return {number, group, group + 1 < groups_}; }

  // `opened_` is expanded from here on.
  void open() {
    const ov_weight& w = *opened_.segment->weight;
    packed_ = tile_codes<Kind>(w, opened_.tile);
    for (int c = 0; c < 2; ++c) reader_[c].open(tile_scales<Kind>(w, opened_.tile) + c * T::kScaleBytes);
    ahead_.emplace(w, opened_.tile, opened_.after);
  }

  OV_ALWAYS_INLINE void ask(int64_t g) {
    ahead_->ask();
    if (g + 1 < groups_) ahead_->ask();
  }

  void clear() {
    for (auto& half : acc_)
      for (auto& column : half)
        for (auto& row : column) store(row, set1(0.0f));
  }

  // A step's share of the codes of both columns, as signed bytes, and of their scales.
  template <int Step>
  OV_ALWAYS_INLINE void expand(const GroupPair& p) {
    unroll<2>([&](auto i) OV_INLINED {
      if (i.value == 1 && !p.is_whole) return;
      constexpr int kQuads = 16 / kSteps, kColumn = Step * kQuads / 8, kFirst = Step * kQuads % 8;
      const int64_t g = p.group + i.value, slot = 2 * p.number + i.value;
      if constexpr (kFirst == 0) {
        const GroupScales s = reader_[kColumn].read(g);
        store(scales_[slot & 7][kColumn][0], s.first);
        if constexpr (T::kMinimum) store(scales_[slot & 7][kColumn][1], s.second);
      }
      const uint8_t* const packed = packed_ + codes_offset<Kind>(g) + 64 * kColumn;
      unroll<kQuads>([&](auto q) OV_INLINED {
        __m512i quad = expand_quad<Kind, kFirst + q.value>(packed).v;
        if constexpr (T::kOffset != 0) quad = _mm512_sub_epi8(quad, _mm512_set1_epi8(static_cast<char>(T::kOffset)));
        _mm512_store_si512(codes_[slot & 3][kColumn][kFirst + q.value], quad);
      });
    });
  }

  // What a step multiplies, as soon as the step before has read the registers.
  template <int Step>
  OV_ALWAYS_INLINE void load_operands(const GroupPair& p) {
    const auto& first = codes_[2 * p.number & 3][column_of(Step)];
    const auto& second = codes_[(2 * p.number + 1) & 3][column_of(Step)];
    const char* const in = in_[half_of(Step)] + kGroup * p.group;
    if constexpr (Step != 2) tile_load<6>(first, 64);
    if constexpr (Step % 2 == 0) tile_load<4>(in, in_stride_);
    if (!p.is_whole) return;
    if constexpr (Step != 2) tile_load<7>(second, 64);
    if constexpr (Step % 2 == 0) tile_load<5>(in + kGroup, in_stride_);
  }

  // Sums of the first or second group.
  template <int Step, int I>
  OV_ALWAYS_INLINE void multiply() {
    constexpr int kSums = 2 * (Step % 2) + I;
    tile_zero<kSums>();
    tile_dot_int8<kSums, 4 + I, 6 + I>();
  }

  // The sums of the step before, out of the registers.
  template <int Step>
  OV_ALWAYS_INLINE void store_before(const GroupPair& now, const GroupPair& before) {
    constexpr int kBefore = (Step + kSteps - 1) % kSteps, kSums = 2 * (kBefore % 2);
    const GroupPair& p = Step == 0 ? before : now;
    if (p.number < 0) return;
    auto& sums = sums_[kBefore];
    tile_store<kSums>(sums[0], 64);
    tile_store<kSums + 1>(sums[1], 64);
  }

  // As fold_group() of linear_int8.cpp, of the step before that; between() after half of it.
  template <int Step, class Between>
  OV_ALWAYS_INLINE void fold_before(const GroupPair& now, const GroupPair& before, Between&& between) {
    constexpr int kBefore = (Step + kSteps - 2) % kSteps, kHalf = half_of(kBefore), kColumn = column_of(kBefore);
    const GroupPair& p = Step < 2 ? before : now;
    if (p.number < 0) return between();
    auto& kept = acc_[kHalf][kColumn];
    const auto& sums = sums_[kBefore];
    Lanes acc[kHalfRows];
    unroll<kHalfRows>([&](auto r) OV_INLINED { acc[r.value] = load(kept[r.value]); });
    unroll<2>([&](auto i) OV_INLINED {
      if (i.value == 1) between();
      if (i.value == 1 && !p.is_whole) return;
      const float* const factors = factors_ + (p.group + i.value) * kFactors + kHalf * kHalfRows;
      const auto& scales = scales_[(2 * p.number + i.value) & 7][kColumn];
      const Lanes scale = load(scales[0]), minimum = load(scales[T::kMinimum]);
      unroll<kHalfRows>([&](auto r) OV_INLINED {
        Lanes& x = acc[r.value];
        x = fma(to_float(load_int(sums[i.value][r.value])), scale * set1(factors[r.value]), x);
        if constexpr (T::kMinimum) x = fma(minimum, set1(factors[kPartRows + r.value]), x);
      });
    });
    unroll<kHalfRows>([&](auto r) OV_INLINED { store(kept[r.value], acc[r.value]); });
  }

  // Stores what has been accumulated for a pair of columns.
  void finish(const TilePair& p) {
    for (int half = 0; half < 2; ++half) {
      const auto rows = [&]<int N>(Index<N>, int64_t i) {
        Lanes sums[N][2];
        unroll<N>([&](auto r) OV_INLINED {
          sums[r.value][0] = load(acc_[half][0][i + r.value]);
          sums[r.value][1] = load(acc_[half][1][i + r.value]);
        });
        store_block(*p.segment, first_row_ + (half ? halves_.second : 0) + i, p.tile, sums);
      };
      // a row of both halves is stored once: it may be added to itself
      int64_t i = half ? halves_.rows - halves_.second : 0;
      for (; i + 4 <= halves_.rows; i += 4) rows(Index<4>{}, i);
      for (; i < halves_.rows; ++i) rows(Index<1>{}, i);
    }
    clear();
  }

  alignas(64) float acc_[2][2][kHalfRows][16];
  alignas(64) int32_t sums_[kSteps][2][kHalfRows][16];  // step, group; until they are folded, two steps later
  alignas(64) uint8_t codes_[4][2][8][64];              // group, column, quad
  alignas(64) float scales_[8][2][2][16];               // group, column: scale, minimum
  const int64_t in_stride_, first_row_;
  const Halves halves_;
  const char* const in_[2];
  const float* const factors_;
  const int64_t groups_;
  const uint8_t* packed_ = nullptr;
  TilePair opened_;
  ScaleReader<Kind> reader_[2];
  std::optional<LinesAhead<T::kRecordBytes / T::kRecordGroups>> ahead_;
};

template <int Kind>
void run(const LinearBlock& b) {
  static thread_local RowFactors factors;
  factors.take(b, a8_layout(b.segment->weight->k));
  int64_t shaped = Halves(b.rows / ceil_div(b.rows, kPartRows)).rows, i = 0;
  TileShapes registers{shapes(shaped)};
  for_row_parts(b.rows, kPartRows, [&](int64_t skipped, int64_t rows) {
    const Halves halves(rows);
    if (halves.rows != shaped) registers.load(shapes(shaped = halves.rows));
    Walk<Kind> walk(b, b.first_row + skipped, halves, factors.part(i));
    ++i;
    if (b.pairs) return walk.run([&](TilePair& pair) { return b.pairs->take(b.pairs->context, &pair); });
    const ov_weight& w = *b.segment->weight;
    walk.run([&, tile = b.first_tile, end = b.first_tile + b.tiles](TilePair& pair) mutable {
      if (tile >= end) return false;
      pair = {b.segment, tile, tile + 2 < end ? next_tiles(w, tile + 2) : b.after};
      tile += 2;
      return true;
    });
  });
}

}  // namespace

bool linear_int8_in_tiles(int kind, int64_t rows) {
  bool takes = false;
  visit_quantized(kind, [&]<int Kind>() { takes = !Block<Kind>::kHalves; });
  return takes && rows / ceil_div(rows, kPartRows) >= kFewestRows;
}

bool linear_int8_takes_pairs(int kind, int64_t rows) { return linear_int8_in_tiles(kind, rows) && rows <= kPartRows; }

void linear_int8_tiles(const LinearBlock& b) {
  visit_quantized(b.segment->weight->kind, [&]<int Kind>() {
    if constexpr (!Block<Kind>::kHalves) run<Kind>(b);
  });
}

}  // namespace ov

#endif
