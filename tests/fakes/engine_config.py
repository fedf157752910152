"""An `EngineConfig` for tests, with the parts that matter to them given by name."""

from __future__ import annotations

from octavo.config.engine import (
    CacheConfig,
    DeviceConfig,
    EngineConfig,
    KVEventsConfig,
    LoadConfig,
    ModelConfig,
    ObservabilityConfig,
    ParallelConfig,
    SchedulerConfig,
    StructuredOutputsConfig,
)


def engine_config(
    *,
    cache: CacheConfig | None = None,
    scheduler: SchedulerConfig | None = None,
    kv_events: KVEventsConfig | None = None,
    max_model_len: int = 1024,
    max_model_len_is_given: bool = False,
) -> EngineConfig:
    """A configuration that needs no model on disk."""
    return EngineConfig(
        model=ModelConfig(
            model="fake",
            served_model_names=["fake"],
            weights_path="/nonexistent",
            weights_format="dummy",
            tokenizer_path="/nonexistent",
            architecture="FakeForCausalLM",
            hf_config={},
            dtype="float32",
            vocab_size=1000,
            max_model_len=max_model_len,
            max_model_len_is_given=max_model_len_is_given,
        ),
        cache=cache or CacheConfig(),
        scheduler=scheduler or SchedulerConfig(),
        parallel=ParallelConfig(),
        device=DeviceConfig(),
        load=LoadConfig(),
        structured_outputs=StructuredOutputsConfig(),
        observability=ObservabilityConfig(),
        kv_events=kv_events,
    )
