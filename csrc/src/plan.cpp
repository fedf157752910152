#include "plan.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "act.h"
#include "embed.h"
#include "error.h"
#include "lanes.h"
#include "linear.h"
#include "norm.h"
#include "prepare.h"
#include "rope_kv.h"
#include "weights.h"

using namespace ov;

namespace {

uint64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1000000000u + static_cast<uint64_t>(ts.tv_nsec);
}

constexpr int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ov_plan::~ov_plan() {
  if (arena) ov_memory_unmap(arena, arena_bytes);
  if (memory) ov_memory_unmap(memory, memory_bytes);
}

bool ov_plan::build(const ov_plan_desc& d) {
  if (!check_plan(d, &is_chunked)) return false;
  buffers.assign(d.buffers, d.buffers + d.num_buffers);
  forward.assign(d.forward, d.forward + d.num_forward);
  sample.assign(d.sample, d.sample + d.num_sample);
  weights.assign(d.weights, d.weights + d.num_weights);
  vectors.assign(d.vectors, d.vectors + d.num_vectors);
  max_tokens = d.max_tokens;
  max_requests = d.max_requests;
  logit_chunk = d.logit_chunk;
  block_size = d.block_size;
  vocab_size = d.vocab_size;
  prompts_as_generated = d.prompts_as_generated != 0;
  num_generated = num_selected_generated = max_tokens;
  arena_bytes = d.arena_bytes;
  for (int32_t i = 0; i < d.num_kv_layers; ++i) {
    const ov_kv_layer& l = d.kv_layers[i];
    kv_layers.push_back({kv_shape(l, block_size), l.group, l.layer_offset_bytes, nullptr, 0});
    num_groups = std::max(num_groups, l.group + 1);
  }
  timer_ns.assign(forward.size() + sample.size(), 0);
  has_logit_blocks = finds_logit_blocks(d);
  if (d.kv_pool && set_kv(d.kv_pool, d.kv_block_stride_bytes) != 0) return false;
  return allocate();
}

int ov_plan::set_kv(void* kv_pool, int64_t block_stride_bytes) {
  for (const KvLayer& layer : kv_layers) {
    if (!kv_pool || layer.offset + layer.shape.share_bytes > block_stride_bytes || block_stride_bytes % 64 != 0)
      return set_error("plan: a KV block of %lld bytes does not hold a layer's share of %lld at offset %lld",
                       static_cast<long long>(block_stride_bytes), static_cast<long long>(layer.shape.share_bytes),
                       static_cast<long long>(layer.offset));
  }
  for (KvLayer& layer : kv_layers) {
    layer.pool = static_cast<char*>(kv_pool);
    layer.block_stride = block_stride_bytes;
  }
  return 0;
}

