/* The C ABI of Octavo's native CPU library. One shared object per ISA level exports exactly these symbols.
 *
 * Conventions: sizes are elements unless the name says bytes; matrices are row-major; T tokens, R requests, L logit
 * rows of one step. Functions return 0, or a negative code with the sentence in ov_last_error() (per thread). Nothing
 * here allocates during a step. Mirrored by octavo/ops/abi.py; a test compares the sizes of all structs. */
#ifndef OCTAVO_H
#define OCTAVO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OV_ABI_VERSION 8
#define OV_API __attribute__((visibility("default")))

/* ---- library ---------------------------------------------------------------------------------------------------- */
OV_API int ov_abi_version(void);
OV_API const char* ov_isa_name(void); /* docs/isa.md lists the levels */
OV_API const char* ov_last_error(void);
OV_API size_t ov_sizeof(const char* struct_name); /* for the mirror test; 0: unknown */

/* ---- thread pool: the caller's thread takes part as worker 0 ---------------------------------------------------- */
typedef struct ov_pool ov_pool;
/* cpus: num_threads CPU numbers to pin workers to, or NULL; the caller's thread (entry 0) is left where it is, since the
 * threads it starts later would inherit its CPU. spin_us: how long a worker looks for work before it sleeps in a futex;
 * 0: never spins (CPU quota below thread count). */
OV_API ov_pool* ov_pool_create(int num_threads, const int32_t* cpus, int spin_us);
OV_API void ov_pool_destroy(ov_pool* pool);

/* ---- element types and weight kinds ------------------------------------------------------------------------------ */
/* Values of GGUF's ggml_type, so a tensor's type goes in unchanged. */
enum ov_type {
  OV_F32 = 0,
  OV_F16 = 1,
  OV_Q4_0 = 2,
  OV_Q4_1 = 3,
  OV_Q5_0 = 6,
  OV_Q5_1 = 7,
  OV_Q8_0 = 8,
  OV_Q4_K = 12,
  OV_Q5_K = 13,
  OV_Q6_K = 14,
  OV_BF16 = 30,
  /* activations only */
  OV_I32 = 26,
  OV_A8 = 100,  /* int8 activations in groups of 32 with scales and sums: csrc/src/prepare.h; in a plan, rows of prompt
                  tokens have the form ov_input_type says, which ov_row_bytes(OV_A8) has room for */
  OV_A8R = 102, /* rotated int8 activations in groups of 64: csrc/src/rotate.h; a form of rows, not a buffer's type */
  /* KV caches only: one byte per value and an f32 scale per token and head for K and for V */
  OV_I8 = 24,
  OV_F8_E4M3 = 101,
};

/* A linear weight [n, k], y = x W^T, repacked into the library's tiles at creation.
 * src_type: type of src. kind: how it is stored: src_type itself, OV_BF16 or OV_F32 (dequantised).
 * row_perm: row i of the weight is row row_perm[i] of src (NULL: identity). src may be unmapped afterwards. */
typedef struct ov_weight ov_weight;
OV_API ov_weight* ov_weight_create(ov_pool* pool, int src_type, const void* src, int64_t n, int64_t k, int kind,
                                   const int32_t* row_perm);
OV_API void ov_weight_destroy(ov_weight* w);
OV_API int64_t ov_weight_bytes(const ov_weight* w); /* stored bytes, scales and padding included */
/* Rows [first, first+count) as f32 [count, k]: the oracle's view, and how a tied embedding is gathered. */
OV_API int ov_weight_dequantize(const ov_weight* w, int64_t first, int64_t count, float* out);
/* type -> f32 / bf16 for any supported type (norm vectors, biases, tests). n elements. */
OV_API int ov_convert(int src_type, const void* src, int64_t n, int dst_type, void* dst);
/* How the input of a weight of this kind is prepared: OV_F32, OV_BF16, OV_A8 or OV_A8R. Prompt tokens (is_prompt) may be
 * read for quantised kinds in another form than generated ones, of which there are few at a time: levels with tile
 * registers read them as bf16, against the weights' values rounded to bf16; other AVX-512 levels as OV_A8R, against the
 * weights' values transformed and rounded in the same way. A token's form depends on what it is, never on its batch. */
