// What the machine can do at most: the limits that a profile is compared with.
//
// Each figure is the best of many runs of about a millisecond on all threads of a pool, so that other work on the machine
// spoils few of them. Knows nothing of: plans, tensors.
#include <time.h>

#include <algorithm>
#include <cstring>

#include "byte_lanes.h"
#include "error.h"
#include "octavo.h"
#include "pool.h"
#include "tiles.h"
#include "weights.h"

using namespace ov;

namespace {

constexpr int kRuns = 40;
constexpr int kSteps = 50000;
#if defined(__AVX512F__)
constexpr int kChains = 12;
#else
constexpr int kChains = 6;  // of two registers each
#endif

double now() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<double>(ts.tv_sec) + 1e-9 * static_cast<double>(ts.tv_nsec);
}

// work(worker) once per thread -> units of one thread's run times threads per second.
template <class F>
double best_rate(ov_pool* pool, double units, F&& work, int64_t runs = kRuns) {
  const int threads = pool_size(pool);
  double best = 0.0;
  for (int64_t run = 0; run < runs; ++run) {
    const double start = now();
    parallel_for(pool, threads, [&](int64_t tile, int) { work(tile); });
    best = std::max(best, units * threads / (now() - start));
  }
  return best;
}

// Operands that the compiler knows nothing of, so that it computes all there is.
struct Operands {
  alignas(64) uint8_t bytes[64 * (kChains + 2)];
  const uint8_t* at;

  Operands() : at(bytes) {
    memset(bytes, 0x3c, sizeof bytes);  // small numbers in every type
    asm volatile("" : "+r"(at)::"memory");
  }
  const float* floats(int vector) const { return reinterpret_cast<const float*>(at + 64 * vector); }
};

// step(chain, a, b) on independent chains, kept in registers.
template <class Vector, class Load, class Step>
void run_chains(Load&& load_vector, Step&& step) {
  const Operands operands;
  Lanes chains[kChains];
  unroll<kChains>([&](auto c) OV_INLINED { chains[c.value] = load(operands.floats(c.value)); });
  const Vector a = load_vector(operands.floats(kChains)), b = load_vector(operands.floats(kChains + 1));
  for (int i = 0; i < kSteps; ++i)
    unroll<kChains>([&](auto c) OV_INLINED { chains[c.value] = step(chains[c.value], a, b); });
  Lanes sum = chains[0];
  for (int c = 1; c < kChains; ++c) sum = sum + chains[c];
  asm volatile("" ::"r"(&sum) : "memory");
}

double f32_rate(ov_pool* pool) {
  return best_rate(pool, 2.0 * kLanes * kChains * kSteps, [](int64_t) {
    run_chains<Lanes>(load, [](Lanes c, Lanes a, Lanes b) OV_INLINED { return fma(a, b, c); });
  });
}

#if defined(OV_HAS_TILES)
double tile_rate(ov_pool* pool) {
  constexpr int kTileSteps = kSteps / 10;
  return best_rate(pool, 4.0 * kTileSteps * 2 * 16 * 16 * 32, [](int64_t) {
    TileConfig shapes;
    for (int i = 0; i < 8; ++i) shapes.set(i, 16, 64);
    const TileShapes registers(shapes);
    for (int i = 0; i < kTileSteps; ++i) {
      unroll<4>([](auto c) OV_INLINED {
        constexpr int A = 4 + c.value / 2, B = 6 + c.value % 2;
        tile_dot_bf16<c.value, A, B>();
      });
    }
  });
}
#endif

double bf16_rate(ov_pool* pool) {
#if defined(OV_HAS_TILES)
  return tile_rate(pool);
#else
  return best_rate(pool, 4.0 * kLanes * kChains * kSteps, [](int64_t) {
    run_chains<Pairs>([](const float* p) { return load_pairs(reinterpret_cast<const uint16_t*>(p)); },
                      [](Lanes c, Pairs a, Pairs b) OV_INLINED { return dot_pairs(c, a, b); });
  });
#endif
}

