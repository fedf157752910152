// Softmax weights of a tile of query vectors over one partition, in slices that stand between the tile instructions of
// other tiles' products: the bits of tile_softmax.
//
// Maxima come first, a vector in a slice; then weights, 32 tokens of a vector in a slice, by a value that lives in the
// registers of the products' loop. Knows nothing of: blocks, tile registers, what the products are of.
#pragma once

#include "attention_softmax_steps.h"

#if defined(OV_HAS_TILES)

namespace ov {

// Nothing stands between the tile instructions.
struct NothingBeside {
  OV_ALWAYS_INLINE void operator()() {}
};

template <class Cache>
class SoftmaxSlices {
 public:
  static constexpr int kMaxVectors = kTileVectors;

  class MaximaBeside {
   public:
    explicit MaximaBeside(SoftmaxSlices& slices) : slices_(&slices) {}
    OV_ALWAYS_INLINE void operator()() {
      if (slices_->vector_ < slices_->vectors_) slices_->maximum();
    }

   private:
    SoftmaxSlices* slices_;
  };

  // A copy that no call sees: so it can live in registers.
  class WeightsBeside {
   public:
    explicit WeightsBeside(SoftmaxSlices& slices)
        : slices_(&slices),
          scores_(slices.scores_ - kScoreStride),
          to_log2_(set1(slices.factor_ * WeightFactors::kLog2e)) {}
    OV_ALWAYS_INLINE void operator()() {
      if (step_ == end_) {
        if (vector_ == slices_->vectors_) return;
        open();
        if (step_ == end_) return;
      }
      weight_step<Cache>(scores_, step_, lanes_[step_], *slices_->scales_, {to_log2_, shift_}, sum_, power_, ones_);
      ++step_;
    }

   private:
    friend class SoftmaxSlices;
    bool is_done() const { return step_ == end_ && vector_ == slices_->vectors_; }
    // The next vector; what ends with the first one is no vector's sum.
    OV_ALWAYS_INLINE void open() {
      slices_->sums_[vector_] = sum_;
      const Seen& seen = *slices_->seen_[vector_];
      scores_ += kScoreStride;
      lanes_ = seen.lanes;
      step_ = seen.begin;
      end_ = seen.end;
      // one by one: a load of two that were stored apart would wait for all instructions before it
      asm("" : "+r"(scores_), "+r"(lanes_), "+r"(step_), "+r"(end_));
      shift_ = set1(slices_->shifts_[vector_]);
      sum_ = set1(0.0f);
      ++vector_;
    }

    SoftmaxSlices* slices_;
    float* scores_;
    const uint32_t* lanes_ = nullptr;  // of each step, what is visible
    int64_t vector_ = 0, step_ = 0, end_ = 0;
    Lanes to_log2_, shift_ = {}, sum_ = {};
    // values, so that they are not loaded for every slice
    PowerOfTwo power_;
    Lanes ones_ = ones_of_pairs();
  };

  // Of `tile`, at most kMaxVectors, whose scores over steps [first, last) of the partition at `start` are complete. All
  // that is given by reference stays until the end.
  void begin(const AttentionArgs& a, const QueryRows& tile, int32_t start, float* scores, const Scales& scales,
             int first, int last, const State& result) {
    a_ = &a;
    scales_ = &scales;
    scores_ = scores;
    result_ = result;
    tile_ = &tile;
    start_ = start;
    group_ = a.num_heads / a.layer->shape.num_kv_heads;
    vectors_ = tile.vectors;
    first_ = first;
    last_ = last;
    is_plain_ = has_plain_scores<Cache>(a);
    factor_ = is_plain_ ? a.scale : 1.0f;
    vector_ = row_ = head_ = 0;
    is_ragged_ = false;
  }
  MaximaBeside maxima() { return MaximaBeside(*this); }
  // After the maxima, of which some may be left.
  WeightsBeside weights() {
    while (vector_ < vectors_) maximum();
    const Lanes to_shift = set1(factor_ * -WeightFactors::kLog2e), none = set1(-INFINITY);
    for (int m = 0; m < vectors_; m += kLanes) {
      const Lanes top = load(result_.max + m);
      store(shifts_ + m, select(less_equal(top, none), set1(0.0f), top * to_shift));
      store(result_.max + m, top * set1(factor_));
    }
    if (is_ragged_)
      for (int m = 0; m < vectors_; ++m) no_weights(m, first_, static_cast<int>(seen_[m]->begin));
    return WeightsBeside(*this);
  }
  // After the weights, of which some may be left.
  void finish(WeightsBeside b) {
    while (!b.is_done()) b();
    sums_[vectors_] = b.sum_;
    if (is_ragged_)  // not earlier: these lie where scores did
      for (int m = 0; m < vectors_; ++m) no_weights(m, static_cast<int>(seen_[m]->end), last_);
    for (int m = vectors_; m % kLanes != 0; ++m) sums_[m + 1] = set1(0.0f);
    for (int m = 0; m < vectors_; m += kLanes)
      store(result_.sum + m, combine_rows<kLanes>(sums_ + 1 + m, [](Lanes x, Lanes y) { return x + y; }));
  }