OV_API int ov_input_type(int kind, int is_prompt);
/* Outside any plan (tests, benchmarks): outs[s] [rows, n_s] = in [rows, k] W_s^T. The input is prepared as ov_input_type
 * says for the weights' kinds and is_prompt; they must agree on that and on k. num_segments <= 4. */
OV_API int ov_linear(ov_pool* pool, int num_segments, const ov_weight* const* weights, int is_prompt, int64_t rows,
                     const float* in, float* const* outs);

/* ---- KV cache ---------------------------------------------------------------------------------------------------- */
/* One layer's share of each block: at pool + block_id * block_stride_bytes + layer_offset_bytes.
 * Inside (library-private order): K and V of block_size tokens in sub-blocks of 16 tokens, pairs interleaved for dot
 * products. block_size is a multiple of 16; dtype OV_F32, OV_BF16, OV_I8 or OV_F8_E4M3. */
typedef struct ov_kv_layer {
  int64_t layer_offset_bytes;
  int32_t group; /* which block table and slot mapping */
  int32_t num_kv_heads, k_head_dim, v_head_dim;
  int32_t dtype;
} ov_kv_layer;

/* ---- plan -------------------------------------------------------------------------------------------------------- */
/* L buffers: one that an instruction of the sample segment has as output holds logit_chunk rows, those of the chunk at
 * hand; every other holds up to max_tokens rows, of which the sample segment sees its chunk's. */
/* S: the tokens logit_rows, in the forms of what they are (ov_step.num_generated); L: the same rows as the head reads
 * them, all as generated tokens. Rows of generated tokens come first among them. */
enum ov_rows { OV_ROWS_T = 0, OV_ROWS_R = 1, OV_ROWS_L = 2, OV_ROWS_S = 3 };

/* A place in the activation arena: rows x cols of dtype; row r starts at offset_bytes + r * stride_bytes. */
typedef struct ov_buffer {
  int64_t offset_bytes;
  int64_t stride_bytes;
  int32_t dtype, rows, cols, pad_;
} ov_buffer;

typedef struct ov_operand {
  int32_t buffer; /* index, or -1: none */
  int32_t col;    /* first column of the view */
} ov_operand;

enum ov_op {
  OV_OP_EMBED = 1,  /* out0[T,k] f32 = row input_ids of weight0, times f0 (scale) */
  OV_OP_GATHER,     /* out0[S] or out0[L] = in0[T] at logit_rows; out0[L] = in0[S] */
  OV_OP_RMS_NORM,   /* out0 = in0 * rsqrt(mean(in0^2) + f0) * (vec0 + f1), over i0 columns, i1 heads side by side (1);
                         i2: prepared type of out0: F32, A8 or BF16 (fused preparation).
                         in1 given: first out1 = in0 + in1 (residual add), then norm of out1 (out1 may be in0) */
  OV_OP_LAYER_NORM, /* as above with mean, vec0 weight, vec1 bias (either may be -1) */
  OV_OP_PREPARE,    /* out0 (A8 or BF16) = in0 f32: what a linear reads */
  OV_OP_LINEAR,     /* up to 4 segments s: out_s = in0 W_s^T [+ vec_s] [+ in1 if flag i0 bit s: residual];
                         in0 is F32, BF16 or A8 as the weights' kind demands; all segments read in0 */
  OV_OP_ADD,        /* out0 = in0 + in1 */
  OV_OP_MUL,        /* out0 = in0 * in1 */
  OV_OP_SCALE,      /* out0 = in0 * f0 */
  OV_OP_ROPE,       /* half-split rotation in place of in0: i0 heads, i1 head_dim, i2 rotary dims; vec0 = inv_freq
                         [i2/2], f0 = attention scaling of cos and sin */
  OV_OP_KV_WRITE,   /* in0 = K [T, heads*k_dim] f32, in1 = V; i0 = kv layer */
  OV_OP_ROPE_KV,    /* fused: rope in0 (Q, in place), rope in1 (K) and write it and in2 (V); i0 q heads, i1 head_dim,
                         i2 rotary dims, i3 kv layer, vec0 inv_freq, f0 scaling */
  OV_OP_ATTENTION,  /* out0[T, q_heads*v_dim] f32 = paged causal attention of in0 (roped Q); i0 q heads, i1 kv layer,
                         i2 window (0: full), f0 scale, f1 soft cap (0: none), vec0 sinks (-1: none);
                         i3: prepared type of out0 (fused preparation) */
  OV_OP_ACT,        /* out0 = act(in0); i0: 0 silu, 1 gelu erf, 2 gelu tanh, 3 relu */
  OV_OP_ACT_MUL,    /* out0 = act(in0) * in1; i0 as above; i2: prepared type of out0 */
  OV_OP_LINEAR_ACT_MUL, /* out0 = act(in0 W0^T [+ vec0]) * (in0 W1^T [+ vec1]); i0 and i2 as above; out1 and out2, f32
                         [n], hold the two factors of rows that are not computed in one pass. The bits are those of
                         LINEAR and ACT_MUL */
  OV_OP_SOFT_CAP,       /* in place: f0 * tanh(in0 / f0) */
  OV_OP_LM_HEAD,     /* sample segment: out0[L,V] f32 = in0 W0^T; i1 = 1: rows that are decided by their largest logit
                         alone need not be written, if all rows of a chunk are */
  OV_OP_PENALIZE,    /* sample segment, in place on logits in0: bias, repetition, presence, frequency, banned ids */
  OV_OP_MASK,        /* sample segment, in place: allowed-token bit masks, -inf elsewhere */
  OV_OP_LOGITS_HOOK, /* sample segment, in place: ov_sampling.logits_hook, if there is one, on the calling thread */
  OV_OP_LOGPROBS,    /* sample segment: log-softmax of rows that ask. i0 = 0: raw, of in0 as it is at this point (a row
                         that penalties or masks will change is copied aside, so that the drawn id can be looked up);
                         i0 = 1: processed, of the distribution SAMPLE draws from, and computed there.
                         i1 = 1: report the logits themselves instead (processed: over temperature) */
  OV_OP_SAMPLE, /* sample segment: greedy, or temperature -> min-p -> top-k -> top-p -> one draw; writes sampled ids
                         and last_tokens; completes the log-probabilities */
};

