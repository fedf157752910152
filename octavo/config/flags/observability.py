"""Flags of metrics, traces and logs (vLLM's ObservabilityConfig and LoggingConfig groups)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, FLOAT, JSON, STR, STRS, Flag, hint

OBSERVABILITY_GROUP = "ObservabilityConfig"
LOGGING_GROUP = "LoggingConfig"

NO_OTLP = "OpenTelemetry traces are not available yet"
NO_JIT = "nothing is compiled at run time"

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

OBSERVABILITY_FLAGS: tuple[Flag, ...] = (
    hint("otlp-traces-endpoint", STR, None, "OpenTelemetry collector", NO_OTLP),
    hint("collect-detailed-traces", STRS, None, "traces of model and worker", NO_OTLP),
    hint(
        "show-hidden-metrics-for-version",
        STR,
        None,
        "show metrics hidden since a version",
        "no metric is hidden",
    ),
    Flag("custom-histogram-buckets", JSON, None, "metric family to bounds, as JSON"),
    hint(
        "kv-cache-metrics",
        BOOL,
        False,
        "lifetimes of KV blocks",
        "lifetimes of blocks are not recorded",
    ),
    hint(
        "kv-cache-metrics-sample",
        FLOAT,
        0.01,
        "share of blocks sampled for that",
        "lifetimes of blocks are not recorded",
    ),
    hint(
        "per-request-spec-decode-metrics",
        STR,
        "none",
        "speculation metrics in responses",
        "speculative decoding is not available yet",
        choices=("none", "summary", "detailed"),
    ),
    hint("cudagraph-metrics", BOOL, False, "metrics of CUDA graphs", "there are none on CPU"),
    hint(
        "enable-layerwise-nvtx-tracing",
        BOOL,
        False,
        "NVTX range per layer",
        "NVTX is for CUDA devices",
    ),
    hint(
        "enable-mfu-metrics",
        BOOL,
        False,
        "estimated utilization of the device",
        "utilization is not estimated",
    ),
    Flag("enable-logging-iteration-details", BOOL, False, "a log line per step"),
    hint("jit-monitor-mode", STR, "warn", "report compilation after the warm-up", NO_JIT),
    hint("jit-monitor-verbose", BOOL, False, "details of that", NO_JIT),
)

LOGGING_FLAGS: tuple[Flag, ...] = (
    Flag("log-level", STR, None, "level of Octavo's log", choices=LOG_LEVELS, auto="INFO"),
    Flag(
        "logging-config",
        JSON,
        None,
        "log_level, formatter (text or json), configure_logging, pylogging_config_file",
    ),
    Flag(
        "log-config-file",
        STR,
        None,
        "JSON file for logging.config (deprecated: --logging-config.pylogging_config_file)",
    ),
)
