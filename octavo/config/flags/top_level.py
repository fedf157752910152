"""Flags of vLLM's top level: process layout, logs of requests, shutdown."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, FLOAT, INT, STR, Flag, hint, unsupported

GROUP = "General"

FLAGS = (
    Flag(
        "model-tag",
        STR,
        None,
        "the model (positional): GGUF file, folder, org/repo, org/repo:Q4_K_M or "
        "org/repo/file.gguf",
        auto="the installed default model",
    ),
    unsupported(
        "headless",
        BOOL,
        False,
        "run engines without an API server",
        "multi-node serving is not available yet",
    ),
    hint(
        "api-server-count",
        INT,
        None,
        "number of API processes",
        "one API process serves all connections",
        short=("asc",),
        low=0,
    ),
    Flag("config", STR, None, "YAML file of options; its keys are flag names"),
    unsupported("grpc", BOOL, False, "serve gRPC instead of HTTP", "there is no gRPC server"),
    Flag("disable-log-stats", BOOL, False, "no statistics line and no engine metrics"),
    hint(
        "aggregate-engine-logging",
        BOOL,
        False,
        "one log line for all data-parallel engines",
        "there is one engine",
    ),
    Flag(
        "fail-on-environ-validation",
        BOOL,
        False,
        "an unknown OCTAVO_* or VLLM_* variable is an error instead of a warning",
    ),
    Flag(
        "shutdown-timeout",
        FLOAT,
        15.0,
        "seconds that running requests may take to finish after SIGTERM; 0 aborts them at once",
        low=0,
    ),
    Flag("enable-log-requests", BOOL, False, "log each request: id and parameters"),
    hint(
        "gdn-prefill-backend",
        STR,
        None,
        "GPU kernel of gated delta-net prefill",
        "kernels are chosen by the instruction set",
    ),
    hint(
        "kda-prefill-backend",
        STR,
        None,
        "GPU kernel of KDA prefill",
        "kernels are chosen by the instruction set",
    ),
    hint(
        "kda-decode-backend",
        STR,
        None,
        "GPU kernel of KDA decode",
        "kernels are chosen by the instruction set",
    ),
)
