// What becomes of the sums of a part: up to 32 rows x 32 columns of f32 from four tile registers.
//
// A store has
//   begin(tile, row, rows)  a part begins; returns where its sums go
//   beside()                called once per step of a part: a slice of what is left of the part before
//   end()                   the sums have been stored
//   flush()                 finishes the last part
// Tile products leave the vector units idle; but what stands between two products makes them wait.
// Present where the level has tile registers. Knows nothing of: operands, threads.
#pragma once

#include "linear_block.h"
#include "tiles.h"

#if defined(OV_HAS_TILES)

namespace ov {

inline constexpr int64_t kPartRows = 32, kPartColumns = 32;

// Where sums go: rows of `stride` bytes; the second row tile starts `half` rows below the first.
struct Sums {
  char* data;
  int64_t stride, half;
};

// Asks for a row of output, which other threads may have had, before it is written.
OV_ALWAYS_INLINE void ask_to_write(char* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) asm volatile("prefetchw %0" ::"m"(p[i]));
}

// Whole columns, nothing to add.
class DirectStore {
 public:
  explicit DirectStore(const LinearSegment& s) : s_(s) {}
  OV_ALWAYS_INLINE Sums begin(int64_t tile, int64_t row, int64_t rows) {
    asked_ = reinterpret_cast<char*>(s_.out + tile * kTileColumns) + row * s_.out_stride;
    left_ = rows;
    return {asked_, s_.out_stride, (rows + 1) / 2};
  }
  OV_ALWAYS_INLINE void beside() {
    for (int i = 0; i < 2 && left_ > 0; ++i, --left_, asked_ += s_.out_stride) ask_to_write(asked_, 4 * kPartColumns);
  }
  OV_ALWAYS_INLINE void end() {}
  void flush() {}

 private:
  const LinearSegment& s_;
  char* asked_ = nullptr;
  int64_t left_ = 0;
};

// Two buffers of sums, used in turn; `Rows` makes rows of output of one, in slices, while the products of the next part
// fill the other.
template <class Rows>
class DeferredStore {
 public:
  explicit DeferredStore(const Rows& rows) : rows_(rows) {}
  OV_ALWAYS_INLINE Sums begin(int64_t tile, int64_t row, int64_t rows) {
    now_ = {tile, row, rows};
    asked_ = 0;
    return {sums_[current_], 4 * kPartColumns, (rows + 1) / 2};
  }
  OV_ALWAYS_INLINE void beside() {
    for (int i = 0; i < 2; ++i) {
      if (asked_ < now_.rows) rows_.ask(now_.tile, now_.row + asked_++);
      if (made_ < before_.rows) make();
    }
  }
  OV_ALWAYS_INLINE void end() {
    while (made_ < before_.rows) make();
    before_ = now_;
    made_ = 0;
    current_ ^= 1;
  }
  void flush() {
    now_ = {};
    end();
  }

 private:
  struct Part {
    int64_t tile = 0, row = 0, rows = 0;
  };

  OV_ALWAYS_INLINE void make() {
    rows_.make(before_.tile, before_.row + made_,
               reinterpret_cast<const float*>(sums_[current_ ^ 1] + made_ * 4 * kPartColumns));
    ++made_;
  }

  alignas(64) char sums_[2][kPartRows * 4 * kPartColumns];
  Rows rows_;
  Part now_, before_;
  int64_t asked_ = 0, made_ = 0;
  int current_ = 0;
};

// Two column tiles + bias + residual, as far as there are columns.
class AddedRows {
 public:
  explicit AddedRows(const LinearSegment& s) : s_(s) {}
  OV_ALWAYS_INLINE void ask(int64_t tile, int64_t row) const {
    ask_to_write(reinterpret_cast<char*>(s_.out + tile * kTileColumns) + row * s_.out_stride, 4 * kPartColumns);
    if (!s_.residual || s_.residual == s_.out) return;
    const float* const residual = at(s_.residual, row * s_.residual_stride) + tile * kTileColumns;
    __builtin_prefetch(residual);
    __builtin_prefetch(residual + kLanes);
  }
  OV_ALWAYS_INLINE void make(int64_t tile, int64_t row, const float* sums) const {
    for (int64_t first = tile * kTileColumns; first < (tile + 2) * kTileColumns; first += kLanes, sums += kLanes) {
      const int64_t left = s_.weight->n - first;
      if (left <= 0) return;
      const int count = static_cast<int>(left < kLanes ? left : kLanes);
      Lanes x = load(sums);
      if (s_.bias) x = x + load_part(s_.bias + first, count);
      if (s_.residual) x = x + load_part(at(s_.residual, row * s_.residual_stride) + first, count);
      store_part(at(s_.out, row * s_.out_stride) + first, x, count);
    }
  }

 private:
  template <class T>
  static T* at(T* p, int64_t bytes) {
    return p + bytes / 4;
  }
  const LinearSegment& s_;
};

// A column tile of a gate and the same one of what it is for: f(gate) * up, as bf16.
template <class F>
class GatedRows {
 public:
  GatedRows(const LinearSegment& gate, const LinearSegment& up, const View& out, F f)
      : gate_(gate.bias), up_(up.bias), out_(out), f_(f) {}
  OV_ALWAYS_INLINE void ask(int64_t tile, int64_t row) const { ask_to_write(place(tile, row), 2 * kTileColumns); }
  OV_ALWAYS_INLINE void make(int64_t tile, int64_t row, const float* sums) const {
    Lanes gate = load(sums), up = load(sums + kLanes);
    if (gate_) gate = gate + load(gate_ + tile * kTileColumns);
    if (up_) up = up + load(up_ + tile * kTileColumns);
    store_bf16(reinterpret_cast<uint16_t*>(place(tile, row)), f_(gate) * up);
  }

 private:
  OV_ALWAYS_INLINE char* place(int64_t tile, int64_t row) const {
    return static_cast<char*>(out_.row(row)) + 2 * kTileColumns * tile;
  }
  const float *gate_, *up_;
  View out_;
  F f_;
};

}  // namespace ov

#endif