bool ov_plan::allocate() {
  const int workers = pool_size(pool);
  int heads_per_kv = 0, k_dim = 0, v_dim = 0;
  for (const ov_instr& n : forward) {
    int table = -1;
    switch (n.op) {
      case OV_OP_RMS_NORM:
      case OV_OP_LAYER_NORM: row_scratch_cols = std::max(row_scratch_cols, int64_t{n.i[0]} * n.i[1]); break;
      case OV_OP_ACT_MUL:
      case OV_OP_LINEAR_ACT_MUL:
        row_scratch_cols = std::max(row_scratch_cols, int64_t{buffers[static_cast<size_t>(n.out[0].buffer)].cols});
        break;
      case OV_OP_ATTENTION: {
        const KvShape& s = kv_layers[static_cast<size_t>(n.i[1])].shape;
        heads_per_kv = std::max(heads_per_kv, n.i[0] / s.num_kv_heads);
        k_dim = std::max(k_dim, s.k_pad);
        v_dim = std::max(v_dim, s.v_dim);
        if (n.i[3] != OV_F32 && s.v_dim % kPartColumns != 0)
          attention_cols = std::max(attention_cols, int64_t{n.i[0]} * s.v_dim);
        break;
      }
      case OV_OP_ROPE:
      case OV_OP_ROPE_KV: {
        const RopeTable wanted{vector(n.vec[0]), n.i[2] / 2, n.f[0], nullptr, nullptr};
        const auto found = std::find_if(rope_tables.begin(), rope_tables.end(), [&](const RopeTable& t) {
          return t.inv_freq == wanted.inv_freq && t.half == wanted.half && t.scaling == wanted.scaling;
        });
        table = static_cast<int>(found - rope_tables.begin());
        if (found == rope_tables.end()) rope_tables.push_back(wanted);
        break;
      }
      default: break;
    }
    rope_of_instr.push_back(table);
  }
  for (const ov_instr& n : sample) {
    if (n.op == OV_OP_RMS_NORM || n.op == OV_OP_LAYER_NORM)
      row_scratch_cols = std::max(row_scratch_cols, int64_t{n.i[0]} * n.i[1]);
    if (n.op == OV_OP_ACT_MUL || n.op == OV_OP_LINEAR_ACT_MUL)
      row_scratch_cols = std::max(row_scratch_cols, int64_t{buffers[static_cast<size_t>(n.out[0].buffer)].cols});
    if (n.op == OV_OP_LOGPROBS) reporting = {n.i[0] ? LogprobsMode::kProcessed : LogprobsMode::kRaw, n.i[1] != 0};
  }
  row_scratch_cols = align64(row_scratch_cols);

  find_next_linears();

  const int64_t ids = align64(4 * int64_t{max_tokens});
  const int64_t rows = align64(4 * row_scratch_cols * workers);
  const int64_t attended = align64(4 * attention_cols) * max_tokens;
  int64_t tables = 0;
  for (const RopeTable& t : rope_tables) tables += 2 * align64(4 * int64_t{t.half} * max_tokens);
  memory_bytes = ids + rows + attended + tables;
  memory = static_cast<char*>(ov_memory_map(memory_bytes));
  arena = static_cast<char*>(ov_memory_map(std::max<int64_t>(arena_bytes, 64)));
  if (!memory || !arena) {
    set_error("plan: out of memory for an arena of %lld bytes", static_cast<long long>(arena_bytes + memory_bytes));
    return false;
  }
  char* p = memory;
  token_ids = reinterpret_cast<int32_t*>(p);
  p += ids;
  row_scratch = reinterpret_cast<float*>(p);
  p += rows;
  attention_rows = reinterpret_cast<float*>(p);
  p += attended;
  for (RopeTable& t : rope_tables) {
    const int64_t bytes = align64(4 * int64_t{t.half} * max_tokens);
    t.cos = reinterpret_cast<float*>(p);
    t.sin = reinterpret_cast<float*>(p + bytes);
    p += 2 * bytes;
  }
  if (heads_per_kv > 0 && !attention_scratch.allocate(workers, heads_per_kv, k_dim, v_dim, max_tokens)) {
    set_error("plan: out of memory for attention");
    return false;
  }
  if ((!sample.empty() && !sampler_scratch.allocate(workers, vocab_size, logit_chunk)) ||
      (has_logit_blocks && !logit_blocks.allocate(vocab_size))) {
    set_error("plan: out of memory for sampling");
    return false;
  }
  return true;
}

View ov_plan::view(const ov_operand& o, const Rows& rows) const {
  if (o.buffer < 0) return {};
  const ov_buffer& b = buffers[static_cast<size_t>(o.buffer)];
  View v;
  v.data = arena + b.offset_bytes + (b.dtype == OV_F32 ? int64_t{4} * o.col : 0);
  v.stride = b.stride_bytes;
  v.dtype = b.dtype;
  v.cols = b.cols - o.col;
  if (b.rows == OV_ROWS_T) v.num_generated = num_generated;
  if (b.rows == OV_ROWS_S) v.num_generated = num_selected_generated;
  if (rows.is_sample && b.rows == OV_ROWS_L && !is_chunked[static_cast<size_t>(o.buffer)])
    v.data += rows.chunk_first * b.stride_bytes;
  return v;
}

int64_t ov_plan::count(const ov_instr& n, const Rows& rows) const {
  if (rows.is_sample) return rows.chunk_rows;
  if (n.rows == OV_ROWS_T) return rows.step->num_tokens;
  return n.rows == OV_ROWS_R ? rows.step->num_requests : rows.step->num_logits;
}

