"""Flags, environment, checkpoint and device -> the engine's frozen configuration.

Each question that takes more than one source is a small function in `octavo/config/rules/`; what
it decided and why becomes a line of `notes`, logged once at start.

Runs in: the API process, `LLM`. Owns: which source answers which field.
Knows nothing of: argv, the hub, /proc, HTTP (`octavo/config/resolve_server.py`).
"""

from __future__ import annotations

from octavo.config.args import EngineArgs
from octavo.config.engine import (
    CacheConfig,
    DeviceConfig,
    EngineConfig,
    LoadConfig,
    ModelConfig,
    ObservabilityConfig,
    ParallelConfig,
    SchedulerConfig,
)
from octavo.config.facts import CheckpointFacts, DeviceFacts
from octavo.config.rules.budgets import choose_budgets
from octavo.config.rules.chat_template import read_chat_template
from octavo.config.rules.choice import Choice, T
from octavo.config.rules.dtype import choose_dtype, choose_prompt_dtype
from octavo.config.rules.executor import choose_executor
from octavo.config.rules.kv_cache import (
    check_block_size,
    check_utilization,
    choose_cache_bytes,
    choose_hash_algorithm,
)
from octavo.config.rules.kv_events import choose_kv_events
from octavo.config.rules.metrics import check_buckets, choose_stats_interval
from octavo.config.rules.names import choose_served_names
from octavo.config.rules.overrides import merge
from octavo.config.rules.sampling_defaults import choose_sampling_defaults
from octavo.config.rules.structured_outputs import choose_structured_outputs
from octavo.config.rules.threads import choose_threads
from octavo.config.rules.window import choose_window, trained_window
from octavo.envs import Env
from octavo.errors import ConfigError


class _Notes(list[str]):
    """Collects the reasons of choices."""

    def take(self, choice: Choice[T]) -> T:
        """The chosen value; its reason is kept if there is one."""
        if choice.reason:
            self.append(choice.reason)
        return choice.value


def resolve_engine(
    args: EngineArgs,
    env: Env,
    checkpoint: CheckpointFacts,
    device: DeviceFacts,
    *,
    chat_template: str | None = None,
    tokenizer_path: str | None = None,
) -> EngineConfig:
    """The engine's configuration.

    Args:
        args: flags.
        env: environment.
        checkpoint: facts of the model that `args.model` names.
        device: facts of the device.
        chat_template: `--chat-template`: a path or a template; None: the tokenizer's.
        tokenizer_path: where `args.tokenizer` was found locally; None: the checkpoint's.

    Raises:
        ConfigError: the sources contradict each other or ask for what cannot be done.
    """
    notes = _Notes()
    model = _model(args, env, checkpoint, device, chat_template, tokenizer_path, notes)
    chunked = args.enable_chunked_prefill is not False
    budgets = notes.take(
        choose_budgets(
            max_num_batched_tokens=args.max_num_batched_tokens,
            max_num_scheduled_tokens=args.max_num_scheduled_tokens,
            max_num_seqs=args.max_num_seqs,
            max_num_active_seqs=args.max_num_active_seqs,
            max_model_len=model.max_model_len,
            enable_chunked_prefill=chunked,
            performance_mode=args.performance_mode,
        )
    )
    threads = notes.take(
        choose_threads(
            args.cpu_threads,
            bind=env.cpu_omp_threads_bind,
            num_reserved=env.cpu_num_of_reserved_cpu,
            device=device,
        )
    )
    return EngineConfig(
        model=model,
        cache=_cache(args, env, model.dtype, notes),
        scheduler=SchedulerConfig(
            max_num_batched_tokens=budgets.max_num_batched_tokens,
            max_num_batched_tokens_is_given=budgets.is_given,
            max_num_seqs=budgets.max_num_seqs,
            # processors must see each token before they are asked for the next one
            depth=2 if args.async_scheduling and not args.logits_processors else 1,
            max_num_queued_reqs=args.max_num_queued_reqs,
            max_num_queued_tokens=args.max_num_queued_tokens,
            enable_chunked_prefill=chunked,
            long_prefill_token_threshold=args.long_prefill_token_threshold,
            policy=args.scheduling_policy,
            stream_interval=args.stream_interval,
            watermark=args.watermark,
            scheduler_reserve_full_isl=args.scheduler_reserve_full_isl,
        ),
        parallel=ParallelConfig(
            distributed_executor_backend=notes.take(
                choose_executor(args.distributed_executor_backend)
            )
        ),
        device=DeviceConfig(
            device=device.device,
            num_threads=threads.num_threads,
            cpu_ids=threads.cpu_ids,
            isa=args.isa,
        ),
        load=LoadConfig(
            load_format=args.load_format,
            download_dir=args.download_dir,
            ignore_patterns=args.ignore_patterns,
        ),
        structured_outputs=notes.take(choose_structured_outputs(args.structured_outputs_config)),
        observability=ObservabilityConfig(
            log_stats=not args.disable_log_stats,
            log_stats_interval_s=choose_stats_interval(env.log_stats_interval),
            custom_histogram_buckets=check_buckets(args.custom_histogram_buckets),
            stall_limit_s=env.stall_limit_s,
            startup_trace=args.startup_trace,
            enable_logging_iteration_details=args.enable_logging_iteration_details,
        ),
        kv_events=notes.take(
            choose_kv_events(
                args.kv_events_config,
                use_int_block_hashes=env.kv_events_use_int_block_hashes,
                has_prefix_cache=args.enable_prefix_caching is not False,
            )
        ),
        notes=notes,
    )


