"""From options, environment, checkpoint and device to frozen configuration."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from octavo.config.args import EngineArgs
from octavo.config.engine import EngineConfig
from octavo.config.facts import CheckpointFacts, DeviceFacts
from octavo.config.resolve import resolve_engine
from octavo.envs import read_environ
from octavo.errors import ConfigError

GGUF = CheckpointFacts(
    path="/models/m.gguf",
    format="gguf",
    architecture="LlamaForCausalLM",
    hf_config={"architectures": ["LlamaForCausalLM"], "sliding_window": None},
    vocab_size=49152,
    max_position_embeddings=8192,
    eos_token_ids=[2],
    generation_config={"temperature": 0.2},
    default_name="SmolLM2",
)
FOLDER = msgspec.structs.replace(
    GGUF, path="/models/m", format="safetensors", torch_dtype="float16"
)
DEVICE = DeviceFacts(
    isa="avx512_bf16",
    cpu_name="test",
    num_physical_cores=4,
    num_logical_cpus=8,
    cpu_affinity=[0, 1, 2, 3, 4, 5, 6, 7],
    memory_limit_bytes=2**34,
    memory_available_bytes=2**33,
)


def engine(
    environ: dict[str, str] | None = None,
    checkpoint: CheckpointFacts = GGUF,
    chat_template: str | None = None,
    **options: Any,
) -> EngineConfig:
    return resolve_engine(
        EngineArgs(**options),
        read_environ(environ or {}),
        checkpoint,
        DEVICE,
        chat_template=chat_template,
    )


def test_the_defaults_of_a_gguf_file_on_cpu() -> None:
    config = engine()
    assert config.model.served_model_names == ["SmolLM2"]
    assert config.model.model == "/models/m.gguf"
    assert config.model.tokenizer_path == "/models/m.gguf"
    assert config.model.dtype == "auto"
    assert config.model.max_model_len == 8192
    assert not config.model.max_model_len_is_given
    assert config.model.eos_token_ids == [2]
    assert config.model.default_sampling_params == {"temperature": 0.2}
    assert config.cache.block_size == 16
    assert config.cache.gpu_memory_utilization is None
    assert config.cache.kv_cache_memory_bytes is None
    assert config.cache.enable_prefix_caching
    assert config.scheduler.max_num_batched_tokens == 512
    assert not config.scheduler.max_num_batched_tokens_is_given
    assert (config.scheduler.max_num_seqs, config.scheduler.depth) == (128, 1)
    assert config.scheduler.enable_chunked_prefill
    assert config.parallel.distributed_executor_backend == "uni"
    assert config.device.num_threads == 4
    assert config.observability.log_stats
    assert config.observability.log_stats_interval_s == 10.0


def test_reasons_become_notes() -> None:
    notes = engine().notes
    assert "max_model_len 8192: the window the model was trained for" in notes
    assert "4 compute threads: 4 physical cores, 8 CPUs allowed" in notes
    assert any(note.startswith("dtype auto: ") for note in notes)
    assert any("generation_config.json" in note for note in notes)


def test_flags_reach_their_parts() -> None:
    config = engine(
        model="org/m",
        max_model_len="1K",
        block_size=32,
        num_gpu_blocks_override=7,
        gpu_memory_utilization=0.5,
        enable_prefix_caching=False,
        max_num_batched_tokens="1k",
        max_num_seqs=9,
        max_num_queued_reqs=3,
        max_num_queued_tokens="2k",
        long_prefill_token_threshold=64,
        scheduling_policy="priority",
        async_scheduling=True,
        stream_interval=4,
        watermark=0.1,
        scheduler_reserve_full_isl=False,
        max_logprobs=-1,
        logprobs_mode="processed_logprobs",
        seed=5,
        download_dir="/d",
        ignore_patterns=["*.bin"],
        disable_log_stats=True,
        startup_trace="t.json",
        custom_histogram_buckets={"vllm:x": [1, 2]},
        enable_logging_iteration_details=True,
        isa="avx2",
        prompt_dtype="int8",
    )
    assert config.model.served_model_names == ["org/m"]
    assert (config.model.max_model_len, config.model.max_model_len_is_given) == (1024, True)
    assert (config.model.max_logprobs, config.model.seed) == (-1, 5)
    assert config.model.logprobs_mode == "processed_logprobs"
    assert (config.cache.block_size, config.cache.num_gpu_blocks_override) == (32, 7)
    assert config.cache.gpu_memory_utilization == 0.5
    assert not config.cache.enable_prefix_caching
    assert config.scheduler.max_num_batched_tokens == 1000
    assert config.scheduler.max_num_batched_tokens_is_given
    assert (config.scheduler.max_num_seqs, config.scheduler.policy) == (9, "priority")
    assert config.scheduler.depth == 2
    assert config.scheduler.max_num_queued_reqs == 3
    assert config.scheduler.max_num_queued_tokens == 2000
    assert config.scheduler.long_prefill_token_threshold == 64
    assert (config.scheduler.stream_interval, config.scheduler.watermark) == (4, 0.1)
    assert not config.scheduler.scheduler_reserve_full_isl
    assert (config.load.download_dir, config.load.ignore_patterns) == ("/d", ["*.bin"])
    assert not config.observability.log_stats
    assert config.observability.startup_trace == "t.json"
    assert config.observability.custom_histogram_buckets == {"vllm:x": [1.0, 2.0]}
    assert config.observability.enable_logging_iteration_details
    assert config.device.isa == "avx2"
    assert config.model.prompt_dtype == "int8"


def test_the_environment_is_below_the_flags() -> None:
    environ = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_LOG_STATS_INTERVAL": "3",
    }
    config = engine(environ)
    assert config.cache.kv_cache_memory_bytes == 2 * 2**30
    assert config.device.cpu_ids == [0, 1]
    assert config.observability.log_stats_interval_s == 3.0
    assert engine(environ, kv_cache_memory_bytes="1g").cache.kv_cache_memory_bytes == 10**9


def test_a_longer_window_needs_permission() -> None:
    with pytest.raises(ConfigError, match="--max-model-len 9000 is above 8192"):
        engine(max_model_len=9000)
    config = engine({"OCTAVO_ALLOW_LONG_MAX_MODEL_LEN": "1"}, max_model_len=9000)
    assert config.model.max_model_len == 9000


def test_overrides_change_configuration_window_and_architecture() -> None:
    config = engine(
        hf_overrides={
            "max_position_embeddings": 100,
            "architectures": ["MistralForCausalLM"],
            "rope_theta": 5.0,
        }
    )
    assert config.model.max_model_len == 100
    assert config.model.architecture == "MistralForCausalLM"
    assert config.model.hf_config["rope_theta"] == 5.0
    assert "rope_theta" not in GGUF.hf_config
    with pytest.raises(ConfigError, match=r"--hf-overrides\.architectures must be a list"):
        engine(hf_overrides={"architectures": "Llama"})


def test_safetensors_are_computed_in_bfloat16() -> None:
    config = engine(checkpoint=FOLDER)
    assert config.model.dtype == "bfloat16"
    assert engine(checkpoint=FOLDER, dtype="float32").model.dtype == "float32"
    no_effect = engine(checkpoint=FOLDER, prompt_dtype="int8")
    assert no_effect.model.prompt_dtype == "auto"
    assert any("--prompt-dtype int8 has no effect" in note for note in no_effect.notes)


def test_the_format_must_be_what_was_asked_for() -> None:
    assert engine(load_format="gguf", quantization="gguf").model.weights_format == "gguf"
    with pytest.raises(ConfigError, match=r"--load-format safetensors: .* holds gguf weights"):
        engine(load_format="safetensors")
    with pytest.raises(ConfigError, match="--quantization gguf: /models/m is not a GGUF file"):
        engine(checkpoint=FOLDER, quantization="gguf")


def test_only_a_given_template_is_configuration() -> None:
    assert engine().model.chat_template is None  # the tokenizer has the model's own
    assert engine(chat_template="{{ x }}").model.chat_template == "{{ x }}"


def test_the_configuration_crosses_a_process_boundary() -> None:
    config = engine(hf_overrides={"a": {"b": [1]}})
    packed = msgspec.msgpack.encode(config)
    assert msgspec.msgpack.decode(packed, type=EngineConfig) == config
