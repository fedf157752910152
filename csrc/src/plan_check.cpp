// Refuses plans that would read or write where they must not, with a sentence that names the instruction.
#include <cstdarg>
#include <cstdio>

#include "error.h"
#include "linear.h"
#include "plan.h"
#include "weights.h"

namespace ov {

const char* op_name(int32_t op) {
  static const char* const names[] = {"?",       "EMBED",     "GATHER", "RMS_NORM",    "LAYER_NORM",     "PREPARE",
                                      "LINEAR",  "ADD",       "MUL",    "SCALE",       "ROPE",           "KV_WRITE",
                                      "ROPE_KV", "ATTENTION", "ACT",    "ACT_MUL",     "LINEAR_ACT_MUL", "SOFT_CAP",
                                      "LM_HEAD", "PENALIZE",  "MASK",   "LOGITS_HOOK", "LOGPROBS",       "SAMPLE"};
  return op >= OV_OP_EMBED && op <= OV_OP_SAMPLE ? names[op] : "?";
}

namespace {

class Checker {
 public:
  Checker(const ov_plan_desc& desc, const std::vector<char>& is_chunked) : d_(desc), is_chunked_(is_chunked) {}

  bool run() { return sizes() && kv_layers() && segment(false) && segment(true); }

 private:
  const ov_plan_desc& d_;
  const std::vector<char>& is_chunked_;
  const ov_instr* in_ = nullptr;
  int32_t number_ = 0;
  bool is_sample_ = false;

  __attribute__((format(printf, 2, 3))) bool fail(const char* format, ...) const {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (in_)
      set_error("plan, %s instruction %d (%s): %s", is_sample_ ? "sample" : "forward", number_, op_name(in_->op), text);
    else
      set_error("plan: %s", text);
    return false;
  }

  bool sizes() const {
    if (d_.max_tokens < 1 || d_.max_requests < 1 || d_.logit_chunk < 1)
      return fail(
          "max_tokens, max_requests and logit_chunk must be at least "
          "1, got %d, %d, %d",
          d_.max_tokens, d_.max_requests, d_.logit_chunk);
    if (d_.arena_bytes < 0) return fail("arena_bytes is negative");
    if (d_.num_sample > 0 && d_.vocab_size < 1) return fail("vocab_size must be at least 1, got %d", d_.vocab_size);
    return true;
  }

  bool kv_layers() const {
    if (d_.num_kv_layers > 0 && (d_.block_size < kSubBlock || d_.block_size % kSubBlock != 0))
      return fail("block_size must be a multiple of 16, got %d", d_.block_size);
    for (int32_t i = 0; i < d_.num_kv_layers; ++i) {
      const ov_kv_layer& l = d_.kv_layers[i];
      if (l.num_kv_heads < 1 || l.k_head_dim < 1 || l.v_head_dim < 1)
        return fail("kv layer %d: heads and head sizes must be at least 1", i);
      if (l.dtype != OV_F32 && l.dtype != OV_BF16 && l.dtype != OV_I8 && l.dtype != OV_F8_E4M3)
        return fail("kv layer %d: dtype must be F32, BF16, I8 or F8_E4M3, got %d", i, l.dtype);
      if (l.group < 0) return fail("kv layer %d: group is negative", i);
      if (l.layer_offset_bytes < 0 || l.layer_offset_bytes % 64 != 0)
        return fail("kv layer %d: layer_offset_bytes must be a multiple of 64", i);
    }
    return true;
  }

  bool segment(bool is_sample) {
    is_sample_ = is_sample;
    const ov_instr* list = is_sample ? d_.sample : d_.forward;
    const int32_t count = is_sample ? d_.num_sample : d_.num_forward;
    for (number_ = 0; number_ < count; ++number_) {
      in_ = list + number_;
      if (!instruction(*in_)) return false;
    }
    in_ = nullptr;
    return true;
  }

  const ov_buffer& buffer(const ov_operand& o) const { return d_.buffers[o.buffer]; }