 private:
  // What a query row sees of each step, and the steps in which that is anything.
  struct Seen {
    uint32_t lanes[kPartition / kStepTokens];
    int64_t begin, end;
  };

  __attribute__((noinline)) void maximum() {
    float* const scores = scores_ + int64_t{vector_} * kScoreStride;
    const TileRow row(*a_, tile_->first_position + row_, start_, scores);
    if (head_ == 0) see(row);
    seen_[vector_] = &rows_[row_];
    maxima_[vector_ % kLanes] = tile_row_max<Cache>(*a_, row, *scales_, is_plain_);
    ++vector_;
    if (++head_ == group_) {
      head_ = 0;
      ++row_;
    }
    if (vector_ % kLanes == 0 || vector_ == vectors_) combine_maxima();
  }
  void see(const TileRow& row) {
    // bits [from, to) of a step: a shift by 32 and more leaves none
    const __m256i steps = _mm256_setr_epi32(0, 32, 64, 96, 128, 160, 192, 224), ones = _mm256_set1_epi32(-1);
    const auto bits_from = [&](int32_t token) OV_INLINED {
      const __m256i in_step = _mm256_sub_epi32(_mm256_set1_epi32(token), steps);
      return _mm256_sllv_epi32(ones, _mm256_max_epi32(in_step, _mm256_setzero_si256()));
    };
    Seen& seen = rows_[row_];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(seen.lanes),
                        _mm256_andnot_si256(bits_from(row.to), bits_from(row.from)));
    const int begin = row.begin(), end = row.end();
    seen.begin = begin == end ? first_ : begin;
    seen.end = begin == end ? first_ : end;
    is_ragged_ |= seen.begin != first_ || seen.end != last_;
  }
  void combine_maxima() {
    const int first = (vector_ - 1) / kLanes * kLanes;
    for (int i = vector_ - first; i < kLanes; ++i) maxima_[i] = set1(0.0f);
    store(result_.max + first, combine_rows<kLanes>(maxima_, [](Lanes x, Lanes y) { return max(x, y); }));
  }
  void no_weights(int vector, int first, int last) {
    for (int s = first; s < last; ++s) store_no_weights(scores_ + int64_t{vector} * kScoreStride, s);
  }

  const AttentionArgs* a_ = nullptr;
  const Scales* scales_ = nullptr;
  const QueryRows* tile_ = nullptr;
  float* scores_ = nullptr;
  State result_;
  int32_t start_ = 0;
  int group_ = 1, vectors_ = 0, first_ = 0, last_ = 0;
  float factor_ = 1.0f;
  bool is_plain_ = true, is_ragged_ = false;
  int vector_ = 0, row_ = 0, head_ = 0;  // of the next maximum
  Lanes maxima_[kLanes];                 // of sixteen vectors, which cross the lanes together
  Lanes sums_[kMaxVectors + 1];          // from the second place on
  alignas(64) float shifts_[kMaxVectors];
  const Seen* seen_[kMaxVectors];  // by each vector
  Seen rows_[kTileVectors];
};

}  // namespace ov

#endif
