"""Flags that span several parts of the engine (vLLM's VllmConfig group)."""

from __future__ import annotations

from octavo.config.flags.flag import INT, JSON, STR, Flag, hint, unsupported

GROUP = "VllmConfig"

NO_SPECULATION = "speculative decoding is not available yet"
NO_PROFILER = "operations have clocks of their own, see /start_profile in docs/dev-routes.md"
NO_TRANSFER = "KV blocks cannot be moved between servers"

FLAGS = (
    unsupported(
        "speculative-config", JSON, None, "speculative decoding", NO_SPECULATION, short=("sc",)
    ),
    unsupported("spec-method", STR, None, "kind of speculation", NO_SPECULATION),
    unsupported("spec-model", STR, None, "draft model", NO_SPECULATION),
    unsupported("spec-tokens", INT, None, "draft tokens per step", NO_SPECULATION),
    Flag(
        "structured-outputs-config",
        JSON,
        {},
        "for all requests: disable_any_whitespace, disable_additional_properties",
    ),
    hint(
        "optimization-level",
        INT,
        2,
        "how much is compiled and captured",
        "there is nothing to compile",
        short=("O",),
        low=0,
        high=3,
    ),
    hint(
        "compilation-config",
        JSON,
        {},
        "options of compilation",
        "there is nothing to compile",
        short=("cc",),
    ),
    Flag(
        "performance-mode",
        STR,
        "balanced",
        "throughput doubles the default batch sizes",
        choices=("balanced", "interactivity", "throughput"),
    ),
    hint("profiler-config", JSON, {}, "PyTorch or CUDA profiler", NO_PROFILER),
    unsupported("kv-transfer-config", JSON, None, "connector to other servers", NO_TRANSFER),
    Flag(
        "kv-events-config",
        JSON,
        None,
        "publish events of the prefix cache (docs/kv-events.md)",
        auto="not published",
    ),
    hint(
        "attention-config",
        JSON,
        {},
        "options of attention kernels",
        "there is one attention kernel per instruction set",
        short=("ac",),
    ),
    hint(
        "kernel-config", JSON, {}, "options of kernels", "kernels are chosen by the instruction set"
    ),
    hint("additional-config", JSON, {}, "options for platform plug-ins", "there are no plug-ins"),
    unsupported(
        "reasoning-config",
        JSON,
        {},
        "tokens that begin and end reasoning",
        "--reasoning-parser knows the model's marks",
    ),
    unsupported("ec-transfer-config", JSON, None, "connector of encoder caches", NO_TRANSFER),
    hint("ec-manager-config", JSON, None, "manager of encoder caches", "text models only"),
    unsupported(
        "weight-transfer-config",
        JSON,
        None,
        "replace weights while serving",
        "weights are read once at start",
    ),
    unsupported(
        "aux-output-config", JSON, None, "return hidden states", "hidden states are not returned"
    ),
    unsupported("engram-config", JSON, None, "engram memory", "engram models are not available"),
    unsupported(
        "diffusion-config",
        JSON,
        None,
        "diffusion decoding",
        "diffusion models are not available",
        short=("dc",),
    ),
    unsupported(
        "watermark-config", JSON, None, "watermark generated text", "outputs are not watermarked"
    ),
)