typedef struct ov_instr {
  int32_t op, rows;
  ov_operand in[4];
  ov_operand out[4];
  int32_t weight[4]; /* index in ov_plan_desc.weights, -1: none */
  int32_t vec[4];    /* index in ov_plan_desc.vectors, -1: none */
  int32_t i[8];
  float f[4];
} ov_instr;

typedef struct ov_vector {
  const float* data; /* f32, owned by the caller and kept until the plan is destroyed */
  int64_t n;
} ov_vector;

typedef struct ov_plan_desc {
  const ov_buffer* buffers;
  const ov_instr* forward; /* run once per step over T */
  const ov_instr* sample;  /* run per chunk of at most logit_chunk rows of L */
  const ov_weight* const* weights;
  const ov_vector* vectors;
  const ov_kv_layer* kv_layers;
  void* kv_pool; /* may be NULL until ov_plan_set_kv */
  int64_t kv_block_stride_bytes;
  int64_t arena_bytes;
  int32_t num_buffers, num_forward, num_sample, num_weights, num_vectors, num_kv_layers;
  int32_t max_tokens, max_requests, logit_chunk, block_size, vocab_size;
  int32_t prompts_as_generated; /* 1: prompt tokens are computed as generated ones are (ov_input_type) */
} ov_plan_desc;

/* Per-step inputs; arrays stay valid during the call. Unused pointers are NULL. */
typedef struct ov_step {
  uint32_t version, bytes; /* OV_ABI_VERSION, sizeof(ov_step) */
  int32_t num_tokens, num_requests, num_logits, num_groups;
  int32_t num_generated, pad_;        /* tokens [0, num_generated) are generated ones, the rest are of prompts */
  const int32_t* input_ids;           /* [T] */
  const int32_t* input_rows;          /* [T] or NULL: >= 0: the id is last_tokens[row] instead */
  const int32_t* positions;           /* [T] */
  const int32_t* query_start;         /* [R+1] */
  const int32_t* seq_lens;            /* [R], this step's tokens included */
  const int32_t* logit_rows;          /* [L] token indices */
  const int32_t* const* slot_mapping; /* [G] -> [T]: block_id * block_size + offset; -1: do not write */
  const int32_t* const* block_tables; /* [G] -> [R, block_table_stride] */
  int64_t block_table_stride;
  int32_t* last_tokens;        /* [rows]: token last sampled per request row, kept by the caller */
  const int32_t* lora_slots;   /* reserved: [T] or NULL */
  const int32_t* draft_tokens; /* reserved */
} ov_step;

