// Philox4x32-10, a counter-based random number generator: a draw is a pure function of (seed, output index).
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; test vectors of
// Random123.
#pragma once

#include <array>
#include <cstdint>

namespace ov {

inline std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits, from counter (index, 0) under key seed.
inline double philox_uniform(uint64_t seed, uint64_t index) {
  const std::array<uint32_t, 4> r =
      philox4x32_10({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace ov
