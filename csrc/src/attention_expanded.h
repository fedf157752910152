// One-byte codes as bf16, which they are exactly: what products of bf16 pairs read of one-byte caches where hardware has
// them. Weights are rounded as those of a bf16 cache.
//
// Few vectors expand words as they go; for many, a partition is expanded once, into the order of a bf16 cache. The bits
// are the same. Knows nothing of: blocks, partitions.
#pragma once

#include "attention_block.h"

#if defined(__AVX512BF16__)

namespace ov {

template <class Cache>
struct Expanded : Cache {
  using Vector = Pairs;
  static constexpr int kPerWord = 2, kRowBytes = 2 * kSubBlock;
  static constexpr int kValueRows = 2;

  static Lanes load_codes(const char* p) { return Cache::load(p); }
  // Codes at p in the low halves, those at q in the high ones.
  static OV_ALWAYS_INLINE __m512i pair(const char* p, const char* q) {
    const __m512i low = _mm512_castps_si512(Cache::load(p).v), high = _mm512_castps_si512(Cache::load(q).v);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
  }
  static Vector load(const char* p) { return {pair(p, p + kSubBlock)}; }
  static Vector load_value(const char* p, int64_t row_bytes) { return {pair(p, p + row_bytes)}; }
  static Vector load_value_part(const char* p, int64_t row_bytes, int) { return load_value(p, row_bytes); }
  static Vector broadcast(const char* p) { return Bf16Cache::broadcast(p); }
  static Lanes multiply_add(Lanes acc, Vector a, Vector b) { return Bf16Cache::multiply_add(acc, a, b); }

  // Sub-blocks of K, and some dims of one of V, as those of a bf16 cache.
  static void expand_k(const char* k, int dims, char* out) {
    for (int d = 0; d < dims; d += 2, k += 2 * kSubBlock, out += 64) _mm512_storeu_si512(out, pair(k, k + kSubBlock));
  }
  static void expand_v(const char* v, int v_dim, int dims, char* out) {
    for (int token = 0; token < kSubBlock; token += 2, v += 2 * v_dim, out += 4 * dims)
      for (int d = 0; d < dims; d += kLanes) _mm512_storeu_si512(out + 4 * d, pair(v + d, v + v_dim + d));
  }
};

// Whether a cache's codes are read so; its K has whole pairs.
inline bool expands(const KvShape& s) { return (s.dtype == OV_I8 || s.dtype == OV_F8_E4M3) && s.k_dim % 2 == 0; }

}  // namespace ov

#else

namespace ov {
inline bool expands(const KvShape&) { return false; }
}  // namespace ov

#endif
