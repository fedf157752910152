// Memory of packed weights: many tensors share large mappings, so that they lie in huge pages.
//
// A slab goes back to the system when the last weight in it is destroyed. Knows nothing of: what the bytes mean.
#pragma once

#include <cstdint>

namespace ov {

struct WeightMemory {
  uint8_t* data;  // 64-byte aligned; nullptr: out of memory
  void* slab;
};
// Thread-safe.
WeightMemory weight_memory_take(int64_t bytes);
void weight_memory_give(void* slab);

}  // namespace ov