def _model(
    args: EngineArgs,
    env: Env,
    checkpoint: CheckpointFacts,
    device: DeviceFacts,
    chat_template: str | None,
    tokenizer_path: str | None,
    notes: _Notes,
) -> ModelConfig:
    _check_format(args, checkpoint)
    hf_config = merge(checkpoint.hf_config, args.hf_overrides)
    sliding = hf_config.get("sliding_window")
    window = notes.take(
        choose_window(
            args.max_model_len,
            trained=trained_window(
                checkpoint.max_position_embeddings, hf_config, args.hf_overrides
            ),
            sliding_window=sliding if isinstance(sliding, int) else None,
            disable_sliding_window=args.disable_sliding_window,
            allow_long=env.allow_long_max_model_len,
        )
    )
    dtype = notes.take(
        choose_dtype(
            args.dtype,
            checkpoint_format=checkpoint.format,
            checkpoint_dtype=checkpoint.torch_dtype,
            isa=args.isa or device.isa,
        )
    )
    return ModelConfig(
        model=args.model or checkpoint.path,
        served_model_names=choose_served_names(
            args.served_model_name, model=args.model, default_name=checkpoint.default_name
        ),
        weights_path=checkpoint.path,
        weights_format=checkpoint.format,
        tokenizer_path=tokenizer_path or checkpoint.path,
        architecture=_architecture(checkpoint, hf_config, args),
        hf_config=hf_config,
        dtype=dtype,
        prompt_dtype=notes.take(choose_prompt_dtype(args.prompt_dtype, dtype=dtype)),
        vocab_size=checkpoint.vocab_size,
        max_model_len=window.max_model_len,
        max_model_len_is_given=window.is_given,
        max_logprobs=args.max_logprobs,
        logprobs_mode=args.logprobs_mode,
        logits_processors=args.logits_processors or [],
        seed=args.seed,
        skip_tokenizer_init=args.skip_tokenizer_init,
        chat_template=read_chat_template(chat_template),
        eos_token_ids=checkpoint.eos_token_ids,
        default_sampling_params=notes.take(
            choose_sampling_defaults(
                args.generation_config,
                override=args.override_generation_config,
                from_model=checkpoint.generation_config,
            )
        ),
    )


def _cache(args: EngineArgs, env: Env, dtype: str, notes: _Notes) -> CacheConfig:
    return CacheConfig(
        block_size=check_block_size(args.block_size),
        gpu_memory_utilization=check_utilization(args.gpu_memory_utilization),
        kv_cache_memory_bytes=notes.take(
            choose_cache_bytes(args.kv_cache_memory_bytes, env.cpu_kvcache_space)
        ),
        num_gpu_blocks_override=args.num_gpu_blocks_override,
        enable_prefix_caching=args.enable_prefix_caching is not False,
        cache_dtype=args.kv_cache_dtype,
        prefix_caching_hash_algo=notes.take(choose_hash_algorithm(args.prefix_caching_hash_algo)),
        prefix_hash_seed=env.pythonhashseed,
    )


def _check_format(args: EngineArgs, checkpoint: CheckpointFacts) -> None:
    wanted = {"gguf": "gguf", "safetensors": "safetensors"}.get(args.load_format)
    if wanted is not None and wanted != checkpoint.format:
        raise ConfigError(
            f"--load-format {wanted}: {checkpoint.path} holds {checkpoint.format} weights"
        )
    if args.quantization == "gguf" and checkpoint.format != "gguf":
        raise ConfigError(f"--quantization gguf: {checkpoint.path} is not a GGUF file")


def _architecture(
    checkpoint: CheckpointFacts, hf_config: dict[str, object], args: EngineArgs
) -> str:
    if "architectures" not in args.hf_overrides:
        return checkpoint.architecture
    names = hf_config["architectures"]
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise ConfigError(f"--hf-overrides.architectures must be a list of names, got {names!r}")
    return names[0]
