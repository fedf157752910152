#include "linear.h"

#include "error.h"
#include "linear_block.h"
#include "pool.h"
#include "prepare.h"
#include "scratch.h"

namespace ov {

int linear_input_type(const ov_weight& w) { return w.kind == OV_F32 || w.kind == OV_BF16 ? w.kind : OV_A8; }

namespace {

// Rows that go over an expanded panel before the next one: the activations of a block stay in the second-level cache.
constexpr int64_t kRowBlock = 128;
constexpr int64_t kTileStep = 2;  // kernels take tiles in pairs
static_assert(kTileStep % kDirectTiles == 0 && kTileStep % kPanelTiles == 0 && kTileStep % kFloatTiles == 0);
// A claim costs about 50 ns, so an item should take some microseconds; but each thread should get several.
constexpr int64_t kItemWork = int64_t{1} << 19;  // multiply-adds
constexpr int64_t kItemBytes = int64_t{32} << 10;
constexpr int64_t kItemsPerThread = 6;

int64_t tiles_per_item(const ov_weight& w, int64_t rows, int64_t total_tiles, int threads) {
  const int64_t by_bytes = kItemBytes / w.tile_bytes;
  const int64_t work = w.kind == OV_BF16 ? kItemWork * kBf16Speed : kItemWork;
  const int64_t by_work = work / (rows * w.k * kTileColumns);
  int64_t tiles = by_bytes < by_work ? by_bytes : by_work;
  const int64_t fair = total_tiles / (threads * kItemsPerThread);
  tiles = tiles < fair ? tiles : fair;
  return tiles < 1 ? kTileStep : round_up(tiles, kTileStep);
}

void compute(const LinearBlock& b) {
  if (linear_input_type(*b.segment->weight) == OV_A8)
    linear_int8(b);
  else
    linear_float(b);
}

// Into the segment's output, or into memory of this thread, and then to the sink.
void compute_to_sink(LinearBlock b, const LinearSink& sink) {
  LinearSegment segment = *b.segment;
  const int64_t first = b.first_tile * kTileColumns, left = segment.weight->n - first;
  const int64_t columns = left < b.tiles * kTileColumns ? left : b.tiles * kTileColumns;
  if (!sink.keeps_output) {
    static thread_local Scratch scratch;
    segment.out_stride = 4 * b.tiles * kTileColumns;
    // addressed from the first row and column of the whole output
    segment.out =
        static_cast<float*>(scratch.take(b.rows * segment.out_stride)) - first - b.first_row * (segment.out_stride / 4);
    b.segment = &segment;
  }
  compute(b);
  const int64_t stride = segment.out_stride / 4;
  sink.take(sink.context, b.first_row, b.rows, first, columns, segment.out + first + b.first_row * stride, stride);
}

}  // namespace

void linear_run(ov_pool* pool, const LinearSegment* segments, int num_segments, const void* in, int64_t in_stride,
                int64_t rows, const LinearSink* sink) {
  if (rows <= 0) return;
  const int threads = pool ? pool_size(pool) : 1;
  int64_t total_tiles = 0;
  for (int s = 0; s < num_segments; ++s) total_tiles += segments[s].weight->num_tiles;
  // nearly equal blocks that begin at multiples of kRowStep
  const int64_t block_rows = round_up(ceil_div(rows, ceil_div(rows, kRowBlock)), kRowStep);
  const int64_t row_blocks = ceil_div(rows, block_rows);
  int64_t step[kMaxSegments], end[kMaxSegments];  // tiles per item; items of a row block up to and with segment s
  int64_t items = 0;
  for (int s = 0; s < num_segments; ++s) {
    const ov_weight& w = *segments[s].weight;
    step[s] = tiles_per_item(w, rows < block_rows ? rows : block_rows, total_tiles * row_blocks, threads);
    items += ceil_div(w.num_tiles, step[s]);
    end[s] = items;
  }
  parallel_for(pool, items * row_blocks, [&](int64_t item, int) {
    const int64_t row_block = item / items;
    int64_t index = item % items;
    int s = 0;
    while (index >= end[s]) ++s;
    if (s > 0) index -= end[s - 1];
    LinearBlock b;
    b.segment = &segments[s];
    b.in = static_cast<const char*>(in);
    b.in_stride = in_stride;
    b.first_row = block_rows * row_block;
    b.rows = rows - b.first_row < block_rows ? rows - b.first_row : block_rows;
    b.first_tile = index * step[s];
    const int64_t left = b.segment->weight->num_tiles - b.first_tile;
    b.tiles = left < step[s] ? left : step[s];
    sink ? compute_to_sink(b, *sink) : compute(b);
  });
}

void linear_piece(const LinearSegment& segment, const void* in, int64_t in_stride, int64_t row, int64_t first_tile,
                  int64_t tiles) {
  const int64_t left = segment.weight->num_tiles - first_tile;
  compute({&segment, static_cast<const char*>(in), in_stride, row, 1, first_tile, left < tiles ? left : tiles});
}

}  // namespace ov

int ov_linear(ov_pool* pool, int num_segments, const ov_weight* const* weights, int64_t rows, const float* in,
              float* const* outs) {
  using namespace ov;
  if (num_segments < 1 || num_segments > kMaxSegments)
    return set_error("a linear has 1 to %d segments, got %d", kMaxSegments, num_segments);
  const int type = linear_input_type(*weights[0]);
  const int64_t k = weights[0]->k;
  LinearSegment segments[kMaxSegments];
  for (int s = 0; s < num_segments; ++s) {
    if (weights[s]->k != k || linear_input_type(*weights[s]) != type)
      return set_error("segment %d reads another input than segment 0", s);
    segments[s] = {weights[s], outs[s], weights[s]->n * 4, nullptr, nullptr, 0};
  }
  static thread_local Scratch scratch;
  const int64_t stride = ov_row_bytes(type, k);
  void* prepared = scratch.take(stride * (rows > 0 ? rows : 1));
  prepare_rows(pool, type, rows, k, in, k * 4, prepared, stride);
  linear_run(pool, segments, num_segments, prepared, stride, rows);
  return 0;
}
