#include "weights.h"

#include <atomic>
#include <new>

#include "convert.h"
#include "error.h"
#include "tile_codec.h"
#include "weight_memory.h"
#include "weights_pack.h"

namespace ov {

namespace {

// Byte `i` of the codes of column c in quad q.
template <int Kind>
inline void column_codes(const uint8_t* group, int64_t c, uint8_t* out) {
  using T = Tile<Kind>;
  if constexpr (T::kBits == 8) {
    for (int q = 0; q < 8; ++q) memcpy(out + 4 * q, group + T::kVectorStep * q + 4 * c, 4);
    return;
  }
  uint32_t low[4], high[2] = {};
  for (int q = 0; q < 4; ++q) memcpy(&low[q], group + T::kLowAt + T::kVectorStep * q + 4 * c, 4);
  for (int i = 0; i < T::kLowAt / T::kVectorStep; ++i) memcpy(&high[i], group + T::kVectorStep * i + 4 * c, 4);
  for (int q = 0; q < 8; ++q) {
    uint32_t four = low[q & 3] >> 4 * (q >> 2) & 0x0f0f0f0fu;
    if constexpr (T::kBits == 5) four |= (high[0] >> q & 0x01010101u) << 4;
    if constexpr (T::kBits == 6) four |= (high[q >> 2] >> 2 * (q & 3) & 0x03030303u) << 4;
    memcpy(out + 4 * q, &four, 4);
  }
}

template <int Kind>
void quantized_row(const ov_weight& w, int64_t row, float* out) {
  using T = Tile<Kind>;
  const int64_t tile = row / kTileColumns, c = row % kTileColumns;
  const uint8_t* const all = tile_codes<Kind>(w, tile);
  ScaleReader<Kind> reader(tile_scales<Kind>(w, tile));
  for (int64_t g = 0; g < w.k / 32; ++g) {
    const GroupScales s = reader.read(g);
    alignas(64) float first[kLanes], second[kLanes];
    store(first, s.first);
    store(second, s.second);
    uint8_t codes[32];
    column_codes<Kind>(all + codes_offset<Kind>(g), c, codes);
    for (int i = 0; i < 32; ++i) {
      const float scale = T::kHalves && i >= 16 ? second[c] : first[c];
      const float value = scale * static_cast<float>(codes[i] - T::kOffset);
      out[32 * g + i] = T::kMinimum ? value + second[c] : value;
    }
  }
}

}  // namespace

void weight_row(const ov_weight& w, int64_t row, float* out) {
  if (visit_quantized(w.kind, [&]<int Kind>() { quantized_row<Kind>(w, row, out); })) return;
  const uint8_t* tile = float_tile(w, row / kTileColumns);
  const int64_t c = row % kTileColumns;
  const int64_t step = w.strip_tiles * kTileColumns;  // words from a vector to the next
  if (w.kind == OV_F32) {
    const float* p = reinterpret_cast<const float*>(tile) + c;
    for (int64_t k = 0; k < w.k; ++k) out[k] = p[k * step];
  } else {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(tile) + 2 * c;
    for (int64_t k = 0; k < w.k; ++k) out[k] = from_bf16(p[k / 2 * 2 * step + k % 2]);
  }
}

}  // namespace ov

using namespace ov;

ov_weight* ov_weight_create(ov_pool* pool, int src_type, const void* src, int64_t n, int64_t k, int kind,
                            const int32_t* row_perm) {
  const TypeInfo* type = type_info(src_type);
  const TypeInfo* stored = type_info(kind);
  if (!type || !stored) {
    set_error("weight type %d is not supported", type ? kind : src_type);
    return nullptr;
  }
  if (kind != OV_F32 && kind != OV_BF16 && kind != src_type) {
    set_error("a weight of type %s cannot be stored as %s, only as it is, as BF16 or as F32", type->name, stored->name);
    return nullptr;
  }
  if (kind == OV_F16) {
    set_error("F16 weights are stored as BF16 or F32");
    return nullptr;
  }
  if (n <= 0 || k <= 0) {
    set_error("a weight needs rows and columns, got [%lld, %lld]", static_cast<long long>(n),
              static_cast<long long>(k));
    return nullptr;
  }
  if (k % type->block) {
    set_error("a row of %lld values cannot be of type %s: blocks have %d values", static_cast<long long>(k), type->name,
              type->block);
    return nullptr;
  }
  if (row_perm)
    for (int64_t i = 0; i < n; ++i)
      if (row_perm[i] < 0 || row_perm[i] >= n) {
        set_error("row permutation entry %lld is %d, outside [0, %lld)", static_cast<long long>(i), row_perm[i],
                  static_cast<long long>(n));
        return nullptr;
      }
  ov_weight* w = new (std::nothrow) ov_weight{};
  if (!w) {
    set_error("out of memory");
    return nullptr;
  }
  static std::atomic<uint64_t> created{0};
  w->number = created.fetch_add(1, std::memory_order_relaxed) + 1;
  w->kind = kind;
  w->n = n;
  w->k = k;
  weight_layout(w);
  const WeightMemory memory = weight_memory_take(w->bytes);
  if (!memory.data) {
    set_error("cannot map %lld bytes for a weight", static_cast<long long>(w->bytes));
    delete w;
    return nullptr;
  }
  w->data = memory.data;
  w->slab = memory.slab;
  weight_pack(pool, src_type, src, row_perm, w);
  return w;
}

void ov_weight_destroy(ov_weight* w) {
  if (!w) return;
  weight_memory_give(w->slab);
  delete w;
}

int64_t ov_weight_bytes(const ov_weight* w) { return w->bytes; }

int ov_weight_dequantize(const ov_weight* w, int64_t first, int64_t count, float* out) {
  if (first < 0 || count < 0 || first + count > w->n)
    return set_error("rows [%lld, %lld) are outside a weight of %lld rows", static_cast<long long>(first),
                     static_cast<long long>(first + count), static_cast<long long>(w->n));
  for (int64_t r = 0; r < count; ++r) weight_row(*w, first + r, out + r * w->k);
  return 0;
}
