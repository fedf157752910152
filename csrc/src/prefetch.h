// Asking for a line of weights or of a KV cache before it is read.
//
// Machines differ in what helps, and a level's machines are mostly of one make (docs/decisions/0027-strips.md): AVX-512
// without BF16, or with AMX, is Intel's, AVX-512 with BF16 alone is AMD's. Knows nothing of: what is read.
#pragma once

#include <cstdint>

#include "byte_lanes.h"
#include "tiles.h"

namespace ov {

#if defined(OV_HAS_TILES) || (defined(__AVX512VNNI__) && !defined(__AVX512BF16__))
// Every line is asked for a little early, in the order of reading, into the first-level cache. Measured, not explained:
// leaving lines to the processor's own prefetchers, or asking into the second level, was slower.
inline constexpr bool kAsksForAll = true;
inline constexpr int64_t kAheadBytes = 4096;
inline constexpr int kAheadLevel = 3;
#else
// Into the second-level cache, whose queue of misses is the longer one, in the order of memory, and only what the
// processor's own prefetchers do not follow.
inline constexpr bool kAsksForAll = false;
inline constexpr int64_t kAheadBytes = 8192;
inline constexpr int kAheadLevel = 2;
#endif

// Always inlined, as any function of prefetches alone: compilers see that it computes nothing, and drop a call to it.
OV_ALWAYS_INLINE void ask_for(const void* line) { __builtin_prefetch(line, 0, kAheadLevel); }

// Called for each `step` bytes of a stream: where a page of 4 KB begins, asks for the first lines of the next one, since
// the processor's own prefetchers stop at its end.
OV_ALWAYS_INLINE void begin_next_page(const uint8_t* at, int64_t step) {
  constexpr uintptr_t kPage = 4096;
  if ((reinterpret_cast<uintptr_t>(at) & (kPage - 1)) >= static_cast<uintptr_t>(step)) return;
  for (uintptr_t line = 0; line < 3; ++line) __builtin_prefetch(at + kPage + 64 * line, 0, 2);
}

}  // namespace ov
