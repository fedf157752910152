// A matrix as kernels see it: rows at a byte stride. Knows nothing of: plans, arenas.
#pragma once

#include <cstdint>
#include <limits>

namespace ov {

struct View {
  char* data = nullptr;  // row 0, first column of the view; nullptr: absent
  int64_t stride = 0;    // bytes from row to row
  int32_t dtype = 0;     // ov_type
  int32_t cols = 0;
  // of a prepared buffer: rows from this one on are those of prompt tokens (linear_input_type)
  int64_t num_generated = std::numeric_limits<int64_t>::max();

  explicit operator bool() const { return data != nullptr; }
  // The same from row r on.
  View from(int64_t r) const {
    View v = *this;
    v.data += r * stride;
    v.num_generated -= r;
    return v;
  }
  void* row(int64_t r) const { return data + r * stride; }
  float* f32(int64_t r) const { return reinterpret_cast<float*>(data + r * stride); }
};

}  // namespace ov