/* May change num_rows rows of logits in place: row first_row + i lies at logits + i * row_stride (floats). Called once
 * per chunk of rows, in order, by the thread that called ov_plan_sample. */
typedef void (*ov_logits_hook)(void* context, int32_t first_row, int32_t num_rows, float* logits, int64_t row_stride);

/* How the sampler asks what an output's grammar allows. Threads of the pool call, each about a row of its own. */
typedef struct ov_matcher_calls {
  int32_t (*allows)(void* matcher, const uint32_t* ids, size_t count); /* 1: the id may come next; count is 1 */
  int32_t (*fill)(void* matcher, uint32_t* mask, size_t bytes);        /* as a row of masks; not 0: it has failed */
} ov_matcher_calls;

/* Sampling inputs, one entry per logit row; lists are CSR: row l owns [offsets[l], offsets[l+1]). NULL list: none. */
typedef struct ov_sampling {
  uint32_t version, bytes;
  const float* temperature;        /* [L]; 0: greedy */
  const float* top_p;              /* [L]; 1: off */
  const float* min_p;              /* [L]; 0: off */
  const int32_t* top_k;            /* [L]; 0: off */
  const uint64_t* seed;            /* [L] */
  const uint64_t* output_index;    /* [L]: tokens generated before this one; draw = Philox(seed, output_index) */
  const int32_t* state_row;        /* [L]: row of last_tokens to set, -1: none */
  const int32_t* target;           /* [L]: >= 0: do not draw, report logprobs of this id (prompt logprobs); -1: draw */
  const int32_t* num_logprobs;     /* [L]: -1 none, n: the chosen id and the n most likely */
  const int64_t* report_offsets;   /* [L+1] or NULL: a row with ids (num_logprobs of them) reports */
  const int32_t* report_ids;       /* these instead of the most likely ones */
  const float* repetition_penalty; /* [L] or NULL: all 1 */
  const float* presence_penalty;   /* [L] or NULL */
  const float* frequency_penalty;  /* [L] or NULL */
  const int64_t* seen_offsets;     /* [L+1]: distinct ids in prompt or output */
  const int32_t* seen_ids;
  const int32_t* seen_counts;  /* occurrences in the output (0: only in the prompt) */
  const int64_t* bias_offsets; /* [L+1] */
  const int32_t* bias_ids;
  const float* bias_values;   /* added to the logit; -inf bans the id */
  const int32_t* mask_row;    /* [L] or NULL: row of masks, -1: none */
  const uint32_t* masks;      /* [rows, ceil(V/32)]: bit set = allowed */
  ov_logits_hook logits_hook; /* NULL: none */
  void* hook_context;
  void* const* matchers; /* [L] or NULL: what else a row must satisfy, NULL: nothing. A token that is refused is drawn
                            again of those that are allowed, with Philox(seed, output_index + 2^63). A row whose matcher
                            fails keeps the token */
  ov_matcher_calls matcher_calls;
} ov_sampling;

typedef struct ov_sample_output {
  int32_t* sampled; /* [L]: id, or the target */
  int32_t* status;  /* [L]: 0 ok, 1 NaN or +inf in the logits, 2 nothing allowed; else sampled is -1 or the target */
  int32_t max_logprobs; /* K: columns below are K+1: chosen id first, then by falling logit, ties to the lowest id.
                           Columns a row did not ask for, and all of a failed row: id -1, value -inf, rank 0 */
  int32_t pad_;
  int32_t* logprob_ids;   /* [L, K+1] or NULL */
  float* logprob_values;  /* [L, K+1] */
  int32_t* logprob_ranks; /* [L, K+1]; of the chosen id and of report_ids: 1 + number of larger logits; of the
                             others: their place */
} ov_sample_output;

