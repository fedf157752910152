// BF16 weights, and quantised ones for prompt tokens, times bf16 activations in the tile registers of AMX, accumulated
// in f32.
//
// A packed group of 16 pairs of k is a B operand as it lies, 32 values of a prepared row are a row of an A operand.
// Quantised tiles are made into such operands first (tile_panel.h), two column tiles at a time for all rows of a block.
// The arithmetic of an output is that of the instruction over k in steps of 32, whatever rows share the registers.
#include "act_lanes.h"
#include "linear_block.h"
#include "panels.h"
#include "scratch.h"
#include "tile_pace.h"
#include "tile_stores.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

namespace {

// Shapes of the registers follow the rows of a part.
class Registers {
 public:
  // For a part of so many rows.
  OV_ALWAYS_INLINE void shape(int64_t rows) {
    if (rows != shaped_) registers_.load(two_by_two(shaped_ = rows));
  }

 private:
  int64_t shaped_ = kPartRows;
  TileShapes registers_{two_by_two(kPartRows)};
};

// Operands of two column tiles: `column` bytes from one to the other, `step` from 32 values of k to the next.
struct Operands {
  const char* data;
  int64_t column, step, steps;
};

// Operands that lie in memory as they are read: asks for those of the next two column tiles, some lines per step.
class OperandsAhead {
 public:
  OperandsAhead() = default;
  OperandsAhead(const char* first, const char* second, int64_t steps, int64_t parts)
      : next_{first, second}, left_(steps * kOperandBytes / 64), lines_(ceil_div(kOperandBytes / 64, parts)) {}
  OV_ALWAYS_INLINE void ask() {
    for (int64_t i = 0; i < lines_ && left_ > 0; ++i, --left_)
      for (const char*& p : next_) {
        __builtin_prefetch(p, 0, 2);
        p += 64;
      }
  }

 private:
  const char* next_[2] = {};
  int64_t left_ = 0, lines_ = 0;
};

// Of operands that many rows read, so many steps stay in the first-level cache; the rest and all activations, which are
// more than it holds, pass by.
constexpr int64_t kNearSteps = 18;

template <int Tile>
OV_ALWAYS_INLINE void load_operand(const char* p, bool stays) {
  stays ? tile_load<Tile>(p, 64) : tile_load_once<Tile>(p, 64);
}

// A tile's rows, into the first-level cache.
OV_ALWAYS_INLINE void fetch_tile(const char* p, int64_t stride) {
  for (int64_t i = 0; i < kRegisterRows; ++i) __builtin_prefetch(p + i * stride);
}

// Two row tiles x two column tiles over all of k. A register is loaded for the next step right after the last product
// that reads it: its load waits for that product, and the products meanwhile have theirs.
// beside(Index<0>{}) ... beside(Index<7>{}): once per step, one before each tile instruction.
// IsSlow: what the step after the next reads is asked for, as nothing hides how long a load takes (tile_pace.h).
template <bool IsSlow, class Beside>
OV_ALWAYS_INLINE void multiply_four(const char* in, int64_t in_stride, const Operands& weights, const Sums& sums,
                                    Beside&& beside) {
  const char* second = in + sums.half * in_stride;
  const char* operand = weights.data;
  unroll<4>([&](auto i) OV_INLINED { tile_zero<i.value>(); });
  tile_load_once<4>(in, in_stride);
  tile_load<6>(operand, 64);
  tile_load<7>(operand + weights.column, 64);
  tile_load_once<5>(second, in_stride);
  for (int64_t i = 1; i < weights.steps; ++i) {
    in += 64;
    second += 64;
    operand += weights.step;
    const bool stays = IsSlow || i < kNearSteps;
    beside(Index<0>{});
    tile_dot_bf16<0, 4, 6>();
    beside(Index<1>{});
    if constexpr (IsSlow) fetch_tile(in + 64, in_stride);
    tile_dot_bf16<1, 4, 7>();
    beside(Index<2>{});
    IsSlow ? tile_load<4>(in, in_stride) : tile_load_once<4>(in, in_stride);
    beside(Index<3>{});
    if constexpr (IsSlow) fetch_tile(second + 64, in_stride);
    tile_dot_bf16<2, 5, 6>();
    beside(Index<4>{});
    load_operand<6>(operand, stays);
    beside(Index<5>{});
    if constexpr (IsSlow) fetch_tile(operand + weights.step, 64);
    tile_dot_bf16<3, 5, 7>();
    beside(Index<6>{});
    load_operand<7>(operand + weights.column, stays);
    beside(Index<7>{});
    if constexpr (IsSlow) fetch_tile(operand + weights.column + weights.step, 64);
    IsSlow ? tile_load<5>(second, in_stride) : tile_load_once<5>(second, in_stride);
  }
  tile_dot_bf16<0, 4, 6>();
  tile_dot_bf16<1, 4, 7>();
  tile_dot_bf16<2, 5, 6>();
  tile_dot_bf16<3, 5, 7>();
  tile_store<0>(sums.data, sums.stride);
  tile_store<1>(sums.data + 64, sums.stride);
  char* const below = sums.data + sums.half * sums.stride;
  tile_store<2>(below, sums.stride);
  tile_store<3>(below + 64, sums.stride);
}

// One row tile. ask(): asks memory for the operands some steps ahead.
template <class Ask>
OV_ALWAYS_INLINE void multiply_two(const char* in, int64_t in_stride, const Operands& weights, const Sums& sums,
                                   Ask&& ask) {
  const char* operand = weights.data;
  unroll<2>([&](auto i) OV_INLINED { tile_zero<i.value>(); });
  for (int64_t i = 0; i < weights.steps; ++i, operand += weights.step) {
    ask();
    tile_load<4>(in + 64 * i, in_stride);
    tile_load<6>(operand, 64);
    tile_dot_bf16<0, 4, 6>();
    tile_load<7>(operand + weights.column, 64);
    tile_dot_bf16<1, 4, 7>();
  }
  tile_store<0>(sums.data, sums.stride);
  tile_store<1>(sums.data + 64, sums.stride);
}

// The column tiles of a block, two at a time: neighbours of one weight, or the same tile of a gate and of what it is for.
struct Units {
  const LinearBlock& b;
  const int64_t tiles_of_unit;

