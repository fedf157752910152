"""Flags of offloading, compilation and kernels (three groups of vLLM)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, FLOAT, INT, INTS, JSON, STR, STRS, Flag, hint

OFFLOAD_GROUP = "OffloadConfig"
COMPILATION_GROUP = "CompilationConfig"
KERNEL_GROUP = "KernelConfig"

IN_HOST_MEMORY = "weights are in host memory already"
NO_GRAPHS = "there are no CUDA graphs; the recorded plan serves every batch size"
BY_ISA = "kernels are chosen by the instruction set"

OFFLOAD_FLAGS: tuple[Flag, ...] = (
    hint("cpu-offload-gb", FLOAT, 0.0, "GiB of weights kept in host memory", IN_HOST_MEMORY, low=0),
    hint("offload-backend", STR, "auto", "implementation of that", IN_HOST_MEMORY),
    hint("cpu-offload-params", STRS, [], "parameters to offload", IN_HOST_MEMORY),
    hint("offload-group-size", INT, 0, "layers per group", IN_HOST_MEMORY),
    hint("offload-num-in-group", INT, 1, "offloaded layers per group", IN_HOST_MEMORY),
    hint("offload-prefetch-step", INT, 1, "groups fetched ahead", IN_HOST_MEMORY),
    hint("offload-params", STRS, [], "parameters to offload", IN_HOST_MEMORY),
)

COMPILATION_FLAGS: tuple[Flag, ...] = (
    hint("cudagraph-capture-sizes", INTS, None, "batch sizes to capture", NO_GRAPHS),
    hint("max-cudagraph-capture-size", INT, None, "largest batch to capture", NO_GRAPHS),
)

KERNEL_FLAGS: tuple[Flag, ...] = (
    hint("moe-backend", STR, "auto", "kernel of experts", BY_ISA),
    hint("linear-backend", STR, "auto", "kernel of linear layers", BY_ISA),
    hint("sparse-indexer-topk-backend", STR, "auto", "kernel of sparse attention", BY_ISA),
    hint("ir-op-priority", JSON, {}, "order of kernel choices", BY_ISA),
    hint("enable-flashinfer-autotune", BOOL, None, "tune FlashInfer kernels", BY_ISA),
)
