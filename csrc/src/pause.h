// A moment in a loop that waits for another thread.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ov {

inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ov