typedef struct ov_plan ov_plan;
OV_API ov_plan* ov_plan_create(ov_pool* pool, const ov_plan_desc* desc); /* copies the description; NULL: see error */
OV_API void ov_plan_destroy(ov_plan* plan);
OV_API int ov_plan_set_kv(ov_plan* plan, void* kv_pool, int64_t kv_block_stride_bytes);
/* Returns 1 if the abort flag was seen. */
OV_API int ov_plan_forward(ov_plan* plan, const ov_step* step);
OV_API int ov_plan_sample(ov_plan* plan, const ov_step* step, const ov_sampling* sampling, ov_sample_output* out);
OV_API void ov_plan_abort(ov_plan* plan, int flag); /* any thread; polled between instructions */
/* Copies buffer b, first `rows` rows, as f32 [rows, cols] (tests, debug mode). */
OV_API int ov_plan_read(ov_plan* plan, int32_t buffer, int64_t rows, float* out);
OV_API int ov_plan_write(ov_plan* plan, int32_t buffer, int64_t rows, const float* in);
/* Per-instruction timers: enable, then nanoseconds summed per instruction (forward first, then sample). */
OV_API void ov_plan_enable_timers(ov_plan* plan, int on);
OV_API int ov_plan_timers(const ov_plan* plan, uint64_t* ns, int64_t count);

/* ---- helpers ----------------------------------------------------------------------------------------------------- */
/* Bytes of one row of dtype with `cols` columns, padded to the library's alignment (64). */
OV_API int64_t ov_row_bytes(int dtype, int64_t cols);
/* Bytes of one layer's share of a block. */
OV_API int64_t ov_kv_layer_bytes(const ov_kv_layer* layer, int32_t block_size);
/* What all threads of the pool reach together: operations (a multiply-add is two) per second of one arithmetic as this
 * level does it. About a tenth of a second each. Negative: see ov_last_error(). */
enum ov_limit { OV_LIMIT_F32 = 0, OV_LIMIT_BF16 = 1, OV_LIMIT_INT8 = 2 };
OV_API double ov_probe(ov_pool* pool, int limit);
/* Bytes per second that all threads together read of these weights, since memory differs by where the host has placed it:
 * each thread reads its part of every weight, as linears of one row do. The best of `passes` passes with software
 * prefetching and as many without. Negative: see ov_last_error(). */
OV_API double ov_probe_weights(ov_pool* pool, int64_t num, const ov_weight* const* weights, int64_t passes);
/* For tests: 0 or 1: kernels in tile registers do what suits a fast or a slow pace of them; negative: as measured. */
OV_API void ov_force_tile_pace(int pace);
/* C calls that a thread makes: function(object, data, bytes) -> *result. All that a call names must stay until somebody
 * has waited. Any thread may add, pause and wait. */
typedef struct ov_call_queue ov_call_queue;
typedef int32_t (*ov_call)(void* object, void* data, size_t bytes);
OV_API ov_call_queue* ov_call_queue_create(const char* thread_name); /* NULL: see error */
OV_API void ov_call_queue_destroy(ov_call_queue* queue);             /* makes the calls that are left first */
typedef struct ov_queued_call {
  ov_call function;
  void *object, *data;
  size_t bytes;
  int32_t* result;
} ov_queued_call;
OV_API void ov_call_queue_add(ov_call_queue* queue, int64_t count, const ov_queued_call* calls); /* copies them */
OV_API void ov_call_queue_pause(ov_call_queue* queue); /* no further call is begun until somebody waits */
OV_API void ov_call_queue_wait(ov_call_queue* queue);  /* until all calls have been made, some of them by the caller */
/* Anonymous memory with MADV_HUGEPAGE, pages touched lazily. */
OV_API void* ov_memory_map(int64_t bytes);
OV_API void ov_memory_unmap(void* p, int64_t bytes);
/* A thread that touches pages before they are used, contents unchanged, when no other thread wants its processor
 * (SCHED_IDLE), 2 MB at a time. memory: of ov_memory_map; stays until the thread is destroyed, which takes one piece. */
typedef struct ov_prefault ov_prefault;
OV_API ov_prefault* ov_prefault_create(void* memory, const char* thread_name); /* NULL: see error */
OV_API void ov_prefault_destroy(ov_prefault* p);
/* Bytes before begin have been used; those before end are wanted. Ends a pause. */
OV_API void ov_prefault_ask(ov_prefault* p, int64_t begin, int64_t end);
OV_API void ov_prefault_pause(ov_prefault* p); /* no further piece is begun until somebody asks; no lock */
/* Bytes before it are touched; or a negative errno, after which nothing is touched any more. */
OV_API int64_t ov_prefault_reached(const ov_prefault* p);

#ifdef __cplusplus
}
#endif
#endif
