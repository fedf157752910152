// Element types in plain memory: sizes, names and conversion to f32 and bf16. Knows nothing of: tiles, threads.
#pragma once

#include <cstdint>

namespace ov {

struct TypeInfo {
  const char* name;
  int block;        // values per block
  int block_bytes;  // bytes per block
};

// nullptr for a type that weights cannot have.
const TypeInfo* type_info(int type);

// n values (a multiple of the type's block) to f32; type must be known.
void to_f32(int type, const void* src, int64_t n, float* out);

}  // namespace ov