  explicit Units(const LinearBlock& block) : b(block), tiles_of_unit(block.gate ? 1 : 2) {}
  int64_t count() const { return ceil_div(b.tiles, tiles_of_unit); }
  int64_t tile(int64_t unit) const { return b.first_tile + unit * tiles_of_unit; }
  PanelColumn first(int64_t unit) const { return {b.segment->weight, tile(unit)}; }
  PanelColumn second(int64_t unit) const { return second_of(*b.segment, tile(unit)); }
  NextTiles after(int64_t unit) const {
    if (unit + 1 == count()) return b.after;
    const PanelColumn next = first(unit + 1);
    return next_tiles(*next.weight, next.tile);
  }
  PanelColumns columns(int64_t unit) const { return columns_of(*b.segment, tile(unit)); }
  // Those of the next unit, also where it is the next block's.
  PanelColumns columns_after(int64_t unit) const {
    if (unit + 1 < count()) return columns(unit + 1);
    return b.next ? columns_of(*b.next, b.next_tile) : PanelColumns();
  }

 private:
  // past the weight's last tile it is read again, and not stored
  PanelColumn second_of(const LinearSegment& s, int64_t tile) const {
    if (b.gate) return {b.gate->up->weight, tile};
    return {s.weight, tile + 1 < s.weight->num_tiles ? tile + 1 : tile};
  }
  PanelColumns columns_of(const LinearSegment& s, int64_t tile) const {
    const int64_t then = tile + tiles_of_unit;
    return {{s.weight, tile}, second_of(s, tile), then < s.weight->num_tiles ? next_tiles(*s.weight, then) : b.after};
  }
};

// The parts of a unit's rows that this thread multiplies: kPartRows each, the last one the rest.
class Parts {
 public:
  Parts(const LinearBlock& b, int64_t tile, const char* operands)
      : b_(b), unit_{&b, tile, operands}, count_(ceil_div(b.rows, kPartRows)), claims_(b.taken != nullptr) {}
  // f(first row of the block, rows)
  template <class F>
  OV_ALWAYS_INLINE void each(F&& f) {
    for (int64_t part = b_.first_part; part >= 0 && part < count_;) {
      if (!claims_ && b_.shared && b_.shared->is_wanted()) {
        b_.shared->offer(unit_, part + 1, count_);
        claims_ = true;
      }
      const int64_t first = part * kPartRows, left = b_.rows - first;
      f(first, left < kPartRows ? left : kPartRows);
      ++made_;
      part = claims_ ? b_.shared->claim() : part + 1;
    }
  }
  int64_t made() const { return made_; }
  // The operands are needed no longer.
  void close() const {
    if (claims_ && !b_.taken) b_.shared->wait(count_ - made_);
  }

