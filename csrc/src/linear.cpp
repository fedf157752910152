#include "linear.h"

#include <algorithm>
#include <atomic>

#include "error.h"
#include "linear_block.h"
#include "pause.h"
#include "pool.h"
#include "prepare.h"
#include "runs.h"
#include "scratch.h"
#include "tile_pace.h"

namespace ov {

int linear_input_type(int kind, bool is_prompt) {
  if (kind == OV_F32 || kind == OV_BF16) return kind;
  return is_prompt ? kPromptType : OV_A8;
}

namespace {

// Rows that go over an expanded panel before the next one: the activations of a block stay in the second-level cache.
constexpr int64_t kRowBlock = 128, kPromptRowBlock = 512, kPromptBlockBytes = int64_t{1} << 20;
constexpr bool kPromptsInTiles = kPromptType == OV_BF16;
constexpr int64_t kTileStep = 2;  // kernels take tiles in pairs
static_assert(kTileStep % kDirectTiles == 0 && kTileStep % kPanelTiles == 0 && kTileStep % kFloatTiles == 0);
// A claim costs about 50 ns, so an item should take some microseconds; but each thread should get several.
constexpr int64_t kItemWork = int64_t{1} << 19;  // multiply-adds
constexpr int64_t kItemBytes = int64_t{32} << 10;
constexpr int64_t kItemsPerThread = 6, kTileItemsPerThread = 12;
// Threads get equally many tiles but for one in so many.
constexpr int64_t kFairness = 32;
// A head has thousands of tiles: so many items are enough to share them fairly.
constexpr int64_t kManyItemsPerThread = 64;

// Rows in a form, of one call.
struct Form {
  int64_t first, rows;
  bool is_prompt;
};

// The two ranges of rows, of which either may be empty; one, where they are computed alike and not kept apart.
struct Forms {
  Form range[2];

  Forms(const ov_weight& w, const LinearRows& r, bool apart = false)
      : range{{0, r.generated, false}, {r.generated, 0, true}} {
    if (!apart && linear_input_type(w.kind, true) == linear_input_type(w.kind, false))
      range[0].rows = r.rows;
    else
      range[1].rows = r.rows - r.generated;
  }
};

// Whether threads take the tiles of a linear two by two, whatever segment they are of.
bool takes_pairs(const ov_weight* const* w, int num, int64_t rows, bool is_prompt) {
#if defined(OV_HAS_TILES)
  if (is_prompt || num == 0 || !linear_int8_takes_pairs(w[0]->kind, rows)) return false;
  for (int s = 1; s < num; ++s)
    if (w[s]->kind != w[0]->kind) return false;
  return true;
#else
  (void)w, (void)num, (void)rows, (void)is_prompt;
  return false;
#endif
}

// Tiles that kernels take at once: of a gate, those of a group of what reads its output.
int64_t tile_step(const ov_weight& w, bool is_prompt, bool is_gated) {
  const bool is_rotated = is_gated && linear_input_type(w.kind, is_prompt) == OV_A8R;
  return is_rotated ? kRotatedGroup / kTileColumns : kTileStep;
}

// Tiles of the thread that gets most.
int64_t longest_share(int64_t total_tiles, int64_t tiles, int threads) {
  return ceil_div(ceil_div(total_tiles, tiles), threads) * tiles;
}

int64_t tiles_per_item(const ov_weight& w, bool is_prompt, int64_t rows, int64_t total_tiles, int threads,
                       int64_t tile_step) {
  const bool in_tiles = kPromptsInTiles && linear_input_type(w.kind, is_prompt) == OV_BF16;
  const int64_t work = rows * w.k * kTileColumns;
  int64_t tiles = total_tiles / (threads * kItemsPerThread);
  if (in_tiles && work >= kItemWork) {
    tiles = total_tiles / (threads * kTileItemsPerThread);
  } else {
    const int64_t by_bytes = kItemBytes * w.strip_tiles / w.strip_bytes,
                  by_work = kItemWork * (in_tiles ? kBf16Speed : 1) / work;
    const int64_t least = by_bytes < by_work ? by_bytes : by_work;
    const int64_t fair = total_tiles / (threads * kManyItemsPerThread);
    const int64_t limit = least < fair ? fair : least;
    tiles = tiles < limit ? tiles : limit;
  }
  tiles = tiles < 1 ? tile_step : round_up(tiles, tile_step);
  if (!in_tiles)
    while (tiles > tile_step &&
           (longest_share(total_tiles, tiles, threads) * threads - total_tiles) * kFairness > total_tiles)
      tiles -= tile_step;
#if defined(OV_HAS_TILES)
  if (!is_prompt && linear_int8_in_tiles(w.kind, rows)) {
    // an item begins and ends slowly, so they are larger, but each thread has as many
    constexpr int64_t kMostTilesOfItem = 16;
    const int64_t fair = ceil_div(total_tiles, threads * kItemsPerThread);
    tiles = round_up(fair < kMostTilesOfItem ? fair : kMostTilesOfItem, kTileStep);
    while (ceil_div(total_tiles, tiles) % threads != 0 && tiles < total_tiles) tiles += kTileStep;
  }
#endif
  return tiles;
}

// How a linear is cut: items of tiles of one segment times a block of rows.
struct Cut {
  const ov_weight* weights[kMaxSegments];
  int num_segments;
  int64_t block_rows, row_blocks;
  int64_t step[kMaxSegments], end[kMaxSegments];  // tiles per item; items of a row block up to and with segment s
  int64_t items = 0;                              // of a row block
  bool of_pairs;                                  // an item is a pair of tiles, of all rows

