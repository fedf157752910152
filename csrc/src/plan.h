// A recorded step: instructions over one activation arena, run by the thread pool.
//
// Owns: the copied description, the arena and all memory kernels need, so that a step allocates nothing. Knows nothing
// of: Python, requests' lives, how instructions were recorded.
#pragma once

#include <atomic>
#include <vector>

#include "attention.h"
#include "kv.h"
#include "octavo.h"
#include "rope.h"
#include "sampler.h"
#include "view.h"

namespace ov {
struct LinearSink;
}

struct ov_plan {
  explicit ov_plan(ov_pool* owner_pool) : pool(owner_pool) {}
  ~ov_plan();
  ov_plan(const ov_plan&) = delete;
  ov_plan& operator=(const ov_plan&) = delete;

  // What an instruction works on in one call: all rows of a step, or one chunk of its logit rows.
  struct Rows {
    const ov_step* step;
    const ov_sampling* sampling;  // sample segment only
    ov_sample_output* out;
    int64_t chunk_first, chunk_rows;
    bool is_sample;
  };

  // Type of a row of a buffer: OV_A8 says only that quantised weights read it.
  int row_type(const ov_buffer& buffer, int64_t row) const;

  bool build(const ov_plan_desc& desc);  // false: see ov_last_error()
  int set_kv(void* kv_pool, int64_t block_stride_bytes);
  int set_forms(const ov_step& step);
  int forward_step(const ov_step& step);
  int sample_step(const ov_step& step, const ov_sampling& sampling, ov_sample_output* out);

  ov_pool* pool;
  std::vector<ov_buffer> buffers;
  std::vector<char> is_chunked;  // per buffer: rows are those of one chunk of
                                 // the sample segment
  std::vector<ov_instr> forward, sample;
  std::vector<const ov_weight*> weights;
  std::vector<ov_vector> vectors;
  std::vector<ov::KvLayer> kv_layers;
  std::vector<ov::RopeTable> rope_tables;
  std::vector<int> rope_of_instr;            // per instruction of `forward`: its table, or -1
  std::vector<const ov_instr*> next_linear;  // per instruction of `forward`: the linear after it, or nullptr
  bool prompts_as_generated = false;
  // of the last step: tokens before it, and rows of OV_ROWS_S, have the generated form (linear_input_type)
  int32_t num_generated = 0, num_selected_generated = 0;
  int32_t max_tokens = 0, max_requests = 0, logit_chunk = 0, block_size = 0, vocab_size = 0, num_groups = 0;
  ov::Reporting reporting;

  char* arena = nullptr;
  int64_t arena_bytes = 0;
  char* memory = nullptr;  // everything below, cut from one mapping
  int64_t memory_bytes = 0;
  float* row_scratch = nullptr;  // [workers][row_scratch_cols]
  int64_t row_scratch_cols = 0;
  float* attention_rows = nullptr;  // [max_tokens][attention_cols], of layers whose output is prepared after it
  int64_t attention_cols = 0;
  int32_t* token_ids = nullptr;  // [max_tokens]
  ov::AttentionScratch attention_scratch;
  ov::SamplerScratch sampler_scratch;
  ov::LogitBlocks logit_blocks;
  bool has_logit_blocks = false;  // SAMPLE reads what LM_HEAD wrote, but for changes of its own instructions

  std::atomic<int> abort_flag{0};
  bool timers_on = false;
  std::vector<uint64_t> timer_ns;  // forward first, then sample

 private:
  bool allocate();
  void find_next_linears();
  ov::View view(const ov_operand& operand, const Rows& rows) const;
  int64_t count(const ov_instr& instr, const Rows& rows) const;
  const float* vector(int32_t index) const { return index < 0 ? nullptr : vectors[static_cast<size_t>(index)].data; }
  int run_all(const std::vector<ov_instr>& segment, size_t first_timer, const Rows& rows);
  void run(const ov_instr& instr, size_t index, const Rows& rows);
  void run_linear(const ov_instr& instr, size_t index, const Rows& rows, const ov::LinearSink* sink = nullptr);
  void run_head(const ov_instr& instr, size_t index, const Rows& rows);
  bool uses_logit_blocks(const Rows& rows) const {
    return has_logit_blocks && rows.chunk_rows <= ov::LogitBlocks::kMaxRows;
  }
  void run_attention(const ov_instr& instr, const Rows& rows);
  void run_rope_kv(const ov_instr& instr, size_t index, const Rows& rows);
  int check_step(const ov_step& step) const;
  int check_sampling(const ov_step& step, const ov_sampling& s, const ov_sample_output* out) const;
};

namespace ov {

const char* op_name(int32_t op);

// Whether one head writes the logits that SAMPLE reads, and only the sampler's instructions change them in between: those
// say themselves which rows they change.
bool finds_logit_blocks(const ov_plan_desc& desc);

// Bounds, types and indices of a description; false: see ov_last_error(). A plan that passes cannot touch memory
// outside the arena, weights, vectors and, given valid block ids, the KV pool.
bool check_plan(const ov_plan_desc& desc, std::vector<char>* is_chunked);

}  // namespace ov
