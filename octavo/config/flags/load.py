"""Flags of reading checkpoints (vLLM's LoadConfig group)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, INT, JSON, SIZE, STR, STRS, Flag, hint

GROUP = "LoadConfig"

MAPPED = "weights are read from the mapped file"

FLAGS = (
    Flag(
        "load-format",
        STR,
        "auto",
        "format of the weights",
        choices=(
            "auto",
            "hf",
            "safetensors",
            "gguf",
            "pt",
            "npcache",
            "dummy",
            "mistral",
            "sharded_state",
            "tensorizer",
            "runai_streamer",
            "runai_streamer_sharded",
            "fastsafetensors",
            "instanttensor",
            "ipc_cache",
            "modelexpress",
        ),
        supported=("auto", "hf", "safetensors", "gguf"),
        why="GGUF and safetensors are the formats that can be read",
    ),
    Flag("download-dir", STR, None, "folder for downloads", auto="the Hugging Face cache"),
    hint(
        "safetensors-load-strategy",
        STR,
        None,
        "how files are read",
        MAPPED,
        choices=("lazy", "eager", "prefetch", "torchao"),
    ),
    hint("safetensors-prefetch-num-threads", INT, None, "threads that prefetch", MAPPED),
    hint("safetensors-prefetch-block-size", SIZE, None, "bytes per prefetch", MAPPED),
    hint("model-loader-extra-config", JSON, {}, "options of the loader", MAPPED),
    Flag("ignore-patterns", STRS, ["original/**/*"], "files of a repository that are not fetched"),
    hint(
        "use-tqdm-on-load", BOOL, True, "progress bar while loading", "loading has no progress bar"
    ),
    hint("pt-load-map-location", STR, "cpu", "device that PyTorch files are read to", MAPPED),
)
