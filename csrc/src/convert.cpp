#include "convert.h"

#include "error.h"
#include "gguf_blocks.h"
#include "octavo.h"

namespace ov {

const TypeInfo* type_info(int type) {
  static constexpr TypeInfo f32{"F32", 1, 4}, f16{"F16", 1, 2}, bf16{"BF16", 1, 2}, q4_0{"Q4_0", 32, 18},
      q4_1{"Q4_1", 32, 20}, q5_0{"Q5_0", 32, 22}, q5_1{"Q5_1", 32, 24}, q8_0{"Q8_0", 32, 34}, q4_k{"Q4_K", 256, 144},
      q5_k{"Q5_K", 256, 176}, q6_k{"Q6_K", 256, 210};
  switch (type) {
    case OV_F32: return &f32;
    case OV_F16: return &f16;
    case OV_BF16: return &bf16;
    case OV_Q4_0: return &q4_0;
    case OV_Q4_1: return &q4_1;
    case OV_Q5_0: return &q5_0;
    case OV_Q5_1: return &q5_1;
    case OV_Q8_0: return &q8_0;
    case OV_Q4_K: return &q4_k;
    case OV_Q5_K: return &q5_k;
    case OV_Q6_K: return &q6_k;
    default: return nullptr;
  }
}

// The products below are exact in f32 (at most 24 significant bits), so only the last addition rounds.
template <int Kind>
static void block_to_f32(const uint8_t* block, float* out) {
  using B = Block<Kind>;
  const float d = from_f16(B::scale(block));
  for (int j = 0; j < B::kBlock / 32; ++j) {
    uint8_t codes[32];
    B::codes(block, j, codes);
    float scale[2] = {d, d};
    float minimum = 0.0f;
    if constexpr (B::kHalves) {
      for (int h = 0; h < 2; ++h) scale[h] = d * static_cast<float>(B::sub_scale16(block, 2 * j + h));
    } else if constexpr (B::kSuper) {
      scale[0] = scale[1] = d * static_cast<float>(B::sub_scale(block, j));
      minimum = -(from_f16(B::minimum(block)) * static_cast<float>(B::sub_minimum(block, j)));
    } else if constexpr (B::kMinimum) {
      minimum = from_f16(B::minimum(block));
    }
    for (int i = 0; i < 32; ++i) {
      const float value = scale[i / 16] * static_cast<float>(codes[i] - B::kOffset);
      out[32 * j + i] = B::kMinimum ? value + minimum : value;
    }
  }
}

void to_f32(int type, const void* src, int64_t n, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(src);
  if (type == OV_F32) {
    memcpy(out, src, static_cast<size_t>(n) * 4);
  } else if (type == OV_BF16) {
    for (int64_t i = 0; i < n; ++i) out[i] = from_bf16(read_u16(bytes + 2 * i));
  } else if (type == OV_F16) {
    for (int64_t i = 0; i < n; ++i) out[i] = from_f16(read_u16(bytes + 2 * i));
  } else {
    visit_quantized(type, [&]<int Kind>() {
      for (int64_t i = 0; i < n / Block<Kind>::kBlock; ++i)
        block_to_f32<Kind>(bytes + i * Block<Kind>::kBytes, out + i * Block<Kind>::kBlock);
    });
  }
}

}  // namespace ov

int ov_convert(int src_type, const void* src, int64_t n, int dst_type, void* dst) {
  using namespace ov;
  const TypeInfo* type = type_info(src_type);
  if (!type) return set_error("values of type %d cannot be converted: unknown type", src_type);
  if (n < 0 || n % type->block)
    return set_error("%lld values of type %s cannot be converted: blocks have %d values", static_cast<long long>(n),
                     type->name, type->block);
  if (dst_type == OV_F32) {
    to_f32(src_type, src, n, static_cast<float*>(dst));
    return 0;
  }
  if (dst_type != OV_BF16) return set_error("cannot convert to type %d, only to F32 and BF16", dst_type);
  alignas(64) float chunk[256];
  for (int64_t i = 0; i < n; i += 256) {
    const int64_t count = n - i < 256 ? n - i : 256;
    to_f32(src_type, static_cast<const char*>(src) + i / type->block * type->block_bytes, count, chunk);
    for (int64_t j = 0; j < count; ++j) static_cast<uint16_t*>(dst)[i + j] = to_bf16(chunk[j]);
  }
  return 0;
}