// As the int8 kernels do it in vector registers, which compute all but the rows that fill tile registers.
double int8_rate(ov_pool* pool) {
#if defined(__AVX512VNNI__)
  constexpr int kColumns = kChains;
#else
  constexpr int kColumns = 2;
#endif
  constexpr int kQuads = 8;
  constexpr int kGroups = kSteps / kQuads;
  return best_rate(pool, 2.0 * 64 * kColumns * kQuads * kGroups, [](int64_t) {
    const Operands operands;
    Bytes w[kColumns];
    unroll<kColumns>([&](auto c) OV_INLINED { w[c.value] = low_nibbles(load_bytes(operands.at + 64 * c.value)); });
    const auto* a = reinterpret_cast<const int8_t*>(operands.at) + 64 * kChains;
    Dot<dot_bits(4)> chains[kColumns];
    constexpr int32_t kNoOffset = 0;
    unroll<kColumns>([&](auto c) OV_INLINED { chains[c.value].start(&kNoOffset); });
    for (int i = 0; i < kGroups; ++i) {
      asm volatile("" : "+r"(a));  // else products are the same in every group
      unroll<kQuads>([&](auto quad) OV_INLINED {
        unroll<kColumns>([&](auto c)
                             OV_INLINED { chains[c.value].template step<quad.value>(w[c.value], a + 4 * quad.value); });
      });
    }
    Lanes sum = set1(0.0f);
    unroll<kColumns>([&](auto c) OV_INLINED { sum = sum + chains[c.value].finish(); });
    asm volatile("" ::"r"(&sum) : "memory");
  });
}

// Reads [p, p + bytes), bytes a multiple of 256. Whether asking for lines ahead is faster depends on where memory is.
template <bool Asks>
void read_lines(const char* p, int64_t bytes) {
  Lanes sums[4];
  for (auto& s : sums) s = set1(0.0f);
  for (int64_t i = 0; i < bytes; i += 256) {
    if constexpr (Asks) unroll<4>([&](auto c) OV_INLINED { __builtin_prefetch(p + i + 4096 + 64 * c.value, 0, 2); });
    unroll<4>([&](auto c) OV_INLINED {
      sums[c.value] = max(sums[c.value], load(reinterpret_cast<const float*>(p + i + 64 * c.value)));
    });
  }
  for (auto& s : sums) asm volatile("" ::"r"(&s) : "memory");
}

}  // namespace

extern "C" double ov_probe_weights(ov_pool* pool, int64_t num, const ov_weight* const* weights, int64_t passes) {
  const int64_t threads = pool_size(pool);
  const auto begin = [&](const ov_weight& w, int64_t thread) { return w.bytes / 256 * thread / threads * 256; };
  int64_t total = 0;
  for (int64_t i = 0; i < num; ++i) total += begin(*weights[i], threads);
  if (total == 0) {
    set_error("ov_probe_weights: nothing to read");
    return -1.0;
  }
  const auto rate = [&](auto&& read) {
    const double share = static_cast<double>(total) / static_cast<double>(threads);
    return best_rate(
        pool, share,
        [&](int64_t thread) {
          for (int64_t i = 0; i < num; ++i) {
            const int64_t first = begin(*weights[i], thread);
            read(reinterpret_cast<const char*>(weights[i]->data) + first, begin(*weights[i], thread + 1) - first);
          }
        },
        passes);
  };
  return std::max(rate(read_lines<true>), rate(read_lines<false>));
}

extern "C" double ov_probe(ov_pool* pool, int limit) {
  switch (limit) {
    case OV_LIMIT_F32: return f32_rate(pool);
    case OV_LIMIT_BF16: return bf16_rate(pool);
    case OV_LIMIT_INT8: return int8_rate(pool);
    default: set_error("ov_probe: %d is no limit", limit); return -1.0;
  }
}