  // The operand exists, lies in the arena and has `cols` columns from its first on. rows: of the instruction, or -1:
  // any.
  bool has(const char* name, const ov_operand& o, int64_t cols, int32_t rows, int32_t dtype) const {
    if (o.buffer < 0 || o.buffer >= d_.num_buffers) return fail("%s: buffer %d does not exist", name, o.buffer);
    const ov_buffer& b = buffer(o);
    if (b.dtype != OV_F32 && b.dtype != OV_BF16 && b.dtype != OV_A8)
      return fail("%s: dtype %d is not one of F32, BF16, A8", name, b.dtype);
    if (dtype >= 0 && b.dtype != dtype) return fail("%s: dtype must be %d, got %d", name, dtype, b.dtype);
    if (b.rows < OV_ROWS_T || b.rows > OV_ROWS_S) return fail("%s: unknown rows %d", name, b.rows);
    if (rows >= 0 && b.rows != rows) return fail("%s: rows must be %d, got %d", name, rows, b.rows);
    if (o.col < 0 || cols < 1 || o.col + cols > b.cols)
      return fail("%s: columns [%d, %lld) are outside its %d columns", name, o.col,
                  static_cast<long long>(o.col + cols), b.cols);
    if (b.dtype != OV_F32 && (o.col != 0 || cols != b.cols))
      return fail(
          "%s: a prepared buffer is used as a whole (%d columns), not "
          "%lld from %d",
          name, b.cols, static_cast<long long>(cols), o.col);
    if (b.offset_bytes < 0 || b.offset_bytes % 64 != 0 || b.stride_bytes % 64 != 0)
      return fail("%s: offset and stride must be multiples of 64", name);
    if (b.stride_bytes < ov_row_bytes(b.dtype, b.cols)) return fail("%s: stride is less than a row", name);
    const int64_t max_rows = b.rows == OV_ROWS_R                          ? d_.max_requests
                             : is_chunked_[static_cast<size_t>(o.buffer)] ? d_.logit_chunk
                                                                          : d_.max_tokens;
    if (b.offset_bytes + max_rows * b.stride_bytes > d_.arena_bytes)
      return fail("%s: %lld rows reach beyond the arena of %lld bytes", name, static_cast<long long>(max_rows),
                  static_cast<long long>(d_.arena_bytes));
    return true;
  }

  bool in(int i, int64_t cols, int32_t dtype = OV_F32) const {
    static const char* const names[] = {"in0", "in1", "in2", "in3"};
    return has(names[i], in_->in[i], cols, in_->rows, dtype);
  }
  bool out(int i, int64_t cols, int32_t dtype = OV_F32) const {
    static const char* const names[] = {"out0", "out1", "out2", "out3"};
    return has(names[i], in_->out[i], cols, in_->rows, dtype);
  }
  bool has_in(int i) const { return in_->in[i].buffer >= 0; }
  // Width of an output that decides how wide a point-wise instruction is.
  int64_t width(const ov_operand& o) const {
    return o.buffer >= 0 && o.buffer < d_.num_buffers ? buffer(o).cols - o.col : 0;
  }

  bool weight(int i) const {
    const int32_t w = in_->weight[i];
    return (w >= 0 && w < d_.num_weights && d_.weights[w]) || fail("weight%d: %d does not exist", i, w);
  }
  bool vector(int i, int64_t n, bool is_optional) const {
    const int32_t v = in_->vec[i];
    if (v < 0 && is_optional) return true;
    if (v < 0 || v >= d_.num_vectors || !d_.vectors[v].data) return fail("vec%d: %d does not exist", i, v);
    return d_.vectors[v].n >= n || fail("vec%d: needs %lld values, has %lld", i, static_cast<long long>(n),
                                        static_cast<long long>(d_.vectors[v].n));
  }
  bool positive(int i) const { return in_->i[i] > 0 || fail("i%d must be at least 1, got %d", i, in_->i[i]); }
  bool prepared(int i) const {
    const int32_t type = in_->i[i];
    return type == OV_F32 || type == OV_BF16 || type == OV_A8 || fail("i%d: %d is not F32, BF16 or A8", i, type);
  }
  const ov_kv_layer* layer(int i) const {
    const int32_t index = in_->i[i];
    if (index < 0 || index >= d_.num_kv_layers) {
      fail("i%d: kv layer %d does not exist", i, index);
      return nullptr;
    }
    return d_.kv_layers + index;
  }
  bool only_tokens() const { return in_->rows == OV_ROWS_T || fail("rows must be T"); }