int ov_plan::check_step(const ov_step& s) const {
  if (s.version != OV_ABI_VERSION || s.bytes != sizeof(ov_step))
    return set_error("step: version %u of %u bytes, expected %d of %zu", s.version, s.bytes, OV_ABI_VERSION,
                     sizeof(ov_step));
  if (s.num_tokens < 0 || s.num_tokens > max_tokens)
    return set_error("step: num_tokens is %d, the plan takes at most %d", s.num_tokens, max_tokens);
  if (s.num_requests < 0 || s.num_requests > max_requests)
    return set_error("step: num_requests is %d, the plan takes at most %d", s.num_requests, max_requests);
  if (s.num_logits < 0 || s.num_logits > max_tokens)
    return set_error("step: num_logits is %d, the plan takes at most %d", s.num_logits, max_tokens);
  if (s.num_generated < 0 || s.num_generated > s.num_tokens)
    return set_error("step: num_generated is %d, outside the %d tokens", s.num_generated, s.num_tokens);
  if (s.num_groups < num_groups)
    return set_error("step: num_groups is %d, the plan needs %d", s.num_groups, num_groups);
  for (int32_t l = 0; l < s.num_logits && s.logit_rows; ++l)
    if (s.logit_rows[l] < 0 || s.logit_rows[l] >= s.num_tokens)
      return set_error("step: logit_rows[%d] is %d, outside the %d tokens", l, s.logit_rows[l], s.num_tokens);
  if (!kv_layers.empty()) {
    if (!kv_layers[0].pool) return set_error("step: the plan has no KV pool yet (ov_plan_set_kv)");
    if (!s.query_start || !s.seq_lens || !s.slot_mapping || !s.block_tables)
      return set_error(
          "step: query_start, seq_lens, slot_mapping and "
          "block_tables are needed");
    if (s.query_start[0] != 0 || s.query_start[s.num_requests] != s.num_tokens)
      return set_error("step: query_start must run from 0 to num_tokens %d", s.num_tokens);
    for (int32_t r = 0; r < s.num_requests; ++r) {
      const int32_t length = s.query_start[r + 1] - s.query_start[r];
      if (length < 0 || s.seq_lens[r] < length || s.seq_lens[r] > s.block_table_stride * block_size)
        return set_error(
            "step: request %d has %d tokens in the step, length "
            "%d and a table of %lld blocks",
            r, length, s.seq_lens[r], static_cast<long long>(s.block_table_stride));
    }
  }
  return 0;
}

int ov_plan::forward_step(const ov_step& step) {
  if (const int rc = check_step(step)) return rc;
  int64_t num_ids = INT32_MAX;
  for (const ov_instr& n : forward) {
    if (n.op == OV_OP_GATHER && !step.logit_rows && step.num_logits > 0) return set_error("step: logit_rows is needed");
    if (n.op == OV_OP_EMBED) num_ids = std::min(num_ids, weights[static_cast<size_t>(n.weight[0])]->n);
  }
  if (num_ids != INT32_MAX) {
    if (!step.input_ids) return set_error("step: input_ids is needed");
    for (int32_t t = 0; t < step.num_tokens; ++t) {
      const bool is_late = step.input_rows && step.input_rows[t] >= 0;
      if (is_late && !step.last_tokens) return set_error("step: last_tokens is needed");
      const int32_t id = is_late ? step.last_tokens[step.input_rows[t]] : step.input_ids[t];
      if (id < 0 || id >= num_ids)
        return set_error("step: token %d has id %d, outside the vocabulary of %lld", t, id,
                         static_cast<long long>(num_ids));
      token_ids[t] = id;
    }
  }
  if (!rope_tables.empty()) {
    if (!step.positions) return set_error("step: positions is needed");
    for (const RopeTable& table : rope_tables) rope_fill(pool, table, step.positions, step.num_tokens);
  }
  if (const int rc = set_forms(step)) return rc;
  return run_all(forward, 0, Rows{&step, nullptr, nullptr, 0, 0, false});
}

