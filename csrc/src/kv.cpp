#include "kv.h"

#include <cstring>

#include "kv_codec.h"

namespace ov {
namespace {

// f(first dim, values as bf16, count): sixteen dims at a time, zero after the last.
template <class F>
inline void each_bf16_chunk(const float* x, int dims, F&& f) {
  alignas(64) uint16_t values[kLanes];
  for (int d = 0; d < dims; d += kLanes) {
    const int n = dims - d < kLanes ? dims - d : kLanes;
    store_bf16(values, load_part(x + d, n));
    f(d, values, n);
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

void kv_write_token(const KvLayer& layer, int32_t slot, const float* k, const float* v) {
  if (slot < 0) return;
  const KvShape& s = layer.shape;
  char* share = layer.share(slot / s.block_size);
  const int in_block = slot % s.block_size;
  const int sub = in_block / kSubBlock, token = in_block % kSubBlock;
  for (int head = 0; head < s.num_kv_heads; ++head, k += s.k_dim, v += s.v_dim) {
    char* k_sub = s.k_sub(share, head, sub);
    char* v_sub = s.v_sub(share, head, sub);
    if (s.dtype == OV_BF16) {
      auto* kp = reinterpret_cast<uint32_t*>(k_sub) + token;  // a word is a pair of dims
      each_bf16_chunk(k, s.k_dim, [&](int d, const uint16_t* values, int n) {
        for (int i = 0; i < n; i += 2) {  // an odd last dim is paired with zero
          uint32_t word;
          memcpy(&word, values + i, sizeof word);
          kp[(d + i) / 2 * kSubBlock] = word;
        }
      });
      auto* vp = reinterpret_cast<uint16_t*>(v_sub) + (token / 2) * (2 * s.v_dim) + (token & 1);
      for (int d = 0; d < s.v_dim; d += kLanes) {
        const int n = s.v_dim - d < kLanes ? s.v_dim - d : kLanes;
        store_bf16_apart(vp + 2 * d, load_part(v + d, n), n);
      }
    } else if (s.dtype != OV_F32) {
      const CodeScale k_scale = code_scale(s.dtype, k, s.k_dim), v_scale = code_scale(s.dtype, v, s.v_dim);
      s.k_scales(share, head, sub)[token] = k_scale.scale;
      s.v_scales(share, head, sub)[token] = v_scale.scale;
      write_codes<kSubBlock>(s.dtype, k, s.k_dim, k_scale.factor, k_sub + token);
      write_codes<1>(s.dtype, v, s.v_dim, v_scale.factor, v_sub + token * s.v_dim);
    } else {
      auto* kp = reinterpret_cast<float*>(k_sub) + token;
      for (int d = 0; d < s.k_dim; ++d) kp[d * kSubBlock] = k[d];
      auto* vp = reinterpret_cast<float*>(v_sub) + token * s.v_dim;
      for (int d = 0; d < s.v_dim; ++d) vp[d] = v[d];
    }
  }
}

void kv_write(ov_pool* pool, const KvLayer& layer, const int32_t* slots, View k, View v, int64_t rows) {
  const int64_t work = int64_t{layer.shape.num_kv_heads} * (layer.shape.k_dim + layer.shape.v_dim);
  parallel_rows(pool, rows, work, [&](int64_t row, int) { kv_write_token(layer, slots[row], k.f32(row), v.f32(row)); });
}

}  // namespace ov

extern "C" int64_t ov_kv_layer_bytes(const ov_kv_layer* layer, int32_t block_size) {
  return ov::kv_shape(*layer, block_size).share_bytes;
}
