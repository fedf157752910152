// The two products of attention in registers: scores from queries and K, sums of V by weights.
//
// Both multiply rows of sixteen words by one word at a time, a single chain per result in rising order. Knows nothing
// of: blocks, partitions, threads.
#pragma once

#include <cstring>
#include <type_traits>

#include "attention.h"
#include "byte_lanes.h"
#include "kv_codec.h"
#include "lanes.h"
#include "prefetch.h"

namespace ov {

// Register blocks of the two products: query vectors x sub-blocks of K, query vectors x groups of 16 V dims.
#if defined(__AVX512F__)
constexpr int kBlockRows = 4, kBlockCols = 4;
#else
constexpr int kBlockRows = 2, kBlockCols = 2;
#endif

// A cache's element type. Both products multiply a row of the cache, sixteen words of two bf16, one f32 or one code, by
// one 4-byte word of two bf16 or one f32. Codes are f32 in registers, or bf16 (attention_expanded.h); scores and weights
// carry their tokens' scales. A word's sixteen dims of V are kValueBytes in each of kValueRows.
struct Bf16Cache {
  using Vector = Pairs;
  static constexpr int kPerWord = 2, kRowBytes = 64, kValueBytes = 64, kValueRows = 1;
  static constexpr bool kHasScales = false;
  static Vector load(const char* p) { return load_pairs(reinterpret_cast<const uint16_t*>(p)); }
  static Vector load_value(const char* p, int64_t) { return load(p); }
  static Vector load_value_part(const char* p, int64_t, int n) {
    return load_pairs_part(reinterpret_cast<const uint16_t*>(p), n);
  }
  static Vector broadcast(const char* p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return set1_pair(word);
  }
  static Lanes multiply_add(Lanes acc, Vector a, Vector b) { return dot_pairs(acc, a, b); }
};

struct F32Cache {
  using Vector = Lanes;
  static constexpr int kPerWord = 1, kRowBytes = 64, kValueBytes = 64, kValueRows = 1;
  static constexpr bool kHasScales = false;
  static Vector load(const char* p) { return ov::load(reinterpret_cast<const float*>(p)); }
  static Vector load_value(const char* p, int64_t) { return load(p); }
  static Vector load_value_part(const char* p, int64_t, int n) {
    return ov::load_part(reinterpret_cast<const float*>(p), n);
  }
  static Vector broadcast(const char* p) {
    float word;
    memcpy(&word, p, sizeof word);
    return set1(word);
  }
  static Lanes multiply_add(Lanes acc, Vector a, Vector b) { return fma(a, b, acc); }
};

struct Int8Cache : F32Cache {
  static constexpr int kRowBytes = 16, kValueBytes = 16;
  static constexpr bool kHasScales = true;
  static Vector load(const char* p) { return decode_int8(p); }
  static Vector load_value(const char* p, int64_t) { return load(p); }
  // Lanes past n hold the bytes that follow, finite and not used; a head ends with its scales.
  static Vector load_value_part(const char* p, int64_t, int) { return load(p); }
};

struct Fp8Cache : F32Cache {
  static constexpr int kRowBytes = 16, kValueBytes = 16;
  static constexpr bool kHasScales = true;
  static Vector load(const char* p) { return decode_fp8(p); }
  static Vector load_value(const char* p, int64_t) { return load(p); }
  static Vector load_value_part(const char* p, int64_t, int) { return load(p); }
};

// f(m, n) for each result of a block.
template <int kRows, int kCols, class F>
OV_ALWAYS_INLINE void each(F&& f) {
  unroll<kRows>([&](auto m) OV_INLINED { unroll<kCols>([&](auto n) OV_INLINED { f(m, n); }); });
}

// Sub-blocks that are read, and for each one that is asked for meanwhile, line by line; null: nothing is.
struct SubReads {
  const char* const* read;
  const char* const* ahead;
};

// Asks for the line with byte `at` of a sub-block where it begins; rows are narrower than lines in one-byte caches.
template <int RowBytes>
OV_ALWAYS_INLINE void ask_for_row(const char* sub, int64_t at) {
  if (RowBytes == 64 || at % 64 == 0) ask_for(sub + at);
}

// out[m][n * 16 ..] = q[m] . K of sub-block n, for kRows vectors and kCols sub-blocks; one chain over the words in
// rising order.
template <class Cache, int kRows, int kCols, bool kAsks>
void score_block(const char* q, int64_t q_stride, const SubReads& k, int words, float* out) {
  Lanes acc[kRows][kCols];
  each<kRows, kCols>([&](auto m, auto n) OV_INLINED { acc[m.value][n.value] = set1(0.0f); });
  for (int w = 0; w < words; ++w) {
    typename Cache::Vector key[kCols];
    unroll<kCols>([&](auto n) OV_INLINED {
      key[n.value] = Cache::load(k.read[n.value] + Cache::kRowBytes * w);
      if constexpr (kAsks) ask_for_row<Cache::kRowBytes>(k.ahead[n.value], Cache::kRowBytes * w);
    });
    unroll<kRows>([&](auto m) OV_INLINED {
      const auto query = Cache::broadcast(q + m.value * q_stride + 4 * w);
      unroll<kCols>([&](auto n) OV_INLINED {
        acc[m.value][n.value] = Cache::multiply_add(acc[m.value][n.value], key[n.value], query);
      });
    });
  }
  each<kRows, kCols>([&](auto m, auto n) OV_INLINED {
    store(out + m.value * kPartition + n.value * kSubBlock, acc[m.value][n.value]);
  });
}

template <class Cache, int kRows, bool kAsks>
void score_rows(const char* q, int64_t q_stride, const SubReads& k, int subs, int words, float* out) {
  const auto from = [&](int n) { return SubReads{k.read + n, kAsks ? k.ahead + n : nullptr}; };
  int n = 0;
  for (; n + kBlockCols <= subs; n += kBlockCols)
    score_block<Cache, kRows, kBlockCols, kAsks>(q, q_stride, from(n), words, out + n * kSubBlock);
  for (; n < subs; ++n) score_block<Cache, kRows, 1, kAsks>(q, q_stride, from(n), words, out + n * kSubBlock);
}

// f(m, std::integral_constant rows) over `vectors` in blocks of kBlockRows, then what is left.
template <class F>
void each_row_block(int vectors, F&& f) {
  int m = 0;
  for (; m + kBlockRows <= vectors; m += kBlockRows) f(m, std::integral_constant<int, kBlockRows>{});
  switch (vectors - m) {
    case 3: return f(m, std::integral_constant<int, (kBlockRows > 3 ? 3 : 1)>{});
    case 2: return f(m, std::integral_constant<int, (kBlockRows > 2 ? 2 : 1)>{});
    case 1: return f(m, std::integral_constant<int, 1>{});
    default: return;
  }
}

struct ValueArgs {
  const char* weights;
  int64_t weight_stride;
  SubReads v;  // at the first dim of the block
  int subs;
  int64_t v_stride;  // bytes from row to row; a word is one or two
  float* out;
  int64_t out_stride;
  int dims;  // dims left, what a partial block has
};

// out[m][16 * n ..] = sum over sub-blocks and their words, rising, of weights[m] x V.
template <class Cache, int kRows, int kCols, bool kIsPartial, bool kAsks>
void value_block(const ValueArgs& a) {
  constexpr int kWords = kSubBlock / Cache::kPerWord;
  Lanes acc[kRows][kCols];
  each<kRows, kCols>([&](auto m, auto n) OV_INLINED { acc[m.value][n.value] = set1(0.0f); });
  for (int s = 0; s < a.subs; ++s) {
    const char* row = a.v.read[s];
    for (int w = 0; w < kWords; ++w, row += Cache::kValueRows * a.v_stride) {
      typename Cache::Vector value[kCols];
      unroll<kCols>([&](auto n) OV_INLINED {
        value[n.value] = kIsPartial ? Cache::load_value_part(row, a.v_stride, a.dims)
                                    : Cache::load_value(row + Cache::kValueBytes * n.value, a.v_stride);
        if constexpr (kAsks) {
          unroll<Cache::kValueRows>([&](auto r) OV_INLINED {
            ask_for_row<Cache::kValueBytes>(a.v.ahead[s] + (Cache::kValueRows * w + r.value) * a.v_stride,
                                            Cache::kValueBytes * n.value);
          });
        }
      });
      unroll<kRows>([&](auto m) OV_INLINED {
        const auto weight = Cache::broadcast(a.weights + m.value * a.weight_stride + 4 * (s * kWords + w));
        unroll<kCols>([&](auto n) OV_INLINED {
          acc[m.value][n.value] = Cache::multiply_add(acc[m.value][n.value], value[n.value], weight);
        });
      });
    }
  }
  each<kRows, kCols>([&](auto m, auto n) OV_INLINED {
    store(a.out + m.value * a.out_stride + n.value * kLanes, acc[m.value][n.value]);
  });
}

}  // namespace ov
