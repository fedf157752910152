"""Flags of older vLLM versions. Those that changed results are refused, the others only warn."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, FLOAT, INT, JSON, STR, STRS, removed

GROUP = "Removed"

NEVER_NEEDED = "nothing takes its place"
SPECULATION = "use --speculative-config"
STRUCTURED = "use --structured-outputs-config"

FLAGS = (
    removed("task", STR, "use --runner and --convert", fatal=True),
    removed("use-v2-block-manager", BOOL, NEVER_NEEDED),
    removed("disable-frontend-multiprocessing", BOOL, NEVER_NEEDED),
    removed("disable-log-requests", BOOL, "requests are logged only with --enable-log-requests"),
    removed("num-scheduler-steps", INT, NEVER_NEEDED),
    removed("multi-step-stream-outputs", BOOL, NEVER_NEEDED),
    removed("swap-space", FLOAT, "preempted requests are recomputed"),
    removed("preemption-mode", STR, "preempted requests are recomputed"),
    removed("num-lookahead-slots", INT, NEVER_NEEDED),
    removed("scheduler-delay-factor", FLOAT, NEVER_NEEDED),
    removed("max-num-partial-prefills", INT, "the step's budget limits prefills"),
    removed("max-long-partial-prefills", INT, "use --long-prefill-token-threshold"),
    removed("max-seq-len-to-capture", INT, NEVER_NEEDED),
    removed("max-context-len-to-capture", INT, NEVER_NEEDED),
    removed("cuda-graph-sizes", STRS, "use --cudagraph-capture-sizes"),
    removed("disable-async-output-proc", BOOL, NEVER_NEEDED),
    removed("worker-use-ray", BOOL, "use --distributed-executor-backend ray", fatal=True),
    removed("engine-use-ray", BOOL, NEVER_NEEDED),
    removed("device", STR, "the device is found by itself"),
    removed("tokenizer-pool-size", INT, NEVER_NEEDED),
    removed("tokenizer-pool-type", STR, NEVER_NEEDED),
    removed("tokenizer-pool-extra-config", JSON, NEVER_NEEDED),
    removed("rope-scaling", JSON, "use --hf-overrides", fatal=True),
    removed("rope-theta", FLOAT, "use --hf-overrides", fatal=True),
    removed("guided-decoding-backend", STR, STRUCTURED),
    removed("guided-decoding-disable-fallback", BOOL, STRUCTURED),
    removed("guided-decoding-disable-any-whitespace", BOOL, STRUCTURED, fatal=True),
    removed("guided-decoding-disable-additional-properties", BOOL, STRUCTURED, fatal=True),
    removed("logits-processor-pattern", STR, "use --logits-processors", fatal=True),
    removed("enable-reasoning", BOOL, "use --reasoning-parser", fatal=True),
    removed("speculative-model", STR, SPECULATION, fatal=True),
    removed("num-speculative-tokens", INT, SPECULATION, fatal=True),
    removed("ngram-prompt-lookup-max", INT, SPECULATION, fatal=True),
    removed("ngram-prompt-lookup-min", INT, SPECULATION, fatal=True),
    removed("speculative-draft-tensor-parallel-size", INT, SPECULATION, fatal=True),
    removed("speculative-disable-by-batch-size", INT, SPECULATION, fatal=True),
    removed("enable-prompt-adapter", BOOL, NEVER_NEEDED, fatal=True),
    removed("max-prompt-adapters", INT, NEVER_NEEDED),
    removed("max-prompt-adapter-token", INT, NEVER_NEEDED),
    removed("qlora-adapter-name-or-path", STR, "use --lora-modules", fatal=True),
    removed("lora-extra-vocab-size", INT, NEVER_NEEDED),
    removed("long-lora-scaling-factors", STR, NEVER_NEEDED, fatal=True),
    removed("enable-lora-bias", BOOL, NEVER_NEEDED, fatal=True),
    removed("override-pooler-config", JSON, "use --pooler-config", fatal=True),
    removed("override-attention-dtype", STR, NEVER_NEEDED, fatal=True),
    removed("override-neuron-config", JSON, NEVER_NEEDED),
    removed("calculate-kv-scales", BOOL, NEVER_NEEDED),
    removed("disable-mm-preprocessor-cache", BOOL, "use --mm-processor-cache-gb 0"),
    removed("enable-multimodal-encoder-data-parallel", BOOL, "use --mm-encoder-tp-mode data"),
    removed("image-input-type", STR, NEVER_NEEDED),
)
