"""Flags of the model (vLLM's ModelConfig group)."""

from __future__ import annotations

from octavo.config.flags.flag import (
    BOOL,
    INT,
    JSON,
    STR,
    STR_OR_TRUE,
    STRS,
    WINDOW,
    Flag,
    hint,
    unsupported,
)

GROUP = "ModelConfig"

NO_SLEEP = "there is no device memory to give back"
NO_POOLING = "pooling models are not available yet"
NO_MEDIA = "text models only"

FLAGS = (
    Flag(
        "model",
        STR,
        None,
        "the model; the positional argument is preferred",
        auto="the installed default model",
    ),
    Flag(
        "served-model-name",
        STRS,
        None,
        "names of the model in the API; the first is echoed in responses and metrics",
        auto="the model as given",
    ),
    Flag("tokenizer", STR, None, "tokenizer folder, file or repository", auto="the model's own"),
    Flag(
        "tokenizer-mode",
        STR,
        "auto",
        "implementation of the tokenizer",
        choices=(
            "auto",
            "hf",
            "mistral",
            "deepseek_v32",
            "deepseek_v4",
            "inkling",
            "kimi_k3",
            "cohere",
        ),
        supported=("auto", "hf"),
        why="tokenizers are read from GGUF or tokenizer.json",
    ),
    hint(
        "trust-remote-code",
        BOOL,
        False,
        "run Python code of the model repository",
        "code from a model repository is never run",
    ),
    Flag(
        "dtype",
        STR,
        "auto",
        "how weights are computed with",
        choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
    ),
    Flag("seed", INT, 0, "global seed of sampling", low=-(2**63), high=2**64 - 1),
    Flag(
        "max-model-len",
        WINDOW,
        None,
        "longest prompt plus output in tokens; auto: the largest that fits in memory",
        auto="the trained window, lowered if it does not fit in memory",
    ),
    Flag("revision", STR, None, "branch, tag or commit of the repository", auto="main"),
    Flag("tokenizer-revision", STR, None, "revision of the tokenizer's repository"),
    hint(
        "code-revision",
        STR,
        None,
        "revision of the repository's code",
        "code from a model repository is never run",
    ),
    Flag(
        "quantization",
        STR,
        None,
        "quantization method",
        short=("q",),
        supported=("gguf",),
        auto="read from the checkpoint",
        why="weights are used as the checkpoint stores them",
    ),
    unsupported(
        "quantization-config",
        JSON,
        None,
        "per-layer online quantization",
        "weights are used as the checkpoint stores them",
    ),
    hint(
        "allow-deprecated-quantization",
        BOOL,
        False,
        "accept deprecated methods",
        "no deprecated method exists here",
    ),
    hint(
        "enforce-eager", BOOL, False, "no compilation and no graphs", "there is nothing to compile"
    ),
    Flag(
        "runner",
        STR,
        "auto",
        "what the model is run for",
        choices=("auto", "generate", "pooling", "draft"),
        supported=("auto", "generate"),
        why=NO_POOLING,
    ),
    Flag(
        "convert",
        STR,
        "auto",
        "adapt the model to another task",
        choices=("auto", "none", "embed", "classify"),
        supported=("auto", "none"),
        why=NO_POOLING,
    ),
    unsupported("pooler-config", JSON, None, "pooling options", NO_POOLING),
    Flag(
        "max-logprobs",
        INT,
        20,
        "largest logprobs a request may ask for; -1: the vocabulary",
        low=-1,
    ),
    Flag(
        "logprobs-mode",
        STR,
        "raw_logprobs",
        "what logprobs are taken from",
        choices=("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"),
    ),
    Flag(
        "generation-config",
        STR,
        "auto",
        "source of default sampling parameters: auto (the model's generation_config.json), vllm "
        "(none), or a folder",
    ),
    Flag("override-generation-config", JSON, {}, "default sampling parameters on top of those"),
    Flag(
        "hf-token",
        STR_OR_TRUE,
        None,
        "token for the hub; without a value: the one of `hf auth login`",
        secret=True,
    ),
    Flag("hf-overrides", JSON, {}, "values merged into the model's config.json"),
    unsupported(
        "hf-config-path",
        STR,
        None,
        "folder or repository of another config.json",
        "config.json is read from the model; use --hf-overrides to change values",
    ),
    Flag(
        "config-format",
        STR,
        "auto",
        "format of the model's configuration",
        choices=("auto", "hf", "mistral"),
        supported=("auto", "hf"),
        why="only config.json and GGUF metadata are read",
    ),
    Flag(
        "model-impl",
        STR,
        "auto",
        "which model implementation to use",
        choices=("auto", "vllm", "transformers", "terratorch"),
        supported=("auto", "vllm"),
        why="only the built-in implementations exist",
    ),
    unsupported(
        "model-class-overrides",
        JSON,
        {},
        "architecture to model class",
        "model classes cannot be replaced from the command line",
    ),
    Flag("skip-tokenizer-init", BOOL, False, "no tokenizer: token ids in and out"),
    unsupported(
        "enable-prompt-embeds",
        BOOL,
        False,
        "accept embeddings as prompts",
        "prompts are text or token ids",
    ),
    Flag("logits-processors", STRS, None, "logits processors to plug in, as module:Class"),
    unsupported(
        "io-processor-plugin",
        STR,
        None,
        "plug-in for inputs and outputs",
        "plug-ins are not available",
    ),
    Flag("disable-sliding-window", BOOL, False, "cap the window at the model's sliding window"),
    hint("allowed-local-media-path", STR, "", "folder that media may be read from", NO_MEDIA),
    hint("allowed-media-domains", STRS, None, "hosts that media may be fetched from", NO_MEDIA),
    hint(
        "renderer-num-workers",
        INT,
        1,
        "threads for templates and tokenization",
        "prompts are rendered in line",
    ),
    unsupported(
        "use-fp64-gumbel", BOOL, False, "sampling noise in 64 bits", "sampling noise has 32 bits"
    ),
    unsupported(
        "enable-trace-replay", BOOL, False, "forced decoding", "forced decoding does not exist"
    ),
    unsupported(
        "return-sampling-mask",
        BOOL,
        False,
        "return which tokens could be sampled",
        "the mask is not kept",
    ),
    unsupported(
        "enable-return-routed-experts",
        BOOL,
        False,
        "return the experts of each token",
        "experts are not recorded",
    ),
    hint(
        "disable-cascade-attn", BOOL, None, "no cascade attention", "there is no cascade attention"
    ),
    hint("enable-sleep-mode", BOOL, False, "release device memory on request", NO_SLEEP),
    hint("sleep-mode-offload-cudagraph", BOOL, False, "sleep: offload graphs", NO_SLEEP),
    hint("sleep-preserve-parameter-names", STRS, [], "sleep: parameters to keep", NO_SLEEP),
    hint("enable-cumem-allocator", BOOL, False, "CUDA memory pool of sleep mode", NO_SLEEP),
    hint("enable-nccl-comm-suspend", BOOL, False, "sleep: suspend NCCL", NO_SLEEP),
)