int ov_plan::check_sampling(const ov_step& step, const ov_sampling& s, const ov_sample_output* out) const {
  if (s.version != OV_ABI_VERSION || s.bytes != sizeof(ov_sampling))
    return set_error("sampling: version %u of %u bytes, expected %d of %zu", s.version, s.bytes, OV_ABI_VERSION,
                     sizeof(ov_sampling));
  if (!out || !out->sampled || !out->status) return set_error("sampling: outputs sampled and status are needed");
  if (out->logprob_ids && (!out->logprob_values || !out->logprob_ranks || out->max_logprobs < 0))
    return set_error(
        "sampling: logprob_values and logprob_ranks are needed "
        "with logprob_ids");
  if (s.temperature && (!s.seed || !s.output_index))
    return set_error("sampling: seed and output_index are needed with temperature");
  const int32_t rows = step.num_logits;
  for (int32_t l = 0; l < rows; ++l) {
    if (s.target && s.target[l] >= vocab_size)
      return set_error("sampling: target of row %d is %d, outside the vocabulary of %d", l, s.target[l], vocab_size);
    if (s.state_row && s.state_row[l] >= 0 && !step.last_tokens) return set_error("step: last_tokens is needed");
  }
  if (s.matchers && (!s.matcher_calls.allows || !s.matcher_calls.fill))
    return set_error("sampling: matcher_calls are needed with matchers");
  if (s.mask_row && !s.masks) {
    for (int32_t l = 0; l < rows; ++l)
      if (s.mask_row[l] >= 0) return set_error("sampling: masks is needed for row %d", l);
  }
  const auto check_ids = [&](const char* name, const int64_t* offsets, const int32_t* ids) {
    if (!offsets) return 0;
    for (int64_t j = offsets[0]; j < offsets[rows]; ++j)
      if (ids[j] < 0 || ids[j] >= vocab_size)
        return set_error("sampling: %s[%lld] is %d, outside the vocabulary of %d", name, static_cast<long long>(j),
                         ids[j], vocab_size);
    return 0;
  };
  if (const int rc = check_ids("seen_ids", s.seen_offsets, s.seen_ids)) return rc;
  if (const int rc = check_ids("report_ids", s.report_offsets, s.report_ids)) return rc;
  return check_ids("bias_ids", s.bias_offsets, s.bias_ids);
}

int ov_plan::sample_step(const ov_step& step, const ov_sampling& sampling, ov_sample_output* out) {
  if (const int rc = check_step(step)) return rc;
  if (const int rc = check_sampling(step, sampling, out)) return rc;
  for (int64_t first = 0; first < step.num_logits; first += logit_chunk) {
    const int64_t rows = std::min<int64_t>(logit_chunk, step.num_logits - first);
    if (const int rc = run_all(sample, forward.size(), Rows{&step, &sampling, out, first, rows, true})) return rc;
  }
  return 0;
}

int ov_plan::run_all(const std::vector<ov_instr>& segment, size_t first_timer, const Rows& rows) {
  for (size_t i = 0; i < segment.size(); ++i) {
    if (abort_flag.load(std::memory_order_relaxed)) return 1;
    if (count(segment[i], rows) == 0) continue;
    if (!timers_on) {
      run(segment[i], i, rows);
      continue;
    }
    const uint64_t start = now_ns();
    run(segment[i], i, rows);
    timer_ns[first_timer + i] += now_ns() - start;
  }
  return 0;
}