 private:
  const LinearBlock& b_;
  const SharedUnit unit_;
  const int64_t count_;
  int64_t made_ = 0;
  bool claims_;
};

// f(std::bool_constant)
template <class F>
OV_ALWAYS_INLINE void with_pace(bool is_slow, F&& f) {
  is_slow ? f(std::true_type()) : f(std::false_type());
}

// A block's rows times the operands of a unit, those parts that this thread gets; returns their number. beside and
// few(in, sums): as those of many and of few rows.
template <class Store, class Beside, class Few>
OV_ALWAYS_INLINE int64_t multiply_rows(const LinearBlock& b, int64_t tile, const Operands& operands,
                                       Registers& registers, Store& store, Beside&& beside, Few&& few) {
  const int64_t products = 4 * operands.steps;
  const TilePace::Measured measured(products * (b.rows / kPartRows));
  Parts parts(b, tile, operands.data);
  // a gate's activation keeps the core busy enough
  with_pace(!b.gate && TilePace::is_slow(), [&](auto is_slow) OV_INLINED {
    parts.each([&](int64_t skipped, int64_t rows) OV_INLINED {
      registers.shape(rows);
      const int64_t row = b.first_row + skipped;
      const char* const in = b.in + row * b.in_stride;
      const Sums sums = store.begin(tile, row, rows);
      if (rows > kRegisterRows)
        multiply_four<decltype(is_slow)::value>(in, b.in_stride, operands, sums, [&](auto piece) OV_INLINED {
          store.template beside<piece.value>();
          beside(piece);
        });
      else
        few(in, sums);
      store.end();
    });
  });
  measured.done(products * parts.made());
  parts.close();
  return parts.made();
}

Panels& panels_of_thread() {
  static thread_local Panels panels;
  Panels* found = &panels;
  asm("" : "+r"(found));  // else its address is looked up at every use
  return *found;
}

// The store is a copy, and no call sees it: so it can live in registers.
template <class Store>
void expanded_units(const LinearBlock& b, Store store) {
  Panels& panels = panels_of_thread();
  const Units units(b);
  Registers registers;
  int64_t made = 0;
  for (int64_t u = 0; u < units.count(); ++u) {
    const Operands operands = {b.taken ? b.taken->operands : panels.take(units.columns(u)), kOperandBytes, kPanelStep,
                               b.segment->weight->k / 32};
    PanelAhead next(panels, b.taken ? PanelColumns() : units.columns_after(u));
    const auto few = [&](const char* in, const Sums& sums)
                         OV_INLINED { multiply_two(in, b.in_stride, operands, sums, [] {}); };
    made += multiply_rows(
        b, units.tile(u), operands, registers, store, [&](auto piece) OV_INLINED { next.beside<piece.value>(); }, few);
  }
  store.flush();
  if (b.taken) b.shared->done(made);
}

template <class Store>
void packed_units(const LinearBlock& b, Store store) {
  const Units units(b);
  const int64_t steps = ceil_div(b.segment->weight->k, 32), parts = ceil_div(b.rows, kPartRows);
  const auto place = [](const PanelColumn& c) { return reinterpret_cast<const char*>(float_tile(*c.weight, c.tile)); };
  Registers registers;
  int64_t made = 0;
  for (int64_t u = 0; u < units.count(); ++u) {
    const PanelColumn first = units.first(u), second = units.second(u);
    const Operands operands = {place(first), place(second) - place(first), kOperandBytes, steps};
    OperandsAhead next;
    if (u + 1 < units.count()) next = {place(units.first(u + 1)), place(units.second(u + 1)), steps, parts};
    const NextTiles after = units.after(u);
    const auto beside = [&](auto piece) OV_INLINED {
      if constexpr (piece.value == 6) next.ask();
    };
    const auto few = [&](const char* in, const Sums& sums) OV_INLINED {
      // few rows: weights come from memory
      const NextTiles beside{after.data ? after.data + operands.column : nullptr, after.bytes};
      LinesAhead<kOperandBytes> one(*first.weight, first.tile, after);
      LinesAhead<kOperandBytes> other(*second.weight, second.tile, beside);
      multiply_two(in, b.in_stride, operands, sums, [&]() OV_INLINED {
        one.ask();
        other.ask();
      });
    };
    made += multiply_rows(b, units.tile(u), operands, registers, store, beside, few);
  }
  store.flush();
  if (b.taken) b.shared->done(made);
}

// run(store) with the store that the block needs.
template <class Run>
void with_store(const LinearBlock& b, Run&& run) {
  const LinearSegment& s = *b.segment;
  static thread_local Scratch sums;
  if (b.gate && b.gate->act == Act::kSilu)
    run(DeferredStore<GatedRows<SiluPair>>({s, *b.gate->up, b.gate->out, {}}, sums));
  else if (b.gate)
    with_act(b.gate->act, [&](auto f) {
      using Pair = ActPair<decltype(f)>;
      run(DeferredStore<GatedRows<Pair>>({s, *b.gate->up, b.gate->out, Pair(f)}, sums));
    });
  else if (!s.bias && !s.residual && b.tiles % 2 == 0 && (b.first_tile + b.tiles) * kTileColumns <= s.weight->n)
    run(DirectStore(s));
  else
    run(DeferredStore<AddedRows>(AddedRows(s), sums));
}

}  // namespace

void linear_bf16_tiles(const LinearBlock& b) {
  with_store(b, [&](const auto& store) { packed_units(b, store); });
}

void linear_expanded_tiles(const LinearBlock& b) {
  with_store(b, [&](const auto& store) { expanded_units(b, store); });
}

bool linear_shares_rows(int kind, bool is_prompt, int64_t rows) {
  return (kind == OV_BF16 || (is_prompt && kind != OV_F32)) && rows > 2 * kPartRows;
}

bool linear_take_rows(SharedRows& shared) {
  const int64_t part = shared.claim();
  if (part < 0) return false;
  const SharedUnit& unit = shared.unit();
  LinearBlock b = *unit.block;
  b.first_tile = unit.tile;
  b.tiles = b.gate ? 1 : 2;
  b.shared = &shared;
  b.taken = &unit;
  b.first_part = part;
  b.segment->weight->kind == OV_BF16 ? linear_bf16_tiles(b) : linear_expanded_tiles(b);
  return true;
}

}  // namespace ov

#endif