  bool instruction(const ov_instr& n) const {
    if (n.op < OV_OP_EMBED || n.op > OV_OP_SAMPLE) return fail("unknown operation %d", n.op);
    if (n.rows < OV_ROWS_T || n.rows > OV_ROWS_S) return fail("unknown rows %d", n.rows);
    if (is_sample_ && n.rows != OV_ROWS_L) return fail("rows must be L in the sample segment");
    if (!is_sample_ && n.op >= OV_OP_PENALIZE) return fail("belongs to the sample segment");
    switch (n.op) {
      case OV_OP_EMBED: return only_tokens() && weight(0) && out(0, d_.weights[n.weight[0]]->k);
      case OV_OP_GATHER: return gather(n);
      case OV_OP_RMS_NORM:
      case OV_OP_LAYER_NORM: return norm(n);
      case OV_OP_PREPARE: return out(0, width(n.out[0]), -1) && in(0, width(n.out[0]));
      case OV_OP_LINEAR: return linear(n, kMaxSegments, 0);
      case OV_OP_LINEAR_ACT_MUL: return linear_act_mul(n);
      case OV_OP_LM_HEAD: return linear(n, 1, 0);
      case OV_OP_ADD:
      case OV_OP_MUL: return out(0, width(n.out[0])) && in(0, width(n.out[0])) && in(1, width(n.out[0]));
      case OV_OP_SCALE: return out(0, width(n.out[0])) && in(0, width(n.out[0]));
      case OV_OP_ACT: return kind() && out(0, width(n.out[0])) && in(0, width(n.out[0]));
      case OV_OP_ACT_MUL:
        return kind() && prepared(2) && out(0, width(n.out[0]), n.i[2]) && in(0, width(n.out[0])) &&
               in(1, width(n.out[0]));
      case OV_OP_SOFT_CAP: return (n.f[0] > 0.0f || fail("f0 must be greater than 0")) && in(0, width(n.in[0]));
      case OV_OP_ROPE: return rope(n) && in(0, int64_t{n.i[0]} * n.i[1]);
      case OV_OP_KV_WRITE: return kv_write(layer(0), 0, 1);
      case OV_OP_ROPE_KV: return rope_kv(n);
      case OV_OP_ATTENTION: return attention(n);
      case OV_OP_PENALIZE:
      case OV_OP_MASK:
      case OV_OP_LOGITS_HOOK:
      case OV_OP_LOGPROBS:
      case OV_OP_SAMPLE: return in(0, d_.vocab_size);
      default: return false;
    }
  }

  bool kind() const { return (in_->i[0] >= 0 && in_->i[0] <= 3) || fail("i0: unknown function %d", in_->i[0]); }

  bool gather(const ov_instr& n) const {
    if (n.rows != OV_ROWS_L && n.rows != OV_ROWS_S) return fail("rows must be L or S");
    if (!out(0, width(n.out[0]), -1)) return false;
    if (buffer(n.out[0]).dtype == OV_A8) return fail("out0: rows of A8 have different forms in T and in L");
    if (!has("in0", n.in[0], width(n.out[0]), -1, buffer(n.out[0]).dtype)) return false;
    const int32_t from = buffer(n.in[0]).rows;
    return from == OV_ROWS_T || (from == OV_ROWS_S && n.rows == OV_ROWS_L && !is_sample_) ||
           fail("in0: rows must be T, or S for L");
  }

  bool norm(const ov_instr& n) const {
    if (!positive(0) || !positive(1) || !prepared(2)) return false;
    const int64_t cols = int64_t{n.i[0]} * n.i[1];
    if (!in(0, cols) || !out(0, cols, n.i[2]) || !vector(0, n.i[0], true)) return false;
    if (n.op == OV_OP_LAYER_NORM && !vector(1, n.i[0], true)) return false;
    return !has_in(1) || (in(1, cols) && out(1, cols));
  }

