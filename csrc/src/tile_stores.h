// What becomes of the sums of a part: up to 32 rows x 32 columns of f32 from four tile registers.
//
// A store has
//   begin(tile, row, rows)  a part begins; returns where its sums go
//   beside<0> ... <7>()     once per step of a part, one before each tile instruction: a slice of what is left of the part before
//   end()                   the sums have been stored
//   flush()                 finishes the last part
// A few vector instructions between two tile instructions cost little. Where another hyperthread shares the core, tile
// instructions even take less time so; but a long chain in one place fills what they would wait in.
// Present where the level has tile registers. Knows nothing of: operands, threads.
#pragma once

#include "linear_block.h"
#include "scratch.h"
#include "tiles.h"
#include "vmath.h"

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
  template <int Piece>
  OV_ALWAYS_INLINE void beside() {
    if constexpr (Piece % 4 == 0) {
      if (left_ == 0) return;
      ask_to_write(asked_, 4 * kPartColumns);
      --left_;
      asked_ += s_.out_stride;
    }
  }
  OV_ALWAYS_INLINE void end() {}
  void flush() {}

 private:
  const LinearSegment& s_;
  char* asked_ = nullptr;
  int64_t left_ = 0;
};

// Two buffers of sums, used in turn; `Rows` makes two rows of output of one in the eight pieces of a step, while the
// products of the next part fill the other.
template <class Rows>
class DeferredStore {
 public:
  DeferredStore(const Rows& rows, Scratch& sums) : sums_(static_cast<char*>(sums.take(2 * kSumsBytes))), rows_(rows) {}
  OV_ALWAYS_INLINE Sums begin(int64_t tile, int64_t row, int64_t rows) {
    now_ = {tile, row, rows};
    asked_ = 0;
    return {sums_ + current_ * kSumsBytes, 4 * kPartColumns, (rows + 1) / 2};
  }
  template <int Piece>
  OV_ALWAYS_INLINE void beside() {
    if constexpr (Piece % 4 == 0)
      if (asked_ < now_.rows) rows_.ask(now_.tile, now_.row + asked_++);
    if constexpr (Piece == 0) is_busy_ = made_ < before_.rows;
    if (is_busy_) piece<Piece>();
  }
  OV_ALWAYS_INLINE void end() {
    while (made_ < before_.rows) unroll<8>([&](auto i) OV_INLINED { piece<i.value>(); });
    before_ = now_;
    made_ = 0;
    current_ ^= 1;
  }
  void flush() {
    now_ = {};
    end();
  }

 private:
  static constexpr int64_t kSumsBytes = kPartRows * 4 * kPartColumns;
  struct Part {
    int64_t tile = 0, row = 0, rows = 0;
  };

  template <int Piece>
  OV_ALWAYS_INLINE void piece() {
    const char* const sums = sums_ + (current_ ^ 1) * kSumsBytes + made_ * 4 * kPartColumns;
    rows_.template piece<Piece>(before_.tile, before_.row + made_, before_.rows - made_ > 1,
                                reinterpret_cast<const float*>(sums));
    if constexpr (Piece == 7) made_ += 2;
  }

  char* const sums_;
  Rows rows_;
  Part now_, before_;
  int64_t asked_ = 0, made_ = 0;
  int current_ = 0;
  bool is_busy_ = false;
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
  template <int Piece>
  OV_ALWAYS_INLINE void piece(int64_t tile, int64_t row, bool are_two, const float* sums) const {
    if constexpr (Piece == 2) make(tile, row, sums);
    if constexpr (Piece == 6)
      if (are_two) make(tile, row + 1, sums + kPartColumns);
  }

 private:
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
  template <class T>
  static T* at(T* p, int64_t bytes) {
    return p + bytes / 4;
  }
  const LinearSegment& s_;
};

// f of two vectors.
template <class F>
class ActPair {
 public:
  explicit ActPair(F f) : f_(f) {}
  template <int Piece>
  OV_ALWAYS_INLINE void piece(Lanes (&x)[2]) {
    if constexpr (Piece == 2) x[0] = f_(x[0]);
    if constexpr (Piece == 6) x[1] = f_(x[1]);
  }

 private:
  F f_;
};

// The bits of silu.
class SiluPair {
 public:
  template <int Piece>
  OV_ALWAYS_INLINE void piece(Lanes (&x)[2]) {
    for (int i = 0; i < 2; ++i) {
      ExpPieces& e = exp_[i];
      if constexpr (Piece == 0) e.clamp(set1(0.0f) - x[i]);
      if constexpr (Piece == 1) e.round();
      if constexpr (Piece == 2) e.reduce();
      if constexpr (Piece == 3) e.low();
      if constexpr (Piece == 4) e.high();
      if constexpr (Piece == 5) e.p = set1(1.0f) + e.end();
      if constexpr (Piece == 6) x[i] = x[i] / e.p;
    }
    // computed here, before what is written after it
    if constexpr (Piece == 0) asm volatile("" : "+v"(exp_[0].clamped.v), "+v"(exp_[1].clamped.v));
    if constexpr (Piece == 1) asm volatile("" : "+v"(exp_[0].n.v), "+v"(exp_[1].n.v));
    if constexpr (Piece == 2) asm volatile("" : "+v"(exp_[0].r.v), "+v"(exp_[1].r.v));
    if constexpr (Piece >= 3 && Piece < 6) asm volatile("" : "+v"(exp_[0].p.v), "+v"(exp_[1].p.v));
    if constexpr (Piece == 6) asm volatile("" : "+v"(x[0].v), "+v"(x[1].v));
  }

 private:
  ExpPieces exp_[2] = {};
};

// A column tile of a gate and the same one of what it is for: f(gate) * up, as bf16.
template <class Pair>
class GatedRows {
 public:
  GatedRows(const LinearSegment& gate, const LinearSegment& up, const View& out, const Pair& f)
      : gate_(gate.bias), up_(up.bias), out_(static_cast<char*>(out.row(0))), stride_(out.stride), f_(f) {}
  OV_ALWAYS_INLINE void ask(int64_t tile, int64_t row) const { ask_to_write(place(tile, row), 2 * kTileColumns); }
  template <int Piece>
  OV_ALWAYS_INLINE void piece(int64_t tile, int64_t row, bool are_two, const float* sums) {
    if constexpr (Piece == 0) {
      for (int i = 0; i < 2; ++i) {
        x_[i] = load(sums + i * kPartColumns);
        if (gate_) x_[i] = x_[i] + load(gate_ + tile * kTileColumns);
      }
    }
    f_.template piece<Piece>(x_);
    if constexpr (Piece == 7) {
      for (int i = 0; i < 2; ++i) {
        Lanes up = load(sums + i * kPartColumns + kLanes);
        if (up_) up = up + load(up_ + tile * kTileColumns);
        x_[i] = x_[i] * up;
      }
      // to nearest even; what is below 2^-126 becomes the zero as which products take it
      const __m512i rows = (__m512i)_mm512_cvtne2ps_pbh(x_[1].v, x_[0].v);
      char* const to = place(tile, row);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(rows));
      if (are_two) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + stride_), _mm512_extracti64x4_epi64(rows, 1));
    }
  }

 private:
  OV_ALWAYS_INLINE char* place(int64_t tile, int64_t row) const {
    return out_ + row * stride_ + 2 * kTileColumns * tile;
  }
  const float *gate_, *up_;
  char* out_;
  int64_t stride_;
  Pair f_;
  Lanes x_[2] = {};
};

}  // namespace ov

#endif
