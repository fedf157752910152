#include "act.h"

#include "act_lanes.h"
#include "octavo.h"
#include "prepare.h"

namespace ov {
namespace {

template <class F>
inline void map_row(const float* x, float* y, int32_t cols, F&& f) {
  int32_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) store(y + c, f(load(x + c)));
  if (c < cols) store_part(y + c, f(load_part(x + c, cols - c)), cols - c);
}

template <class F>
inline void map_rows2(const float* a, const float* b, float* y, int32_t cols, F&& f) {
  int32_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) store(y + c, f(load(a + c), load(b + c)));
  if (c < cols) store_part(y + c, f(load_part(a + c, cols - c), load_part(b + c, cols - c)), cols - c);
}

constexpr int64_t kActWork = 8;  // an elementary function costs about eight plain operations

}  // namespace

void add(ov_pool* pool, View a, View b, View out, int64_t rows) {
  parallel_rows(pool, rows, out.cols, [&](int64_t r, int) {
    map_rows2(a.f32(r), b.f32(r), out.f32(r), out.cols, [](Lanes x, Lanes y) { return x + y; });
  });
}

void mul(ov_pool* pool, View a, View b, View out, int64_t rows) {
  parallel_rows(pool, rows, out.cols, [&](int64_t r, int) {
    map_rows2(a.f32(r), b.f32(r), out.f32(r), out.cols, [](Lanes x, Lanes y) { return x * y; });
  });
}

void scale(ov_pool* pool, View a, float factor, View out, int64_t rows) {
  parallel_rows(pool, rows, out.cols, [&](int64_t r, int) {
    map_row(a.f32(r), out.f32(r), out.cols, [&](Lanes x) { return x * set1(factor); });
  });
}

void act(ov_pool* pool, View a, Act kind, View out, int64_t rows) {
  with_act(kind, [&](auto f) {
    parallel_rows(pool, rows, out.cols * kActWork, [&](int64_t r, int) { map_row(a.f32(r), out.f32(r), out.cols, f); });
  });
}

void soft_cap(ov_pool* pool, View a, float cap, int64_t rows) {
  parallel_rows(pool, rows, a.cols * kActWork, [&](int64_t r, int) {
    map_row(a.f32(r), a.f32(r), a.cols, [&](Lanes x) { return set1(cap) * vtanh(x / set1(cap)); });
  });
}

void act_mul(ov_pool* pool, View a, View b, Act kind, View out, int64_t rows, float* scratch, int64_t scratch_stride) {
  with_act(kind, [&](auto f) {
    parallel_rows(pool, rows, out.cols * kActWork, [&](int64_t r, int worker) {
      float* y = out.dtype == OV_F32 ? out.f32(r) : scratch + worker * scratch_stride;
      map_rows2(a.f32(r), b.f32(r), y, out.cols, [&](Lanes g, Lanes u) { return f(g) * u; });
      if (out.dtype != OV_F32) prepare_row(out, r, y);
    });
  });
}

}  // namespace ov
