"""Flags of media inputs (vLLM's MultiModalConfig group)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, FLOAT, INT, JSON, STR, hint, unsupported

GROUP = "MultiModalConfig"

NO_MEDIA = "text models only"

FLAGS = (
    hint("limit-mm-per-prompt", JSON, {}, "media items per prompt", NO_MEDIA),
    hint("language-model-only", BOOL, False, "leave encoders out", NO_MEDIA),
    hint("mm-processor-cache-gb", FLOAT, 4.0, "GiB of processed media kept", NO_MEDIA),
    hint("mm-processor-cache-type", STR, "lru", "kind of that cache", NO_MEDIA),
    hint("mm-processor-kwargs", JSON, None, "options of the processor", NO_MEDIA),
    hint("media-io-kwargs", JSON, {}, "options of reading media", NO_MEDIA),
    hint("skip-mm-profiling", BOOL, False, "no profiling of encoders", NO_MEDIA),
    hint("interleave-mm-strings", BOOL, False, "media in the place of their text", NO_MEDIA),
    unsupported("enable-mm-embeds", BOOL, False, "accept embeddings of media", NO_MEDIA),
    unsupported("mm-encoder-only", BOOL, False, "run encoders only", NO_MEDIA),
    hint("mm-encoder-tp-mode", STR, "weights", "how encoders are split", NO_MEDIA),
    hint("mm-encoder-attn-backend", STR, None, "attention of encoders", NO_MEDIA),
    hint("mm-encoder-attn-dtype", STR, None, "type of that", NO_MEDIA),
    hint("mm-encoder-fp8-scale-path", STR, None, "scales of fp8 encoders", NO_MEDIA),
    hint("mm-encoder-fp8-scale-save-path", STR, None, "where to save them", NO_MEDIA),
    hint("mm-encoder-fp8-scale-save-margin", FLOAT, 1.5, "margin of saved scales", NO_MEDIA),
    hint("video-pruning-rate", FLOAT, None, "share of video tokens dropped", NO_MEDIA),
    hint("video-pruning-method", STR, "evs", "how they are chosen", NO_MEDIA),
    hint("mm-tensor-ipc", STR, "direct_rpc", "how tensors reach the engine", NO_MEDIA),
    hint("mm-processor-device", STR, "auto", "device of the processor", NO_MEDIA),
    hint("mm-ipc-gpu-memory-gb", FLOAT, 0.0, "GiB of device memory for that", NO_MEDIA),
    hint("mm-device-do-normalize", BOOL, None, "normalise on the device", NO_MEDIA),
    hint("mm-hasher-algorithm", STR, "blake3", "hash of media", NO_MEDIA),
    hint("mm-shm-cache-max-object-size-mb", INT, 128, "largest cached item", NO_MEDIA),
)