void ov_plan::run(const ov_instr& n, size_t index, const Rows& rows) {
  const int64_t count_rows = count(n, rows);
  const View in0 = view(n.in[0], rows), in1 = view(n.in[1], rows), out0 = view(n.out[0], rows);
  const auto chunk = [&] {
    return LogitChunk{
        in0,           rows.chunk_first, rows.chunk_rows,        vocab_size,
        rows.sampling, rows.out,         rows.step->last_tokens, uses_logit_blocks(rows) ? &logit_blocks : nullptr,
        reporting};
  };
  switch (n.op) {
    case OV_OP_EMBED:
      return embed(pool, *weights[static_cast<size_t>(n.weight[0])], token_ids, n.f[0], out0, count_rows);
    case OV_OP_GATHER: {
      const bool is_selected = buffers[static_cast<size_t>(n.in[0].buffer)].rows == OV_ROWS_S;
      const int32_t* index = is_selected ? nullptr : rows.step->logit_rows + rows.chunk_first;
      return gather(pool, in0, index, out0, count_rows);
    }
    case OV_OP_RMS_NORM:
    case OV_OP_LAYER_NORM: {
      const NormArgs args{in0,
                          in1,
                          view(n.out[1], rows),
                          out0,
                          vector(n.vec[0]),
                          n.op == OV_OP_LAYER_NORM ? vector(n.vec[1]) : nullptr,
                          n.f[0],
                          n.f[1],
                          n.i[1],
                          n.i[0]};
      return n.op == OV_OP_RMS_NORM ? rms_norm(pool, args, count_rows, row_scratch, row_scratch_cols)
                                    : layer_norm(pool, args, count_rows, row_scratch, row_scratch_cols);
    }
    case OV_OP_PREPARE: return prepare_rows(pool, count_rows, in0.data, in0.stride, out0);
    case OV_OP_LINEAR:
    case OV_OP_LINEAR_ACT_MUL: return run_linear(n, index, rows);
    case OV_OP_LM_HEAD: return run_head(n, index, rows);
    case OV_OP_ADD: return add(pool, in0, in1, out0, count_rows);
    case OV_OP_MUL: return mul(pool, in0, in1, out0, count_rows);
    case OV_OP_SCALE: return ov::scale(pool, in0, n.f[0], out0, count_rows);
    case OV_OP_ACT: return act(pool, in0, static_cast<Act>(n.i[0]), out0, count_rows);
    case OV_OP_ACT_MUL:
      return act_mul(pool, in0, in1, static_cast<Act>(n.i[0]), out0, count_rows, row_scratch, row_scratch_cols);
    case OV_OP_SOFT_CAP: return soft_cap(pool, in0, n.f[0], count_rows);
    case OV_OP_ROPE:
      return rope(pool, in0, n.i[0], n.i[1], rope_tables[static_cast<size_t>(rope_of_instr[index])], count_rows);
    case OV_OP_KV_WRITE: {
      const KvLayer& layer = kv_layers[static_cast<size_t>(n.i[0])];
      return kv_write(pool, layer, rows.step->slot_mapping[layer.group], in0, in1, count_rows);
    }
    case OV_OP_ROPE_KV: return run_rope_kv(n, index, rows);
    case OV_OP_ATTENTION: return run_attention(n, rows);
    case OV_OP_PENALIZE: return penalize(pool, chunk());
    case OV_OP_MASK: return mask(pool, chunk(), sampler_scratch);
    case OV_OP_LOGITS_HOOK: return call_logits_hook(chunk());
    case OV_OP_LOGPROBS:
      // processed: reported by SAMPLE, from the distribution it draws from
      return n.i[0] ? void() : raw_logprobs(pool, chunk(), sampler_scratch, n.i[1] != 0);
    case OV_OP_SAMPLE: return ov::sample(pool, chunk(), sampler_scratch);
    default: __builtin_unreachable();  // check_plan() knows no other
  }
}

void ov_plan::run_rope_kv(const ov_instr& n, size_t index, const Rows& rows) {
  const KvLayer& layer = kv_layers[static_cast<size_t>(n.i[3])];
  const RopeKvArgs args{view(n.in[0], rows),
                        view(n.in[1], rows),
                        view(n.in[2], rows),
                        n.i[0],
                        n.i[1],
                        &layer,
                        &rope_tables[static_cast<size_t>(rope_of_instr[index])],
                        rows.step->slot_mapping[layer.group]};
  rope_kv(pool, args, rows.step->num_tokens);
}

void ov_plan::run_attention(const ov_instr& n, const Rows& rows) {
  const View out = view(n.out[0], rows);
  AttentionArgs args{view(n.in[0], rows),
                     out,
                     &kv_layers[static_cast<size_t>(n.i[1])],
                     vector(n.vec[0]),
                     n.i[0],
                     n.i[2],
                     n.f[0],
                     n.f[1]};
  // groups of 32 may not reach over the end of a head, since other threads have other heads
  const bool is_prepared_after = out.dtype != OV_F32 && args.layer->shape.v_dim % kPartColumns != 0;
  if (is_prepared_after) {
    args.out.data = reinterpret_cast<char*>(attention_rows);
    args.out.stride = align64(4 * attention_cols);
    args.out.dtype = OV_F32;
  }
  attention(pool, args, *rows.step, attention_scratch);
  if (is_prepared_after) prepare_rows(pool, rows.step->num_tokens, args.out.data, args.out.stride, out);
}

extern "C" {

ov_plan* ov_plan_create(ov_pool* pool, const ov_plan_desc* desc) {
  auto* plan = new (std::nothrow) ov_plan(pool);
  if (!plan) {
    set_error("plan: out of memory");
    return nullptr;
  }
  if (!plan->build(*desc)) {
    delete plan;
    return nullptr;
  }
  return plan;
}

void ov_plan_destroy(ov_plan* plan) { delete plan; }

int ov_plan_set_kv(ov_plan* plan, void* kv_pool, int64_t kv_block_stride_bytes) {
  return plan->set_kv(kv_pool, kv_block_stride_bytes);
}

int ov_plan_forward(ov_plan* plan, const ov_step* step) { return plan->forward_step(*step); }

int ov_plan_sample(ov_plan* plan, const ov_step* step, const ov_sampling* sampling, ov_sample_output* out) {
  return plan->sample_step(*step, *sampling, out);
}

void ov_plan_abort(ov_plan* plan, int flag) { plan->abort_flag.store(flag, std::memory_order_relaxed); }

}  // extern "C"

