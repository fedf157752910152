"""Flags of the KV cache (vLLM's CacheConfig group)."""

from __future__ import annotations

from octavo.config.flags.attention import NO_MAMBA
from octavo.config.flags.flag import (
    BOOL,
    FLOAT,
    INT,
    SIZE,
    STR,
    STRS,
    Flag,
    hint,
    unsupported,
)

GROUP = "CacheConfig"

FLAGS = (
    Flag(
        "gpu-memory-utilization",
        FLOAT,
        None,
        "share of the device's memory that may be used (CPU: of this process's limit)",
        aliases=("device-memory-utilization",),
        low=0.0,
        high=1.0,
        auto="on CPU a quarter of what is free, or less if that is enough",
    ),
    Flag(
        "kv-cache-memory-bytes",
        SIZE,
        None,
        "size of the KV cache; overrides the share",
        low=1,
        auto="by the share",
    ),
    Flag("block-size", INT, 16, "tokens per KV block; a multiple of 16", low=16, high=1024),
    Flag(
        "enable-prefix-caching",
        BOOL,
        None,
        "reuse KV blocks of equal prefixes",
        auto="on where the model allows",
    ),
    Flag(
        "prefix-caching-hash-algo",
        STR,
        "sha256",
        "hash of prefix blocks; sha256_cbor has the values that vLLM's has",
        choices=("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"),
    ),
    Flag(
        "kv-cache-dtype",
        STR,
        "auto",
        "element type of the KV cache",
        choices=(
            "auto",
            "float16",
            "bfloat16",
            "int8",
            "fp8",
            "fp8_e4m3",
            "fp8_e5m2",
            "fp8_inc",
            "fp8_ds_mla",
            "nvfp4_ds_mla",
        ),
        supported=("auto", "bfloat16", "int8", "fp8", "fp8_e4m3"),
        why="there are no kernels for it: use bfloat16, or int8 for half the memory",
    ),
    Flag(
        "num-gpu-blocks-override",
        INT,
        None,
        "number of KV blocks, for tests",
        low=1,
        auto="what fits in the cache's size",
    ),
    hint(
        "kv-cache-dtype-skip-layers",
        STRS,
        [],
        "layers kept out of a quantized cache",
        "the cache is not quantized",
    ),
    unsupported(
        "kv-offloading-size",
        FLOAT,
        None,
        "GiB of host memory behind the device's KV cache",
        "the cache is in host memory already",
    ),
    hint(
        "kv-offloading-backend",
        STR,
        "native",
        "implementation of that",
        "the cache is in host memory already",
    ),
    hint(
        "prefix-cache-retention-interval",
        INT,
        0,
        "spacing of kept prefix blocks",
        "prefix blocks are kept until their space is needed",
    ),
    hint(
        "prefix-match-unit",
        INT,
        None,
        "tokens per unit of prefix matching",
        "prefixes match by block",
    ),
    hint(
        "kv-sharing-fast-prefill",
        BOOL,
        False,
        "shorter prefill of layers that share KV",
        "layers do not share KV",
    ),
    hint(
        "swa-bounded-replay",
        BOOL,
        True,
        "bounded recomputation of sliding windows",
        "blocks of a sliding window are kept while needed",
    ),
    hint("mamba-cache-dtype", STR, "auto", "type of the state", NO_MAMBA),
    hint("mamba-ssm-cache-dtype", STR, "auto", "type of the SSM state", NO_MAMBA),
    hint("mamba-block-size", INT, None, "tokens per state block", NO_MAMBA),
    hint("mamba-cache-mode", STR, "none", "which states are kept", NO_MAMBA),
    hint(
        "enable-mamba-shared-prefix-checkpoint", BOOL, False, "share states of prefixes", NO_MAMBA
    ),
    hint("replayssm-buffer-len", INT, 16, "length of the replay buffer", NO_MAMBA),
    hint("use-replayssm", BOOL, False, "replay instead of storing states", NO_MAMBA),
)