  Cut(const ov_weight* const* w, int num, int64_t rows, bool is_prompt, bool is_gated, int threads)
      : num_segments(num) {
    // nearly equal blocks that begin at multiples of kRowStep
    int64_t limit = kRowBlock;
    if (is_prompt) {
      const int64_t fits = kPromptBlockBytes / ov_row_bytes(kPromptType, w[0]->k);
      limit = fits < kRowBlock ? kRowBlock : fits < kPromptRowBlock ? fits : kPromptRowBlock;
    }
    block_rows = round_up(ceil_div(rows, ceil_div(rows, limit)), kRowStep);
    row_blocks = ceil_div(rows, block_rows);
    of_pairs = takes_pairs(w, num, rows, is_prompt);
    int64_t total_tiles = 0;
    for (int s = 0; s < num; ++s) total_tiles += w[s]->num_tiles;
    for (int s = 0; s < num; ++s) {
      weights[s] = w[s];
      step[s] = of_pairs ? kTileStep
                         : tiles_per_item(*w[s], is_prompt, rows < block_rows ? rows : block_rows,
                                          total_tiles * row_blocks, threads, tile_step(*w[s], is_prompt, is_gated));
      items += ceil_div(w[s]->num_tiles, step[s]);
      end[s] = items;
    }
  }
  // Segment and first tile of an item of a row block.
  int locate(int64_t item, int64_t* first_tile) const {
    int s = 0;
    while (item >= end[s]) ++s;
    *first_tile = (s > 0 ? item - end[s - 1] : item) * step[s];
    return s;
  }
  NextTiles tiles_of(int64_t item) const {
    int64_t tile;
    const int s = locate(item, &tile);
    return next_tiles(*weights[s], tile);
  }
};

void compute(const LinearBlock& b) {
  const int kind = b.segment->weight->kind;
  if (kind == OV_F32 || kind == OV_BF16) return linear_float(b);
#if defined(OV_HAS_TILES)
  if (b.is_prompt) return linear_expanded_tiles(b);
  if (b.call != 0 && linear_int8_in_tiles(b.segment->weight->kind, b.rows)) return linear_int8_tiles(b);
#endif
#if defined(OV_ROTATES_PROMPTS)
  if (b.is_prompt) return b.gate ? linear_rotated_gated(b) : linear_rotated(b);
#endif
  if (b.gate) return linear_int8_gated(b);
  linear_int8(b);
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

// Whether act(x W) * (x V) is computed in one pass, for rows of one form and an output of this element type.
bool gates_in_one_pass(const ov_weight& w, const Form& form, int output) {
  constexpr int64_t kWorthwhile = 8;  // fewer rows are read faster one weight after the other
  const int type = linear_input_type(w.kind, form.is_prompt);
  // every quantised kind reads the same forms
  const int prepared = output == OV_A8 ? linear_input_type(OV_Q8_0, form.is_prompt) : output;
  if (type != prepared) return false;
  if (type == OV_A8R) return w.n % kRotatedGroup == 0;
  return w.n % kGroup == 0 && (type == OV_BF16 ? kPromptsInTiles
                               : type == OV_A8 ? !kPromptsInTiles && form.rows >= kWorthwhile
                                               : false);
}

// Whether rows of either form are prepared apart for an output of linear_act_mul.
constexpr bool keeps_apart(int output) { return kPromptType != OV_A8 && output == OV_A8; }

// The next linear's first items, or of none.
Cut cut_of(const NextLinear& next, int threads) {
  static const Cut kNone(nullptr, 0, 1, false, false, 1);
  if (next.num == 0 || next.rows.rows == 0) return kNone;
  const Forms forms(*next.weights[0], next.rows, keeps_apart(next.gated));
  const Form& first = forms.range[forms.range[0].rows > 0 ? 0 : 1];
  const bool is_one = next.gated >= 0 && gates_in_one_pass(*next.weights[0], first, next.gated);
  return Cut(next.weights, is_one ? 1 : next.num, first.rows, first.is_prompt, is_one, threads);
}

struct Call {
  ov_pool* pool;
  const LinearSegment* segments;
  int num_segments;
  const char* in;
  int64_t in_stride;
  const LinearSink* sink;
  const LinearGate* gate;
};

// What a call does with rows of one form, cut into items.
class FormRun {
 public:
  // `then`: what runs after them, if that is known.
  FormRun(const Call& call, const Form& form, const Cut& cut, const Cut& then, int threads)
      : call_(call), form_(form), cut_(cut), then_(then), threads_(threads), left_(cut.items * cut.row_blocks) {
    static std::atomic<uint64_t> calls{0};
    number_ = calls.fetch_add(1, std::memory_order_relaxed) + 1;
    static thread_local SharedRows kept[Runs::kMaxRuns];  // of the caller; all threads share them
    if (threads == 1 || threads > Runs::kMaxRuns || call.sink || !shares_rows()) return;
    shared_ = kept;
    for (int t = 0; t < threads; ++t) shared_[t].reset();
  }

  // On all threads of the pool.
  void run(ov_pool* pool) {
    const auto on_thread = [&](Taker& taker) {
      if (cut_.of_pairs && !call_.sink) return run_pairs(taker);
      run_items(taker, shared_ ? &shared_[taker.worker()] : nullptr);
      if (shared_) help();
    };
    parallel_takers(pool, cut_.items * cut_.row_blocks, on_thread, shared_ != nullptr);
  }

 private:
  bool is_shared(int kind, int64_t rows) const {
#if defined(OV_HAS_TILES)
    return linear_shares_rows(kind, form_.is_prompt, rows);
#else
    (void)kind, (void)rows;
    return false;
#endif
  }
  bool shares_rows() const {
    const auto is_one = [&](const LinearSegment& s) { return is_shared(s.weight->kind, cut_.block_rows); };
    return std::any_of(call_.segments, call_.segments + call_.num_segments, is_one);
  }

  void run_items(Taker& taker, SharedRows* shared) {
    for (int64_t i; (i = taker.take()) >= 0;) {
      const int64_t next_item = taker.is_last(i) ? -1 : (i + 1) % cut_.items;
      LinearBlock b = block(cut_.block_rows * (i / cut_.items));
      const int s = cut_.locate(i % cut_.items, &b.first_tile);
      b.segment = &call_.segments[s];
      const int64_t left = b.segment->weight->num_tiles - b.first_tile;
      b.tiles = left < cut_.step[s] ? left : cut_.step[s];
      b.after = after(i, taker);
      if (next_item >= 0) b.next = &call_.segments[cut_.locate(next_item, &b.next_tile)];
      if (shared && is_shared(b.segment->weight->kind, b.rows)) b.shared = shared;
      call_.sink ? compute_to_sink(b, *call_.sink) : compute(b);
      if (shared) left_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  // Takes rows of what others multiply, until all items are done or nothing has been offered for a while.
  void help() const {
#if defined(OV_HAS_TILES)
    constexpr int kPatience = 1000;  // about as long as the pool spins
    for (int waited = 0; left_.load(std::memory_order_relaxed) > 0 && waited < kPatience; ++waited) {
      for (int t = 0; t < threads_; ++t) {
        shared_[t].want();
        if (shared_[t].has_parts() && linear_take_rows(shared_[t])) waited = 0;
      }
      cpu_pause();
    }
#endif
  }

  void run_pairs(Taker& taker) const {
    struct Context {
      const FormRun& run;
      Taker& taker;
    } context{*this, taker};
    const TilePairs pairs{[](void* c, TilePair* pair) {
                            const auto& [run, from] = *static_cast<Context*>(c);
                            const int64_t i = from.take();
                            if (i < 0) return false;
                            pair->segment = &run.call_.segments[run.cut_.locate(i, &pair->tile)];
                            pair->after = run.after(i, from);
                            return true;
                          },
                          &context};
    LinearBlock b = block(0);
    b.segment = call_.segments;
    b.pairs = &pairs;
    compute(b);
  }

  // Rows from `skipped` on, of no tiles yet.
  LinearBlock block(int64_t skipped) const {
    LinearBlock b = {};
    b.in = call_.in;
    b.in_stride = call_.in_stride;
    b.first_row = form_.first + skipped;
    b.rows = form_.rows - skipped < cut_.block_rows ? form_.rows - skipped : cut_.block_rows;
    b.is_prompt = form_.is_prompt;
    b.gate = call_.gate;
    b.call = number_;
    return b;
  }

  NextTiles after(int64_t item, const Taker& taker) const {
    if (!taker.is_last(item)) return cut_.tiles_of((item + 1) % cut_.items);
    if (then_.items == 0) return {};
    return then_.tiles_of(Runs::begin(then_.items, threads_, taker.worker()));
  }

  const Call& call_;
  const Form& form_;
  const Cut &cut_, &then_;
  const int threads_;
  uint64_t number_;
  SharedRows* shared_ = nullptr;           // by thread
  alignas(64) std::atomic<int64_t> left_;  // items that are not done, where rows are shared
};

void run_form(const Call& call, const Form& form, const Cut& then) {
  const int threads = call.pool ? pool_size(call.pool) : 1;
  const ov_weight* weights[kMaxSegments];
  for (int s = 0; s < call.num_segments; ++s) weights[s] = call.segments[s].weight;
  const Cut cut(weights, call.num_segments, form.rows, form.is_prompt, call.gate != nullptr, threads);
  FormRun(call, form, cut, then, threads).run(call.pool);
}

}  // namespace

void linear_run(ov_pool* pool, const LinearSegment* segments, int num_segments, const void* in, int64_t in_stride,
                const LinearRows& rows, const NextLinear& next, const LinearSink* sink) {
  const Call call{pool, segments, num_segments, static_cast<const char*>(in), in_stride, sink, nullptr};
  const Forms forms(*segments[0].weight, rows);
  const Cut then = cut_of(next, pool ? pool_size(pool) : 1);
  for (const Form& form : forms.range)
    if (form.rows > 0) run_form(call, form, then);
}

void linear_act_mul(ov_pool* pool, const LinearSegment* segments, Act act, const View& out, const void* in,
                    int64_t in_stride, const LinearRows& rows, const NextLinear& next, float* scratch,
                    int64_t scratch_stride) {
  const LinearGate gate{segments + 1, act, out};
  const ov_weight& w = *segments[0].weight;
  const Cut then = cut_of(next, pool ? pool_size(pool) : 1);
  const auto factor = [](const LinearSegment& s) {
    View v;
    v.data = reinterpret_cast<char*>(s.out);
    v.stride = s.out_stride;
    return v;
  };
  for (const Form& form : Forms(w, rows, keeps_apart(out.dtype)).range) {
    if (form.rows <= 0) continue;
    if (gates_in_one_pass(w, form, out.dtype)) {
      run_form({pool, segments, 1, static_cast<const char*>(in), in_stride, nullptr, &gate}, form, then);
      continue;
    }
    run_form({pool, segments, 2, static_cast<const char*>(in), in_stride, nullptr, nullptr}, form, then);
    act_mul(pool, factor(segments[0]).from(form.first), factor(segments[1]).from(form.first), act, out.from(form.first),
            form.rows, scratch, scratch_stride);
  }
}

void linear_piece(const LinearSegment& segment, const void* in, int64_t in_stride, int64_t row, int64_t first_tile,
                  int64_t tiles) {
  const int64_t left = segment.weight->num_tiles - first_tile;
  compute({&segment,
           static_cast<const char*>(in),
           in_stride,
           row,
           1,
           first_tile,
           left < tiles ? left : tiles,
           false,
           nullptr,
           {},
           nullptr,
           0});
}

}  // namespace ov

int ov_input_type(int kind, int is_prompt) { return ov::linear_input_type(kind, is_prompt != 0); }

void ov_force_tile_pace(int pace) {
#if defined(OV_HAS_TILES)
  ov::TilePace::forced() = pace;
#else
  (void)pace;
#endif
}

int ov_linear(ov_pool* pool, int num_segments, const ov_weight* const* weights, int is_prompt, int64_t rows,
              const float* in, float* const* outs) {
  using namespace ov;
  if (num_segments < 1 || num_segments > kMaxSegments)
    return set_error("a linear has 1 to %d segments, got %d", kMaxSegments, num_segments);
  const int type = linear_input_type(weights[0]->kind, is_prompt != 0);
  const int64_t k = weights[0]->k;
  LinearSegment segments[kMaxSegments];
  for (int s = 0; s < num_segments; ++s) {
    if (weights[s]->k != k || linear_input_type(weights[s]->kind, is_prompt != 0) != type)
      return set_error("segment %d reads another input than segment 0", s);
    segments[s] = {weights[s], outs[s], weights[s]->n * 4, nullptr, nullptr, 0};
  }
  static thread_local Scratch scratch;
  const int64_t stride = ov_row_bytes(type, k);
  void* prepared = scratch.take(stride * (rows > 0 ? rows : 1));
  View rows_in;
  rows_in.data = static_cast<char*>(prepared);
  rows_in.stride = stride;
  rows_in.dtype = type;
  rows_in.cols = static_cast<int32_t>(k);
  prepare_rows(pool, rows, in, k * 4, rows_in);
  linear_run(pool, segments, num_segments, prepared, stride, {rows, is_prompt ? 0 : rows}, NextLinear());
  return 0;
}
