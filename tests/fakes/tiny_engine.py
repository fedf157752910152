"""An engine core over a real worker: a tiny Llama with random weights, in this process.

Knows nothing of: front ends, sockets.
"""

from __future__ import annotations

from octavo.config.engine import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig
from octavo.core.engine_core import EngineCore
from octavo.executor.uniproc import UniprocExecutor
from octavo.worker.worker import Worker
from tests.fakes.engine_config import engine_config
from tests.fakes.memory_checkpoint import MemoryCheckpoint
from tests.fakes.tiny_llama import TINY_LLAMA, tiny_llama_tensors
from tests.fakes.worker_rig import native_backend

VOCAB_SIZE = 96


def tiny_engine(
    *, num_blocks: int = 40, max_model_len: int = 128, **scheduler: object
) -> EngineCore:
    """A core that is ready.

    Args:
        num_blocks: blocks of 16 tokens, the null block included.
        scheduler: fields of `SchedulerConfig`.
    """
    assert TINY_LLAMA["vocab_size"] == VOCAB_SIZE
    config = SchedulerConfig(**scheduler)  # type: ignore[arg-type]
    checkpoint = MemoryCheckpoint(tiny_llama_tensors(TINY_LLAMA))
    model = ModelConfig(
        model="memory",
        served_model_names=["memory"],
        weights_path="memory",
        weights_format="dummy",
        tokenizer_path="memory",
        architecture="LlamaForCausalLM",
        hf_config=dict(TINY_LLAMA),
        dtype="float32",
        vocab_size=VOCAB_SIZE,
        max_model_len=max_model_len,
        max_model_len_is_given=False,
    )
    worker = Worker(
        model,
        config,
        DeviceConfig(),
        open_backend=lambda device, dtype, cache_dtype, prompt_dtype: native_backend(dtype),
        open_checkpoint=lambda path: checkpoint,
        available_memory_bytes=lambda: 2**30,
    )
    return EngineCore(
        engine_config(
            cache=CacheConfig(num_gpu_blocks_override=num_blocks),
            scheduler=config,
            max_model_len=max_model_len,
        ),
        UniprocExecutor(worker, depth=config.depth),
    )
