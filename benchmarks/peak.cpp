// What this machine can do at most, in the units of kernels.py: int8, bf16 and f32 multiply-adds (vectors, and tiles where
// the CPU has them), on N threads at once. A library, so that a limit can be measured right beside what
// is compared with it. Built by machine_peaks.py with -march=native.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

volatile int64_t sink;

// Seconds from the first thread's start of work(thread) to the last one's end. They begin together; one that the machine
// holds up meanwhile works after the others, at a rate that no two have together.
template <class F>
double seconds_of(int threads, F&& work) {
  std::atomic<int> ready{0};
  std::vector<double> starts(static_cast<size_t>(threads)), ends(starts);
  const auto run = [&](int t) {
    ready.fetch_add(1);
    while (ready.load() < threads) {
    }
    starts[static_cast<size_t>(t)] = now();
    work(t);
    ends[static_cast<size_t>(t)] = now();
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (auto& other : others) other.join();
  return *std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end());
}

constexpr int64_t kSteps = 500'000;  // a few milliseconds: the machine's speed changes within hundreds

// Twelve chains of one instruction, kSteps long. All of it is assembly: a compiler makes one chain of equal ones, copies
// registers in between or keeps them on the stack.
#if defined(__AVX512F__)
#define OV_REGISTER "zmm"
#else
#define OV_REGISTER "ymm"
#endif
#define OV_CLEAR(i) "vxorps %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n"
#define OV_TWELVE(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define OV_CHAINS(step)                                                                                            \
  do {                                                                                                             \
    int64_t left = kSteps;                                                                                         \
    asm volatile(OV_TWELVE(OV_CLEAR) OV_CLEAR(14) OV_CLEAR(15) "1:\n" OV_TWELVE(step) "dec %0\njnz 1b\nvzeroupper" \
                 : "+r"(left)                                                                                      \
                 :                                                                                                 \
                 : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",  \
                   "xmm11", "xmm14", "xmm15");                                                                     \
  } while (false)

#if defined(__AVX512VNNI__)
void int8_steps(int) {
#define OV_STEP(i) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #i "\n"
  OV_CHAINS(OV_STEP);
#undef OV_STEP
}
constexpr double kInt8Ops = 12.0 * 128;
#else
void int8_steps(int) {
  __m256i acc[8], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
  for (int j = 0; j < 8; ++j) acc[j] = _mm256_set1_epi32(j);  // else they are one chain
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j)
      acc[j] = _mm256_add_epi32(acc[j], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    asm volatile("" : "+x"(a), "+x"(b));
  }
  for (int i = 1; i < 8; ++i) acc[0] = _mm256_add_epi32(acc[0], acc[i]);
  sink = _mm256_extract_epi32(acc[0], 0);
}
constexpr double kInt8Ops = 8.0 * 64;
#endif

#if defined(__AVX512BF16__)
void bf16_steps(int) {
#define OV_STEP(i) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" #i "\n"
  OV_CHAINS(OV_STEP);
#undef OV_STEP
}
#endif

#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
constexpr int64_t kTileSteps = kSteps / 10;
struct alignas(64) TileConfig {
  uint8_t palette = 1, rest[15] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
template <bool Int8>
void tile_steps(int) {
  const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));  // the intrinsic of some compilers reads eight bytes of it
  for (int64_t i = 0; i < kTileSteps; ++i) {
    if (Int8) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_release();
}
// The kernel must grant the state of the tile registers (XTILEDATA, feature 18) first.
bool tiles_granted() { return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18) == 0; }
#endif

#if defined(__AVX512F__)
constexpr double kFloatOps = 12.0 * 32;
#else
constexpr double kFloatOps = 12.0 * 16;
#endif
void f32_steps(int) {
#define OV_STEP(i) "vfmadd231ps %%" OV_REGISTER "14, %%" OV_REGISTER "15, %%" OV_REGISTER #i "\n"
  OV_CHAINS(OV_STEP);
#undef OV_STEP
}

}  // namespace

// Of one run of some milliseconds: 1e9 operations per second; 0 if the CPU has no such instruction.
extern "C" double peak_rate(const char* name, int threads) {
  const std::string_view what = name;
  const auto rate = [&](double ops, int64_t steps, void (*work)(int)) {
    return ops * static_cast<double>(steps) * threads / seconds_of(threads, work) / 1e9;
  };
  if (what == "int8_gops") return rate(kInt8Ops, kSteps, int8_steps);
  if (what == "f32_gops") return rate(kFloatOps, kSteps, f32_steps);
#if defined(__AVX512BF16__)
  if (what == "bf16_gops") return rate(12.0 * 64, kSteps, bf16_steps);
#endif
#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
  static const bool has_tiles = tiles_granted();
  if (has_tiles) {
    constexpr double kDots = 4.0 * 16 * 16;
    if (what == "tile_int8_gops") return rate(kDots * 128, kTileSteps, tile_steps<true>);
    if (what == "tile_bf16_gops") return rate(kDots * 64, kTileSteps, tile_steps<false>);
  }
#endif
  return 0.0;
}
