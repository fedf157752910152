// Facts about the library itself: version, ISA level, struct sizes, row sizes.
#include <cstring>

#include "int_lanes.h"
#include "linear.h"
#include "octavo.h"
#include "prepare.h"
#include "tiles.h"

int ov_abi_version(void) { return OV_ABI_VERSION; }

const char* ov_isa_name(void) {
#if defined(OV_HAS_TILES)
  return "amx";
#elif defined(__AVX512BF16__) && defined(__AVX512VNNI__)
  return "avx512_bf16";
#elif defined(__AVX512VNNI__)
  return "avx512_vnni";
#elif defined(__AVX2__)
  return "avx2";
#elif defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return "neon_i8mm";
#elif defined(__ARM_FEATURE_DOTPROD)
  return "neon_dotprod";
#else
  return "scalar";
#endif
}

size_t ov_sizeof(const char* struct_name) {
#define OV_SIZE(name) \
  if (!strcmp(struct_name, #name)) return sizeof(name)
  OV_SIZE(ov_kv_layer);
  OV_SIZE(ov_buffer);
  OV_SIZE(ov_operand);
  OV_SIZE(ov_instr);
  OV_SIZE(ov_vector);
  OV_SIZE(ov_plan_desc);
  OV_SIZE(ov_step);
  OV_SIZE(ov_sampling);
  OV_SIZE(ov_sample_output);
  OV_SIZE(ov_queued_call);
#undef OV_SIZE
  return 0;
}

int64_t ov_row_bytes(int dtype, int64_t cols) {
  using namespace ov;
  switch (dtype) {
    case OV_A8: {
      const int64_t generated = a8_layout(cols).bytes;
      const int type = linear_input_type(OV_Q8_0, true);
      if (type == OV_A8) return generated;
      const int64_t prompt = ov_row_bytes(type, cols);
      return generated > prompt ? generated : prompt;
    }
    case OV_A8R: return rotated_layout(cols).bytes;
    case OV_BF16: return round_up(round_up(cols, 2) * 2, 64);
    default: return round_up(cols * 4, 64);
  }
}
