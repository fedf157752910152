// The head of a plan: logits, their block maxima, and what is left undone for greedy rows.
#include "linear.h"
#include "plan.h"
#include "weights.h"

using namespace ov;

void ov_plan::run_head(const ov_instr& n, size_t index, const Rows& rows) {
  if (!uses_logit_blocks(rows)) return run_linear(n, index, rows);
  const auto take = [](void* blocks, int64_t first_row, int64_t count_rows, int64_t first, int64_t columns,
                       const float* x, int64_t stride) {
    static_cast<LogitBlocks*>(blocks)->take(first_row, count_rows, first, columns, x, stride);
  };
  const bool keeps = !n.i[1] || !needs_no_logits(*rows.sampling, *rows.out, rows.chunk_first, rows.chunk_rows);
  const LinearSink sink{take, &logit_blocks, keeps};
  run_linear(n, index, rows, &sink);
  if (keeps) return;
  // which id has the largest logit is looked up in its block, computed again
  const View in = view(n.in[0], rows), out = view(n.out[0], rows);
  const LinearSegment segment{
      weights[static_cast<size_t>(n.weight[0])], out.f32(0), out.stride, vector(n.vec[0]), nullptr, 0};
  constexpr int64_t kTiles = LogitBlocks::kColumns / kTileColumns;
  for (int64_t r = 0; r < rows.chunk_rows; ++r) {
    const int32_t block = logit_blocks.best_block(r);
    if (block >= 0) linear_piece(segment, in.data, in.stride, r, kTiles * block, kTiles);
  }
}

bool ov::finds_logit_blocks(const ov_plan_desc& d) {
  const ov_instr *head = nullptr, *draw = nullptr;
  for (int32_t i = 0; i < d.num_sample; ++i) {
    const ov_instr& n = d.sample[i];
    if (n.op == OV_OP_SAMPLE) draw = &n;
    if (n.op == OV_OP_LM_HEAD) {
      if (head) return false;
      head = &n;
    } else if (head && n.op < OV_OP_LM_HEAD) {
      return false;
    }
  }
  return head && draw && head->out[0].buffer == draw->in[0].buffer && head->out[0].col == 0 && draw->in[0].col == 0 &&
         d.weights[head->weight[0]]->n == d.vocab_size;
}
