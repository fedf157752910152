// One partition of attention for few query vectors, as a decoding request has them, in vector registers: the bits of
// attention_tiles.h, which would copy V and wait for its registers.
//
// tile_dot_bf16 takes 32 values of k at a time: one chain of fused multiply-adds over the first values of its pairs, one
// over the second ones, their sum is added to what was there; subnormal values are zeros. So do these kernels, with K, V,
// queries and weights as f32, which bf16 and codes are exactly. Knows nothing of: tasks, threads.
#pragma once

#include "attention_ahead.h"
#include "attention_softmax_steps.h"
#include "attention_sub_blocks.h"

#if defined(OV_HAS_TILES)

namespace ov {

// Subnormal operands and results of a scope are zeros.
class NoSubnormals {
 public:
  NoSubnormals() : before_(_mm_getcsr()) { set(before_ | kFlushToZero | kDenormalsAreZeros); }
  NoSubnormals(const NoSubnormals&) = delete;
  NoSubnormals& operator=(const NoSubnormals&) = delete;
  ~NoSubnormals() { set(before_); }

 private:
  // The compiler knows nothing of this register: what is computed from memory, and stored, may not pass it.
  static void set(unsigned mode) {
    asm volatile("" ::: "memory");
    _mm_setcsr(mode);
    asm volatile("" ::: "memory");
  }
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZeros = 0x0040;
  unsigned before_;
};

// The first and the second values of sixteen pairs.
struct PairLanes {
  Lanes first, second;
};

OV_ALWAYS_INLINE PairLanes halves_of(__m512i pairs) {
  asm("" : "+v"(pairs));  // else the compiler loads the line twice
  return {Lanes{_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))},
          Lanes{_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))}};
}

// Of one sub-block: dims (2 i, 2 i + 1) of K of its sixteen tokens; tokens (2 i, 2 i + 1) of V in sixteen dims from d on.
template <class Cache>
struct PairsOf {
  static constexpr int64_t kBytes = Cache::kHasScales ? 1 : 2;  // of a value
  static OV_ALWAYS_INLINE PairLanes k(const char* sub, int i) {
    if constexpr (Cache::kHasScales)
      return {Cache::load_codes(sub + 2 * i * kSubBlock), Cache::load_codes(sub + (2 * i + 1) * kSubBlock)};
    else
      return halves_of(_mm512_loadu_si512(sub + 64 * i));
  }
  static OV_ALWAYS_INLINE PairLanes v(const char* sub, int64_t v_dim, int i, int d) {
    if constexpr (Cache::kHasScales)
      return {Cache::load_codes(sub + 2 * i * v_dim + d), Cache::load_codes(sub + (2 * i + 1) * v_dim + d)};
    else
      return halves_of(_mm512_loadu_si512(sub + 4 * (i * v_dim + d)));
  }
};

inline constexpr int kQueryStride = 512;  // of queries as f32; no more dims

// Sub-blocks that are read, and for each one that is asked for meanwhile.
struct ReadSubs {
  const char* read[2];
  const char* ahead[2];
};

// out[g][16 n ..] = q[g] . K of sub-block n, for `Vectors` queries and `Subs` sub-blocks.
template <class Cache, int Vectors, int Subs>
OV_ALWAYS_INLINE void few_scores(const float* q, int dims, const ReadSubs& k, float* out) {
  using Pairs = PairsOf<Cache>;
  Lanes total[Vectors][Subs];
  unroll<Vectors>([&](auto g)
                      OV_INLINED { unroll<Subs>([&](auto n) OV_INLINED { total[g.value][n.value] = set1(0.0f); }); });
  for (int d = 0; d < dims; d += kStepTokens) {
    Lanes first[Vectors][Subs], second[Vectors][Subs];
    unroll<Vectors>([&](auto g) OV_INLINED {
      unroll<Subs>([&](auto n) OV_INLINED { first[g.value][n.value] = second[g.value][n.value] = set1(0.0f); });
    });
    for (int i = d / 2; i < d / 2 + kStepTokens / 2; ++i) {
      PairLanes key[Subs];
      unroll<Subs>([&](auto n) OV_INLINED {
        key[n.value] = Pairs::k(k.read[n.value], i);
        if (Pairs::kBytes == 2 || i % 2 == 0) ask_for(k.ahead[n.value] + Pairs::kBytes * 32 * i);
      });
      unroll<Vectors>([&](auto g) OV_INLINED {
        const Lanes a = set1(q[g.value * kQueryStride + 2 * i]), b = set1(q[g.value * kQueryStride + 2 * i + 1]);
        unroll<Subs>([&](auto n) OV_INLINED {
          first[g.value][n.value] = fma(a, key[n.value].first, first[g.value][n.value]);
          second[g.value][n.value] = fma(b, key[n.value].second, second[g.value][n.value]);
        });
      });
    }
    unroll<Vectors>([&](auto g) OV_INLINED {
      unroll<Subs>([&](auto n) OV_INLINED {
        total[g.value][n.value] = total[g.value][n.value] + (first[g.value][n.value] + second[g.value][n.value]);
      });
    });
  }
  unroll<Vectors>([&](auto g) OV_INLINED {
    unroll<Subs>(
        [&](auto n) OV_INLINED { store(out + g.value * kScoreStride + n.value * kSubBlock, total[g.value][n.value]); });
  });
}

