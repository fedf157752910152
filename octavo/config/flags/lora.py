"""Flags of LoRA adapters (vLLM's LoRAConfig group)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, INT, JSON, STR, STRS, hint, unsupported

GROUP = "LoRAConfig"

NO_LORA = "LoRA adapters are not available yet"

FLAGS = (
    unsupported("enable-lora", BOOL, False, "serve LoRA adapters", NO_LORA),
    hint("max-loras", INT, 1, "adapters per batch", NO_LORA, low=1),
    hint(
        "max-lora-rank",
        INT,
        16,
        "largest rank",
        NO_LORA,
        choices=(1, 8, 16, 32, 64, 128, 256, 320, 512),
    ),
    hint("max-cpu-loras", INT, None, "adapters kept in host memory", NO_LORA),
    hint("lora-dtype", STR, "auto", "type of adapter weights", NO_LORA),
    hint("lora-target-modules", STRS, None, "layers that adapters may change", NO_LORA),
    hint("fully-sharded-loras", BOOL, False, "shard adapters over all devices", NO_LORA),
    unsupported("default-mm-loras", JSON, None, "adapter per media type", NO_LORA),
    hint("enable-tower-connector-lora", BOOL, False, "adapters of encoders", NO_LORA),
    hint("specialize-active-lora", BOOL, False, "kernels per number of adapters", NO_LORA),
    hint("enable-mixed-moe-lora-format", BOOL, False, "mixed adapters of experts", NO_LORA),
    hint("enable-moe-shared-loras", BOOL, False, "shared adapters of experts", NO_LORA),
    hint("max-lora-cls-labels", INT, None, "labels of classifying adapters", NO_LORA),
)
