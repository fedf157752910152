"""What the checkpoint and the device say of themselves: the inputs of `resolve()` beside the flags.

Made in: `octavo/weights/facts.py` (CheckpointFacts), `octavo/platforms/cpu.py` (DeviceFacts).
Read by: `octavo/config/resolve.py`. Knows nothing of: files, /proc.
"""

from __future__ import annotations

import msgspec


class CheckpointFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Read from a GGUF header, or from a folder's JSON files; no tensor data is touched.

    `hf_config` has the keys of Hugging Face's `config.json` (derived from metadata for GGUF).
    """

    path: str  # GGUF file or folder
    format: str  # gguf, safetensors
    architecture: str  # LlamaForCausalLM, ...
    hf_config: dict[str, object]
    vocab_size: int
    max_position_embeddings: int  # the trained window
    torch_dtype: str | None = None  # of a safetensors checkpoint: float32, float16, bfloat16
    weight_bytes: int = 0  # bytes of tensor data in the file(s)
    eos_token_ids: list[int] = []
    generation_config: dict[str, object] = {}
    default_name: str = ""  # general.name or the folder's name


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the machine this process may use."""

    device: str = "cpu"
    isa: str  # best level of the native library that runs here
    cpu_name: str
    num_physical_cores: int
    num_logical_cpus: int
    cpu_affinity: list[int]  # CPUs this process may run on
    cpu_quota: float | None = None  # cgroup quota in CPUs
    memory_limit_bytes: int  # min(cgroup limit, RAM)
    memory_available_bytes: int  # limit less what is in use
    num_numa_nodes: int = 1
