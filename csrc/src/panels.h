// The panels of a thread: the one that is multiplied with, and the next one, which becomes ready beside the products.
//
// A quad per step of the products, in pieces between the tile instructions. A panel that was made ahead may not be asked
// for, when another thread has taken what it was for. Present where the level has tile registers.
// Knows nothing of: activations, which panel is next.
#pragma once

#include "scratch.h"
#include "tile_panel.h"

#if defined(OV_HAS_TILES)

namespace ov {

// Two column tiles, and what is read after them.
struct PanelColumns {
  PanelColumn first, second;
  NextTiles after;

  bool is_known() const { return first.weight != nullptr; }
};

class Panels {
 public:
  // The panel of some columns, which is used until the next call.
  const char* take(const PanelColumns& c) {
    const Key key(c);
    if (!(key == ahead_)) start(c);
    for (; quad_ != 0; made()) OperandRows().all(group_, quad_, out_);
    while (left_ > 0) {
      read();
      unroll<8>([&](auto q) OV_INLINED { OperandRows().all(group_, q.value, out_ + 128 * q.value); });
      left_ -= 8;
      out_ += kPanelStep;
    }
    ahead_ = Key();
    return panel_;
  }
  // Begins the panel that is to be taken next.
  void start(const PanelColumns& c) {
    current_ ^= 1;
    ahead_ = Key(c);
    second_ = c.second;
    after_ = c.after;
    const int64_t groups = c.first.weight->k / 32;
    panel_ = static_cast<char*>(memory_[current_].take(groups * kPanelStep));
    left_ = 16 * groups;
    second_at_ = 8 * groups;
    quad_ = 0;
    out_ = panel_;
    reader_.open(c.first, next_tiles(*c.second.weight, c.second.tile));
  }
  bool is_done() const { return left_ == 0; }
  // Before the next quad; then it is `quad` of `group`, and goes to `out`.
  OV_ALWAYS_INLINE void open() {
    if (quad_ == 0) read();
  }
  const OperandGroup& group() const { return group_; }
  uint32_t quad() const { return quad_; }
  char* out() const { return out_; }
  OV_ALWAYS_INLINE void made() {
    --left_;
    out_ += 128;
    quad_ = (quad_ + 1) % 8;
    if (quad_ == 0) out_ += kPanelStep - kOperandBytes;
  }

 private:
  // Weights have numbers, as another one may come to lie where one was.
  struct Key {
    uint64_t weights[2] = {};
    int64_t tiles[2] = {};

    Key() = default;
    explicit Key(const PanelColumns& c)
        : weights{c.first.weight->number, c.second.weight->number}, tiles{c.first.tile, c.second.tile} {}
    bool operator==(const Key&) const = default;
  };

  __attribute__((noinline)) void read() {
    if (left_ == second_at_) {
      reader_.open(second_, after_);
      out_ = panel_ + kOperandBytes;
    }
    reader_.read(group_);
  }

  Scratch memory_[2];
  int current_ = 0;    // of the panel that was taken or started last
  uint32_t quad_ = 0;  // of the group at hand
  Key ahead_;
  PanelColumn second_;
  NextTiles after_;
  char *panel_ = nullptr, *out_ = nullptr;
  int64_t left_ = 0, second_at_ = 0;  // quads
  OperandGroup group_;
  AnyGroupReader reader_;
};

// Makes a quad of the next panel between the eight tile instructions of a step.
class PanelAhead {
 public:
  PanelAhead(Panels& panels, const PanelColumns& next) : panels_(panels) {
    if (next.is_known()) panels.start(next);
  }
  template <int Piece>
  OV_ALWAYS_INLINE void beside() {
    if constexpr (Piece == 0) {
      is_busy_ = !panels_.is_done();
      if (is_busy_) panels_.open();
    }
    if (!is_busy_) return;
    rows_.piece<Piece>(panels_.group(), panels_.quad(), panels_.out());
    rows_.pin<Piece>();
    if constexpr (Piece == 7) panels_.made();
  }

 private:
  Panels& panels_;
  OperandRows rows_;
  bool is_busy_ = false;
};

}  // namespace ov

#endif
