// Memory of one thread that grows to the largest request and stays: nothing is allocated once a plan has been warmed
// up.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace ov {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  // 64-byte aligned; the old contents are lost. Out of memory ends the process, as a step cannot go on without it.
  void* take(int64_t bytes) {
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = (bytes + 4095) / 4096 * 4096;
      data_ = std::aligned_alloc(64, static_cast<size_t>(bytes_));
      if (!data_) std::abort();
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace ov
