// The linears of a plan, and the forms of what they read.
#include "linear.h"

#include <algorithm>

#include "error.h"
#include "plan.h"

using namespace ov;

void ov_plan::find_next_linears() {
  const auto is_linear = [](const ov_instr& n) {
    return n.op == OV_OP_LINEAR || n.op == OV_OP_LINEAR_ACT_MUL || n.op == OV_OP_LM_HEAD;
  };
  const auto head = std::find_if(sample.begin(), sample.end(), is_linear);
  const ov_instr* then = head == sample.end() ? nullptr : &*head;
  next_linear.resize(forward.size());
  for (size_t i = forward.size(); i-- > 0;) {
    next_linear[i] = then;
    if (is_linear(forward[i])) then = &forward[i];
  }
}

int ov_plan::row_type(const ov_buffer& b, int64_t row) const {
  if (b.dtype != OV_A8) return b.dtype;
  return linear_input_type(
      OV_Q8_0, (b.rows == OV_ROWS_T && row >= num_generated) || (b.rows == OV_ROWS_S && row >= num_selected_generated));
}

int ov_plan::set_forms(const ov_step& step) {
  num_generated = prompts_as_generated ? max_tokens : step.num_generated;
  const int32_t *first = step.logit_rows, *end = first ? first + step.num_logits : nullptr;
  const auto is_generated = [&](int32_t token) { return token < num_generated; };
  num_selected_generated = static_cast<int32_t>(std::find_if_not(first, end, is_generated) - first);
  if (std::any_of(first + num_selected_generated, end, is_generated))
    return set_error("step: logit_rows has a prompt's token before a generated one");
  return 0;
}

void ov_plan::run_linear(const ov_instr& n, size_t index, const Rows& rows, const LinearSink* sink) {
  LinearSegment segments[kMaxSegments];
  const int max_segments = n.op == OV_OP_LM_HEAD ? 1 : kMaxSegments;
  const bool is_gated = n.op == OV_OP_LINEAR_ACT_MUL;
  const View in0 = view(n.in[0], rows), residual = view(n.in[1], rows);
  int used = 0;
  for (; used < max_segments && n.weight[used] >= 0; ++used) {
    const View out = view(n.out[is_gated ? used + 1 : used], rows);
    const bool has_residual = n.op == OV_OP_LINEAR && (n.i[0] >> used & 1);
    segments[used] = {weights[static_cast<size_t>(n.weight[used])], out.f32(0),     out.stride, vector(n.vec[used]),
                      has_residual ? residual.f32(0) : nullptr,     residual.stride};
  }
  NextLinear next;
  if (!rows.is_sample) {
    const ov_instr* then = next_linear[index];
    if (then)
      for (; next.num < kMaxSegments && then->weight[next.num] >= 0; ++next.num)
        next.weights[next.num] = weights[static_cast<size_t>(then->weight[next.num])];
    if (then && then->op == OV_OP_LINEAR_ACT_MUL) next.gated = buffers[static_cast<size_t>(then->out[0].buffer)].dtype;
    const int64_t tokens = rows.step->num_tokens, selected = rows.step->num_logits;
    if (!then || then->rows == OV_ROWS_T)
      next.rows = {tokens, std::min<int64_t>(num_generated, tokens)};
    else
      next.rows = {selected, then->rows == OV_ROWS_S ? std::min<int64_t>(num_selected_generated, selected) : selected};
  }
  const int64_t count_rows = count(n, rows);
  const LinearRows forms{count_rows, std::min(count_rows, in0.num_generated)};
  if (is_gated)
    linear_act_mul(pool, segments, static_cast<Act>(n.i[0]), view(n.out[0], rows), in0.data, in0.stride, forms, next,
                   row_scratch, row_scratch_cols);
  else
    linear_run(pool, segments, used, in0.data, in0.stride, forms, next, sink);
}