// A step over V: up to 32 tokens of two sub-blocks, of which the first `valid` slots hold tokens.
struct ValueStep {
  ReadSubs v;
  int valid;  // of both
};

// out[g][d ..] += weights[g] x V of a step, in `Groups` x 16 dims. weights: [g][kPartition], from the step on.
template <class Cache, int Vectors, int Groups>
OV_ALWAYS_INLINE void few_values(const float* weights, const ValueStep& step, int64_t v_dim, int d, float* out,
                                 int64_t out_stride) {
  using Pairs = PairsOf<Cache>;
  Lanes first[Vectors][Groups], second[Vectors][Groups];
  unroll<Vectors>([&](auto g) OV_INLINED {
    unroll<Groups>([&](auto n) OV_INLINED { first[g.value][n.value] = second[g.value][n.value] = set1(0.0f); });
  });
  for (int sub = 0; sub < 2; ++sub) {
    const char *const v = step.v.read[sub], *const ahead = step.v.ahead[sub];
    const int left = step.valid - sub * kSubBlock, slots = left < kSubBlock ? left : kSubBlock;
    if (!v) continue;
    const float* const w = weights + sub * kSubBlock;
    const auto pair = [&](int i, auto both) OV_INLINED {
      unroll<Groups>([&](auto n) OV_INLINED {
        const PairLanes value = Pairs::v(v, v_dim, i, d + n.value * kLanes);
        if (Pairs::kBytes == 2 || n.value % 2 == 0)
          ask_for(ahead + 2 * Pairs::kBytes * (i * v_dim + d + n.value * kLanes));
        unroll<Vectors>([&](auto g) OV_INLINED {
          first[g.value][n.value] = fma(set1(w[g.value * kPartition + 2 * i]), value.first, first[g.value][n.value]);
          if constexpr (decltype(both)::value)
            second[g.value][n.value] =
                fma(set1(w[g.value * kPartition + 2 * i + 1]), value.second, second[g.value][n.value]);
        });
      });
    };
    int i = 0;
    for (; i < slots / 2; ++i) pair(i, std::true_type());
    if (slots > 0 && slots % 2 == 1) pair(i, std::false_type());  // the other slot holds anything, also NaN
  }
  unroll<Vectors>([&](auto g) OV_INLINED {
    unroll<Groups>([&](auto n) OV_INLINED {
      float* const p = out + g.value * out_stride + d + n.value * kLanes;
      store(p, load(p) + (first[g.value][n.value] + second[g.value][n.value]));
    });
  });
}

// f(std::integral_constant) for 1 to kFewVectors.
template <class F>
OV_ALWAYS_INLINE void with_vectors(int vectors, F&& f) {
  switch (vectors) {
    case 1: return f(std::integral_constant<int, 1>{});
    case 2: return f(std::integral_constant<int, 2>{});
    case 3: return f(std::integral_constant<int, 3>{});
    case 4: return f(std::integral_constant<int, 4>{});
    case 5: return f(std::integral_constant<int, 5>{});
    case 6: return f(std::integral_constant<int, 6>{});
    case 7: return f(std::integral_constant<int, 7>{});
    default: return f(std::integral_constant<int, 8>{});
  }
}

