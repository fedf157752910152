"""`EngineConfig`: everything an engine needs to know, resolved and frozen.

Made in: `octavo/config/resolve.py`, from EngineArgs + checkpoint facts + device facts. Classes
below receive the *part* they use (`SchedulerConfig`, ...) in their constructor, never the whole.

Knows nothing of: flags, environment, HTTP.
"""

from __future__ import annotations

import msgspec


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The model and how to read it.

    `weights_path` is a GGUF file or a folder with `config.json` and safetensors; it is local by now
    (the hub was asked before, see `octavo/weights/hub.py`).
    """

    model: str  # as the user named it
    served_model_names: list[str]
    weights_path: str
    weights_format: str  # gguf, safetensors, dummy
    tokenizer_path: str  # GGUF file or folder with tokenizer.json
    architecture: str  # e.g. LlamaForCausalLM
    hf_config: dict[str, object]  # config.json as read, or the same keys derived from GGUF metadata
    # auto, float32, bfloat16: how weights are computed with (auto on GGUF: the stored kind)
    dtype: str
    # auto, int8, bfloat16: what quantised weights read tokens of prompts in (auto: by the device)
    prompt_dtype: str = "auto"
    vocab_size: int
    max_model_len: int
    # a given window that does not fit is an error, a derived one is lowered
    max_model_len_is_given: bool
    max_logprobs: int = 20
    logprobs_mode: str = "raw_logprobs"
    logits_processors: list[str] = []  # module:Class
    seed: int = 0
    skip_tokenizer_init: bool = False
    chat_template: str | None = None  # text of --chat-template; None: the tokenizer's own
    eos_token_ids: list[int] = []
    #: generation_config.json + --override-generation-config: temperature, top_k, top_p, min_p,
    #: repetition_penalty, ...
    default_sampling_params: dict[str, float] = {}


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Paged KV cache."""

    block_size: int = 16
    # share of the device's memory; None: the CPU default rule
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool = True
    cache_dtype: str = "auto"
    prefix_caching_hash_algo: str = "sha256"  # or sha256_cbor: values as in vLLM
    prefix_hash_seed: str = "vllm-none-hash"  # PYTHONHASHSEED; for sha256_cbor


class KVEventsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where events of the prefix cache are published; see `docs/kv-events.md`."""

    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000  # batches kept for replay
    hwm: int = 100_000  # batches kept for a slow subscriber; 0: no limit
    max_queue_size: int = 100_000  # batches that wait to be sent
    topic: str = ""
    use_int_block_hashes: bool = True  # 64-bit numbers instead of 32 bytes


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets and order of the scheduler. Counts are tokens or requests per step."""

    max_num_batched_tokens: int = 512
    max_num_batched_tokens_is_given: bool = False  # else it may be lowered after the warm-up
    max_num_seqs: int = 128
    depth: int = 1  # steps on their way at the same time; 2: one is prepared while another computes
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    policy: str = "fcfs"
    stream_interval: int = 1
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True


class ParallelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How many devices and processes."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    distributed_executor_backend: str = "uni"


class DeviceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The device and the share of it that is ours."""

    device: str = "cpu"
    num_threads: int = 1  # compute threads of the native pool
    cpu_ids: list[int] = []  # pin one thread to each of these CPUs; empty: the pool decides
    isa: str | None = None  # force a level (tests), see docs/isa.md


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How checkpoints are read."""

    load_format: str = "auto"
    download_dir: str | None = None
    ignore_patterns: list[str] = msgspec.field(default_factory=lambda: ["original/**/*"])


class StructuredOutputsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Grammar-constrained output."""

    backend: str = "guidance"
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    enable_in_reasoning: bool = False


class ObservabilityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Logs, metrics and traces of the engine."""

    log_stats: bool = True
    log_stats_interval_s: float = 10.0
    custom_histogram_buckets: dict[str, list[float]] = {}
    stall_limit_s: float = 30.0  # a core with work that says nothing for so long is not ready
    startup_trace: str | None = None  # file for the Chrome trace of start-up
    enable_logging_iteration_details: bool = False


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The parts together; goes to the EngineCore process as msgpack."""

    model: ModelConfig
    cache: CacheConfig
    scheduler: SchedulerConfig
    parallel: ParallelConfig
    device: DeviceConfig
    load: LoadConfig
    structured_outputs: StructuredOutputsConfig
    observability: ObservabilityConfig
    kv_events: KVEventsConfig | None = None  # None: not published
    #: why a rule changed or chose a value: one sentence each, logged once at start
    notes: list[str] = []