  // The output of the first segment is `first_out`.
  bool linear(const ov_instr& n, int max_segments, int first_out) const {
    int segments = 0;
    while (segments < max_segments && n.weight[segments] >= 0) ++segments;
    if (segments == 0) return fail("has no weight");
    for (int s = 0; s < segments; ++s) {
      if (!weight(s)) return false;
      const ov_weight& w = *d_.weights[n.weight[s]];
      if (!in(0, w.k, linear_input_type(w.kind, false)) || !out(first_out + s, w.n) || !vector(s, w.n, true))
        return false;
      if (n.op == OV_OP_LINEAR && (n.i[0] >> s & 1) && !in(1, w.n)) return false;
    }
    return true;
  }

  bool linear_act_mul(const ov_instr& n) const {
    if (n.weight[0] < 0 || n.weight[1] < 0 || n.weight[2] >= 0) return fail("has two weights");
    if (!kind() || !prepared(2) || !linear(n, 2, 1)) return false;
    const int64_t cols = d_.weights[n.weight[0]]->n;
    if (d_.weights[n.weight[1]]->n != cols)
      return fail("weights have %lld and %lld outputs", static_cast<long long>(cols),
                  static_cast<long long>(d_.weights[n.weight[1]]->n));
    return out(0, cols, n.i[2]);
  }

  bool rope(const ov_instr& n) const {
    if (!only_tokens() || !positive(0) || !positive(1)) return false;
    if (n.i[2] < 2 || n.i[2] % 2 != 0 || n.i[2] > n.i[1])
      return fail("i2: rotary dims must be even and within the head size %d, got %d", n.i[1], n.i[2]);
    return vector(0, n.i[2] / 2, false);
  }

  bool kv_write(const ov_kv_layer* l, int k, int v) const {
    return l && only_tokens() && in(k, int64_t{l->num_kv_heads} * l->k_head_dim) &&
           in(v, int64_t{l->num_kv_heads} * l->v_head_dim);
  }

  bool rope_kv(const ov_instr& n) const {
    const ov_kv_layer* l = layer(3);
    if (!l || !rope(n) || !in(0, int64_t{n.i[0]} * n.i[1])) return false;
    if (l->k_head_dim != n.i[1]) return fail("i1: head size %d is not the layer's %d", n.i[1], l->k_head_dim);
    return kv_write(l, 1, 2);
  }

  bool attention(const ov_instr& n) const {
    const ov_kv_layer* l = layer(1);
    if (!l || !only_tokens() || !positive(0) || !prepared(3)) return false;
    if (n.i[0] % l->num_kv_heads != 0)
      return fail("i0: %d query heads are not a multiple of %d KV heads", n.i[0], l->num_kv_heads);
    if (n.i[2] < 0) return fail("i2: window is negative");
    return in(0, int64_t{n.i[0]} * l->k_head_dim) && out(0, int64_t{n.i[0]} * l->v_head_dim, n.i[3]) &&
           vector(0, n.i[0], true);
  }
};

}  // namespace

bool check_plan(const ov_plan_desc& desc, std::vector<char>* is_chunked) {
  is_chunked->assign(static_cast<size_t>(desc.num_buffers), 0);
  for (int32_t i = 0; i < desc.num_sample; ++i)
    for (const ov_operand& o : desc.sample[i].out)
      if (o.buffer >= 0 && o.buffer < desc.num_buffers) (*is_chunked)[static_cast<size_t>(o.buffer)] = 1;
  for (int32_t i = 0; i < desc.num_forward; ++i)
    for (const ov_operand& o : desc.forward[i].out)
      if (o.buffer >= 0 && o.buffer < desc.num_buffers && (*is_chunked)[static_cast<size_t>(o.buffer)]) {
        set_error("plan: buffer %d is written by both segments", o.buffer);
        return false;
      }
  return Checker(desc, *is_chunked).run();
}

}  // namespace ov
