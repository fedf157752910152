// The two products of attention in registers: scores from queries and K, sums of V by weights.
//
// Both multiply rows of sixteen words by one word at a time, a single chain per result in rising order. Knows nothing
// of: blocks, partitions, threads.
#pragma once

#include <cstring>
#include <type_traits>

#include "attention.h"
#include "kv_codec.h"
#include "lanes.h"

namespace ov {

// Register blocks of the two products: query vectors x sub-blocks of K, query vectors x groups of 16 V dims.
#if defined(__AVX512F__)
constexpr int kBlockRows = 4, kBlockCols = 4;
#else
constexpr int kBlockRows = 2, kBlockCols = 2;
#endif

// A cache's element type. Both products multiply a row of the cache, sixteen words of two bf16, one f32 or one code, by
// one 4-byte word of two bf16 or one f32. Codes are f32 in registers; scores and weights carry their tokens' scales.
struct Bf16Cache {
  using Vector = Pairs;
  static constexpr int kPerWord = 2, kRowBytes = 64;
  static constexpr bool kHasScales = false;
  static Vector load(const char* p) { return load_pairs(reinterpret_cast<const uint16_t*>(p)); }
  static Vector load_part(const char* p, int n) { return load_pairs_part(reinterpret_cast<const uint16_t*>(p), n); }
  static Vector broadcast(const char* p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return set1_pair(word);
  }
  static Lanes multiply_add(Lanes acc, Vector a, Vector b) { return dot_pairs(acc, a, b); }
};

struct F32Cache {
  using Vector = Lanes;
  static constexpr int kPerWord = 1, kRowBytes = 64;
  static constexpr bool kHasScales = false;
  static Vector load(const char* p) { return ov::load(reinterpret_cast<const float*>(p)); }
  static Vector load_part(const char* p, int n) { return ov::load_part(reinterpret_cast<const float*>(p), n); }
  static Vector broadcast(const char* p) {
    float word;
    memcpy(&word, p, sizeof word);
    return set1(word);
  }
  static Lanes multiply_add(Lanes acc, Vector a, Vector b) { return fma(a, b, acc); }
};

struct Int8Cache : F32Cache {
  static constexpr int kRowBytes = 16;
  static constexpr bool kHasScales = true;
  static Vector load(const char* p) { return decode_int8(p); }
  // Lanes past n hold the bytes that follow, finite and not used; a head ends with its scales.
  static Vector load_part(const char* p, int) { return decode_int8(p); }
};

struct Fp8Cache : F32Cache {
  static constexpr int kRowBytes = 16;
  static constexpr bool kHasScales = true;
  static Vector load(const char* p) { return decode_fp8(p); }
  static Vector load_part(const char* p, int) { return decode_fp8(p); }
};

// out[m][n * 16 ..] = q[m] . K of sub-block n, for kRows vectors and kCols sub-blocks; one chain over the words in
// rising order.
template <class Cache, int kRows, int kCols>
void score_block(const char* q, int64_t q_stride, const char* const* k, int words, float* out) {
  Lanes acc[kRows][kCols];
  for (int m = 0; m < kRows; ++m)
    for (int n = 0; n < kCols; ++n) acc[m][n] = set1(0.0f);
  for (int w = 0; w < words; ++w) {
    typename Cache::Vector key[kCols];
    for (int n = 0; n < kCols; ++n) key[n] = Cache::load(k[n] + Cache::kRowBytes * w);
    for (int m = 0; m < kRows; ++m) {
      const auto query = Cache::broadcast(q + m * q_stride + 4 * w);
      for (int n = 0; n < kCols; ++n) acc[m][n] = Cache::multiply_add(acc[m][n], key[n], query);
    }
  }
  for (int m = 0; m < kRows; ++m)
    for (int n = 0; n < kCols; ++n) store(out + m * kPartition + n * kSubBlock, acc[m][n]);
}

template <class Cache, int kRows>
void score_rows(const char* q, int64_t q_stride, const char* const* k, int subs, int words, float* out) {
  int n = 0;
  for (; n + kBlockCols <= subs; n += kBlockCols)
    score_block<Cache, kRows, kBlockCols>(q, q_stride, k + n, words, out + n * kSubBlock);
  for (; n < subs; ++n) score_block<Cache, kRows, 1>(q, q_stride, k + n, words, out + n * kSubBlock);
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
  const char* const* v;  // per sub-block, at the first dim of the block
  int subs;
  int64_t v_stride;  // bytes from word to word
  float* out;
  int64_t out_stride;
  int dims;  // dims left, what a partial block has
};

// out[m][16 * n ..] = sum over sub-blocks and their words, rising, of weights[m] x V.
template <class Cache, int kRows, int kCols, bool kIsPartial>
void value_block(const ValueArgs& a) {
  constexpr int kWords = kSubBlock / Cache::kPerWord;
  Lanes acc[kRows][kCols];
  for (int m = 0; m < kRows; ++m)
    for (int n = 0; n < kCols; ++n) acc[m][n] = set1(0.0f);
  for (int s = 0; s < a.subs; ++s) {
    const char* row = a.v[s];
    for (int w = 0; w < kWords; ++w, row += a.v_stride) {
      typename Cache::Vector value[kCols];
      for (int n = 0; n < kCols; ++n)
        value[n] = kIsPartial ? Cache::load_part(row, a.dims) : Cache::load(row + Cache::kRowBytes * n);
      for (int m = 0; m < kRows; ++m) {
        const auto weight = Cache::broadcast(a.weights + m * a.weight_stride + 4 * (s * kWords + w));
        for (int n = 0; n < kCols; ++n) acc[m][n] = Cache::multiply_add(acc[m][n], value[n], weight);
      }
    }
  }
  for (int m = 0; m < kRows; ++m)
    for (int n = 0; n < kCols; ++n) store(a.out + m * a.out_stride + n * kLanes, acc[m][n]);
}

}  // namespace ov
