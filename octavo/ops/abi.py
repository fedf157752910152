"""The C interface of the native library as ctypes: a mirror of csrc/include/octavo.h.

Structs and prototypes are declared here and nowhere else; sizes and the version are compared when
a library is loaded.

Runs in: workers on CPU, tests, benchmarks. Knows nothing of: how a library is found or used.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
)
from typing import Any

ABI_VERSION = 8


class OvKvLayer(Structure):
    _fields_ = [
        ("layer_offset_bytes", c_int64),
        ("group", c_int32),
        ("num_kv_heads", c_int32),
        ("k_head_dim", c_int32),
        ("v_head_dim", c_int32),
        ("dtype", c_int32),
    ]


class OvBuffer(Structure):
    _fields_ = [
        ("offset_bytes", c_int64),
        ("stride_bytes", c_int64),
        ("dtype", c_int32),
        ("rows", c_int32),
        ("cols", c_int32),
        ("pad_", c_int32),
    ]


class OvOperand(Structure):
    _fields_ = [("buffer", c_int32), ("col", c_int32)]


class OvInstr(Structure):
    _fields_ = [
        ("op", c_int32),
        ("rows", c_int32),
        ("in_", OvOperand * 4),
        ("out", OvOperand * 4),
        ("weight", c_int32 * 4),
        ("vec", c_int32 * 4),
        ("i", c_int32 * 8),
        ("f", c_float * 4),
    ]


class OvVector(Structure):
    _fields_ = [("data", c_void_p), ("n", c_int64)]


class OvPlanDesc(Structure):
    _fields_ = [
        ("buffers", c_void_p),
        ("forward", c_void_p),
        ("sample", c_void_p),
        ("weights", c_void_p),
        ("vectors", c_void_p),
        ("kv_layers", c_void_p),
        ("kv_pool", c_void_p),
        ("kv_block_stride_bytes", c_int64),
        ("arena_bytes", c_int64),
        ("num_buffers", c_int32),
        ("num_forward", c_int32),
        ("num_sample", c_int32),
        ("num_weights", c_int32),
        ("num_vectors", c_int32),
        ("num_kv_layers", c_int32),
        ("max_tokens", c_int32),
        ("max_requests", c_int32),
        ("logit_chunk", c_int32),
        ("block_size", c_int32),
        ("vocab_size", c_int32),
        ("prompts_as_generated", c_int32),
    ]


class OvStep(Structure):
    _fields_ = [
        ("version", c_uint32),
        ("bytes", c_uint32),
        ("num_tokens", c_int32),
        ("num_requests", c_int32),
        ("num_logits", c_int32),
        ("num_groups", c_int32),
        ("num_generated", c_int32),
        ("pad_", c_int32),
        ("input_ids", c_void_p),
        ("input_rows", c_void_p),
        ("positions", c_void_p),
        ("query_start", c_void_p),
        ("seq_lens", c_void_p),
        ("logit_rows", c_void_p),
        ("slot_mapping", c_void_p),
        ("block_tables", c_void_p),
        ("block_table_stride", c_int64),
        ("last_tokens", c_void_p),
        ("lora_slots", c_void_p),
        ("draft_tokens", c_void_p),
    ]


class OvMatcherCalls(Structure):
    _fields_ = [("allows", c_void_p), ("fill", c_void_p)]


class OvSampling(Structure):
    _fields_ = [
        ("version", c_uint32),
        ("bytes", c_uint32),
        ("temperature", c_void_p),
        ("top_p", c_void_p),
        ("min_p", c_void_p),
        ("top_k", c_void_p),
        ("seed", c_void_p),
        ("output_index", c_void_p),
        ("state_row", c_void_p),
        ("target", c_void_p),
        ("num_logprobs", c_void_p),
        ("report_offsets", c_void_p),
        ("report_ids", c_void_p),
        ("repetition_penalty", c_void_p),
        ("presence_penalty", c_void_p),
        ("frequency_penalty", c_void_p),
        ("seen_offsets", c_void_p),
        ("seen_ids", c_void_p),
        ("seen_counts", c_void_p),
        ("bias_offsets", c_void_p),
        ("bias_ids", c_void_p),
        ("bias_values", c_void_p),
        ("mask_row", c_void_p),
        ("masks", c_void_p),
        ("logits_hook", c_void_p),
        ("hook_context", c_void_p),
        ("matchers", c_void_p),
        ("matcher_calls", OvMatcherCalls),
    ]


class OvSampleOutput(Structure):
    _fields_ = [
        ("sampled", c_void_p),
        ("status", c_void_p),
        ("max_logprobs", c_int32),
        ("pad_", c_int32),
        ("logprob_ids", c_void_p),
        ("logprob_values", c_void_p),
        ("logprob_ranks", c_void_p),
    ]


#: `ov_sampling.logits_hook`: context, first row, rows, address of the logits, floats per row
LOGITS_HOOK = CFUNCTYPE(None, c_void_p, c_int32, c_int32, c_void_p, c_int64)


#: name in the header -> mirror
class OvQueuedCall(Structure):
    _fields_ = [
        ("function", c_void_p),
        ("object", c_void_p),
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("result", c_void_p),
    ]


STRUCTS: dict[str, type[Structure]] = {
    "ov_kv_layer": OvKvLayer,
    "ov_buffer": OvBuffer,
    "ov_operand": OvOperand,
    "ov_instr": OvInstr,
    "ov_vector": OvVector,
    "ov_plan_desc": OvPlanDesc,
    "ov_step": OvStep,
    "ov_sampling": OvSampling,
    "ov_sample_output": OvSampleOutput,
    "ov_queued_call": OvQueuedCall,
}

#: function -> (result, arguments)
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "ov_abi_version": (c_int, []),
    "ov_isa_name": (c_char_p, []),
    "ov_last_error": (c_char_p, []),
    "ov_sizeof": (c_size_t, [c_char_p]),
    "ov_pool_create": (c_void_p, [c_int, c_void_p, c_int]),
    "ov_pool_destroy": (None, [c_void_p]),
    "ov_weight_create": (
        c_void_p,
        [c_void_p, c_int, c_void_p, c_int64, c_int64, c_int, c_void_p],
    ),
    "ov_weight_destroy": (None, [c_void_p]),
    "ov_weight_bytes": (c_int64, [c_void_p]),
    "ov_weight_dequantize": (c_int, [c_void_p, c_int64, c_int64, c_void_p]),
    "ov_convert": (c_int, [c_int, c_void_p, c_int64, c_int, c_void_p]),
    "ov_input_type": (c_int, [c_int, c_int]),
    "ov_linear": (c_int, [c_void_p, c_int, c_void_p, c_int, c_int64, c_void_p, c_void_p]),
    "ov_plan_create": (c_void_p, [c_void_p, c_void_p]),
    "ov_plan_destroy": (None, [c_void_p]),
    "ov_plan_set_kv": (c_int, [c_void_p, c_void_p, c_int64]),
    "ov_plan_forward": (c_int, [c_void_p, c_void_p]),
    "ov_plan_sample": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "ov_plan_abort": (None, [c_void_p, c_int]),
    "ov_plan_read": (c_int, [c_void_p, c_int32, c_int64, c_void_p]),
    "ov_plan_write": (c_int, [c_void_p, c_int32, c_int64, c_void_p]),
    "ov_plan_enable_timers": (None, [c_void_p, c_int]),
    "ov_plan_timers": (c_int, [c_void_p, c_void_p, c_int64]),
    "ov_row_bytes": (c_int64, [c_int, c_int64]),
    "ov_kv_layer_bytes": (c_int64, [POINTER(OvKvLayer), c_int32]),
    "ov_probe": (c_double, [c_void_p, c_int]),
    "ov_probe_weights": (c_double, [c_void_p, c_int64, c_void_p, c_int64]),
    "ov_force_tile_pace": (None, [c_int]),
    "ov_call_queue_create": (c_void_p, [c_char_p]),
    "ov_call_queue_destroy": (None, [c_void_p]),
    "ov_call_queue_add": (None, [c_void_p, c_int64, c_void_p]),
    "ov_call_queue_pause": (None, [c_void_p]),
    "ov_call_queue_wait": (None, [c_void_p]),
    "ov_memory_map": (c_void_p, [c_int64]),
    "ov_memory_unmap": (None, [c_void_p, c_int64]),
    "ov_prefault_create": (c_void_p, [c_void_p, c_char_p]),
    "ov_prefault_destroy": (None, [c_void_p]),
    "ov_prefault_ask": (None, [c_void_p, c_int64, c_int64]),
    "ov_prefault_pause": (None, [c_void_p]),
    "ov_prefault_reached": (c_int64, [c_void_p]),
}