template <class Cache>
class FewPartition {
 public:
  FewPartition(const AttentionArgs& a, const ov_step& step, const QueryRows& rows, int partition, const Workspace&)
      : subs_(a, step, rows, partition) {}

  // Results of the partition for at most kFewVectors.
  void run(const AttentionArgs& a, const TileJob& job, const Workspace& ws) const {
    with_vectors(job.rows.vectors, [&](auto vectors) { run<decltype(vectors)::value>(a, job, ws); });
  }

 private:
  template <int Vectors>
  void run(const AttentionArgs& a, const TileJob& job, const Workspace& ws) const {
    const KvShape& s = a.layer->shape;
    const SubSpan span(job.rows, subs_.start);
    score<Vectors>(s, job, span, ws);
    tile_softmax<Cache>(a, job.rows, subs_.start, ws.scores, subs_.scales, span.first_step(), span.last_step(),
                        job.result);
    sum_values<Vectors>(s, job, span, ws);
  }

  template <int Vectors>
  void score(const KvShape& s, const TileJob& job, const SubSpan& span, const Workspace& ws) const {
    constexpr int kSubs = Vectors < 4 ? 2 : 1;  // chains for both ports that still fit in the registers
    auto* const q = reinterpret_cast<float*>(ws.k_panel);
    for (int g = 0; g < Vectors; ++g) widen(job.q + int64_t{2} * g * s.k_pad, s.k_dim, q + g * kQueryStride);
    const NoSubnormals scope;
    const auto some = [&](int n, auto subs) {
      ReadSubs k = {};
      for (int i = 0; i < subs; ++i) {
        k.read[i] = subs_.k[n + i];
        k.ahead[i] = ws.ahead->next(k.read[i]);
      }
      few_scores<Cache, Vectors, decltype(subs)::value>(q, s.k_dim, k, ws.scores + n * kSubBlock);
    };
    int n = span.first;
    for (; n + kSubs <= span.last; n += kSubs) some(n, std::integral_constant<int, kSubs>());
    for (; n < span.last; ++n) some(n, std::integral_constant<int, 1>());
  }

  template <int Vectors>
  void sum_values(const KvShape& s, const TileJob& job, const SubSpan& span, const Workspace& ws) const {
    constexpr int kWide = Vectors < 4 ? 4 : 2, kNarrow = 2;  // fits_tiles: v_dim is a multiple of 32
    auto* const weights = reinterpret_cast<float*>(ws.v_panel);
    const int64_t v_pad = padded_v(s);
    for (int g = 0; g < Vectors; ++g) {
      const int first = span.first_step() * kStepTokens, last = span.last_step() * kStepTokens;
      widen(reinterpret_cast<const char*>(ws.scores + g * kScoreStride) + 2 * first, last - first,
            weights + g * kPartition + first);
      for (int d = 0; d < s.v_dim; d += kLanes) store(job.result.out + g * v_pad + d, set1(0.0f));
    }
    const NoSubnormals scope;
    for (int i = span.first_step(); i < span.last_step(); ++i) {
      ValueStep step = {{{subs_.v[2 * i], subs_.v[2 * i + 1]}, {}}, subs_.valid - i * kStepTokens};
      for (int sub = 0; sub < 2; ++sub)
        if (step.v.read[sub]) step.v.ahead[sub] = ws.ahead->next(step.v.read[sub]);
      int d = 0;
      for (; d + kWide * kLanes <= s.v_dim; d += kWide * kLanes)
        few_values<Cache, Vectors, kWide>(weights + i * kStepTokens, step, s.v_dim, d, job.result.out, v_pad);
      for (; d < s.v_dim; d += kNarrow * kLanes)
        few_values<Cache, Vectors, kNarrow>(weights + i * kStepTokens, step, s.v_dim, d, job.result.out, v_pad);
    }
  }

  // bf16 -> f32; count is a multiple of 16.
  static void widen(const char* x, int count, float* out) {
    for (int i = 0; i < count; i += kLanes) {
      const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 2 * i)));
      _mm512_storeu_si512(out + i, _mm512_slli_epi32(wide, 16));
    }
  }

  SubBlocks<Cache> subs_;
};

}  // namespace ov

#endif
