#include "kv.h"

#include <cstring>

#include "kv_codec.h"
#include "kv_words.h"

namespace ov {
namespace {

constexpr int kWordsAtOnce = 16;  // of a token's K, before they cross to the lanes of their sub-block

// K of `count` tokens as pairs of bf16; an odd last dim is paired with zero.
void write_k_pairs(const float* k, int64_t stride, int count, int dims, uint32_t* out) {
  alignas(64) uint32_t words[kSubBlock * kWordsAtOnce];
  for (int d = 0; d < dims; d += 2 * kWordsAtOnce, out += kWordsAtOnce * kSubBlock) {
    const int n = dims - d < 2 * kWordsAtOnce ? dims - d : 2 * kWordsAtOnce;
    for (int t = 0; t < count; ++t) {
      const float* x = k + t * stride + d;
      auto* halves = reinterpret_cast<uint16_t*>(words + t * kWordsAtOnce);
      store_bf16(halves, load_part(x, n < kLanes ? n : kLanes));
      if (n > kLanes) store_bf16(halves + kLanes, load_part(x + kLanes, n - kLanes));
    }
    scatter_words(words, kWordsAtOnce, count, (n + 1) / 2, out);
  }
}

// Codes of x times factor at out, out + stride, ...
template <int64_t Stride>
inline void write_codes(int32_t dtype, const float* x, int dims, float factor, char* out) {
  alignas(64) int8_t bytes[kLanes];
  for (int d = 0; d < dims; d += kLanes) {
    const int n = dims - d < kLanes ? dims - d : kLanes;
    const Lanes scaled = load_part(x + d, n) * set1(factor);
    const IntLanes codes = dtype == OV_I8 ? encode_int8(scaled) : encode_fp8(scaled);
    if constexpr (Stride == 1) {
      store_low_bytes(out + d, codes, n);
    } else {
      store_low_bytes(bytes, codes, n);
      for (int i = 0; i < n; ++i, out += Stride) *out = static_cast<char>(bytes[i]);
    }
  }
}

}  // namespace

KvShape kv_shape(const ov_kv_layer& layer, int32_t block_size) {
  KvShape s{};
  s.num_kv_heads = layer.num_kv_heads;
  s.k_dim = layer.k_head_dim;
  s.v_dim = layer.v_head_dim;
  s.k_pad = layer.k_head_dim + (layer.dtype == OV_BF16 ? layer.k_head_dim & 1 : 0);
  s.dtype = layer.dtype;
  s.block_size = block_size;
  const int64_t element = layer.dtype == OV_F32 ? 4 : layer.dtype == OV_BF16 ? 2 : 1;
  s.k_sub_bytes = int64_t{s.k_pad} * kSubBlock * element;
  s.v_sub_bytes = int64_t{s.v_dim} * kSubBlock * element;
  s.head_bytes = (block_size / kSubBlock) * (s.k_sub_bytes + s.v_sub_bytes);
  if (element == 1) s.head_bytes += 2 * int64_t{4} * block_size;  // scales
  s.share_bytes = s.num_kv_heads * s.head_bytes;
  return s;
}

void kv_write_run(const KvLayer& layer, int32_t slot, int count, View keys, View values, int64_t first_row) {
  if (slot < 0) return;
  const KvShape& s = layer.shape;
  char* share = layer.share(slot / s.block_size);
  const int in_block = slot % s.block_size;
  const int sub = in_block / kSubBlock, token = in_block % kSubBlock;
  const int64_t k_stride = keys.stride / 4, v_stride = values.stride / 4;
  const float* k = keys.f32(first_row);
  const float* v = values.f32(first_row);
  for (int head = 0; head < s.num_kv_heads; ++head, k += s.k_dim, v += s.v_dim) {
    char* k_sub = s.k_sub(share, head, sub);
    char* v_sub = s.v_sub(share, head, sub);
    if (s.dtype == OV_BF16) {
      write_k_pairs(k, k_stride, count, s.k_dim, reinterpret_cast<uint32_t*>(k_sub) + token);
      for (int t = 0; t < count; ++t) {
        const int slot_in_sub = token + t;
        auto* vp = reinterpret_cast<uint16_t*>(v_sub) + (slot_in_sub / 2) * (2 * s.v_dim) + (slot_in_sub & 1);
        for (int d = 0; d < s.v_dim; d += kLanes) {
          const int n = s.v_dim - d < kLanes ? s.v_dim - d : kLanes;
          store_bf16_apart(vp + 2 * d, load_part(v + t * v_stride + d, n), n);
        }
      }
    } else if (s.dtype != OV_F32) {
      for (int t = 0; t < count; ++t) {
        const float *kt = k + t * k_stride, *vt = v + t * v_stride;
        const CodeScale k_scale = code_scale(s.dtype, kt, s.k_dim), v_scale = code_scale(s.dtype, vt, s.v_dim);
        s.k_scales(share, head, sub)[token + t] = k_scale.scale;
        s.v_scales(share, head, sub)[token + t] = v_scale.scale;
        write_codes<kSubBlock>(s.dtype, kt, s.k_dim, k_scale.factor, k_sub + token + t);
        write_codes<1>(s.dtype, vt, s.v_dim, v_scale.factor, v_sub + (token + t) * s.v_dim);
      }
    } else {
      scatter_words(reinterpret_cast<const uint32_t*>(k), k_stride, count, s.k_dim,
                    reinterpret_cast<uint32_t*>(k_sub) + token);
      for (int t = 0; t < count; ++t)
        memcpy(v_sub + int64_t{4} * (token + t) * s.v_dim, v + t * v_stride,
               sizeof(float) * static_cast<size_t>(s.v_dim));
    }
  }
}

void kv_write(ov_pool* pool, const KvLayer& layer, const int32_t* slots, View k, View v, int64_t rows) {
  const int64_t work = int64_t{layer.shape.num_kv_heads} * (layer.shape.k_dim + layer.shape.v_dim) * kKvWriteWork;
  parallel_kv_runs(pool, slots, rows, work,
                   [&](int64_t row, int count) { kv_write_run(layer, slots[row], count, k, v, row); });
}

}  // namespace ov

extern "C" int64_t ov_kv_layer_bytes(const ov_kv_layer* layer, int32_t block_size) {
  return ov::kv_shape(*layer, block_size).share_bytes;
}