namespace {

// Row pointer of a buffer for tests and debug mode, or nullptr with an error.
const ov_buffer* debug_buffer(const ov_plan* plan, int32_t index, int64_t rows, const char* function) {
  if (index < 0 || static_cast<size_t>(index) >= plan->buffers.size()) {
    set_error("%s: buffer %d does not exist", function, index);
    return nullptr;
  }
  const ov_buffer& b = plan->buffers[static_cast<size_t>(index)];
  if (rows < 0 || b.offset_bytes < 0 || b.offset_bytes + rows * b.stride_bytes > plan->arena_bytes) {
    set_error("%s: buffer %d has fewer than %lld rows", function, index, static_cast<long long>(rows));
    return nullptr;
  }
  return &b;
}

}  // namespace

extern "C" {

int ov_plan_read(ov_plan* plan, int32_t buffer, int64_t rows, float* out) {
  const ov_buffer* b = debug_buffer(plan, buffer, rows, "ov_plan_read");
  if (!b) return -1;
  for (int64_t r = 0; r < rows; ++r, out += b->cols) {
    const char* row = plan->arena + b->offset_bytes + r * b->stride_bytes;
    const int dtype = plan->row_type(*b, r);
    if (dtype == OV_F32) {
      memcpy(out, row, sizeof(float) * static_cast<size_t>(b->cols));
    } else if (dtype == OV_BF16) {
      for (int32_t c = 0; c < b->cols; ++c) out[c] = from_bf16(reinterpret_cast<const uint16_t*>(row)[c]);
    } else if (dtype == OV_A8R) {
      const RotatedLayout layout = rotated_layout(b->cols);
      const float* scales = reinterpret_cast<const float*>(row + layout.scale);
      for (int64_t c = 0; c < b->cols; c += kRotatedGroup) {  // the transform is its own inverse, but for a factor
        float y[kRotatedGroup];
        for (int64_t i = 0; i < kRotatedGroup; ++i)
          y[i] = static_cast<float>(reinterpret_cast<const int8_t*>(row)[c + i]) * scales[c / kRotatedGroup];
        rotate(y);
        for (int64_t i = 0; i < kRotatedGroup && c + i < b->cols; ++i) out[c + i] = y[i] / kRotatedGroup;
      }
    } else {
      const A8Layout layout = a8_layout(b->cols);
      const float* scales = reinterpret_cast<const float*>(row + layout.scale);
      for (int32_t c = 0; c < b->cols; ++c)
        out[c] = static_cast<float>(reinterpret_cast<const int8_t*>(row)[c]) * scales[c / 32];
    }
  }
  return 0;
}

int ov_plan_write(ov_plan* plan, int32_t buffer, int64_t rows, const float* in) {
  const ov_buffer* b = debug_buffer(plan, buffer, rows, "ov_plan_write");
  if (!b) return -1;
  for (int64_t r = 0; r < rows; ++r, in += b->cols) {
    char* row = plan->arena + b->offset_bytes + r * b->stride_bytes;
    if (b->dtype == OV_F32)
      memcpy(row, in, sizeof(float) * static_cast<size_t>(b->cols));
    else
      prepare_row(plan->row_type(*b, r), in, b->cols, row);
  }
  return 0;
}

void ov_plan_enable_timers(ov_plan* plan, int on) {
  plan->timers_on = on != 0;
  std::fill(plan->timer_ns.begin(), plan->timer_ns.end(), 0);
}

int ov_plan_timers(const ov_plan* plan, uint64_t* ns, int64_t count) {
  if (count != static_cast<int64_t>(plan->timer_ns.size()))
    return set_error("ov_plan_timers: the plan has %zu instructions, asked for %lld", plan->timer_ns.size(),
                     static_cast<long long>(count));
  std::copy(plan->timer_ns.begin(), plan->timer_ns.end(), ns);
  return 0;
}

}  // extern "C"
