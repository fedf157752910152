"""`EngineArgs` and `ServerArgs`: flat options with vLLM's names, from the command line or Python.

    EngineArgs(model="model.gguf", max_model_len="8k", max_num_seqs=32)

Every option goes through the flag table: values are converted and checked as on the command line,
options that have no effect here leave a sentence in `warnings`, options that cannot be honoured
raise, and a misspelt one is answered with the nearest name.

Runs in: the API process, `LLM`. Owns: which option belongs to the engine and which to the server.
Knows nothing of: argv, files, models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from octavo.config.flags import frontend, observability, top_level
from octavo.config.flags.flag import REMOVED, WORKS, Flag
from octavo.config.flags.judge import judge
from octavo.config.flags.nearest import did_you_mean
from octavo.config.flags.table import BY_FIELD
from octavo.config.flags.values import convert
from octavo.errors import ConfigError

#: options read by the parser itself
PARSER_FIELDS = frozenset({"model_tag", "config"})

_SERVER_GROUPS = frozenset({top_level.GROUP, frontend.GROUP, observability.LOGGING_GROUP})
_SECRET_SHOWN = "***"


class _Options:
    """Filling an options class from keywords by the flag table."""

    _OWNER: ClassVar[str]

    def _fill(self, options: Mapping[str, object]) -> None:
        own = {f.name: f for f in fields(self)}  # type: ignore[arg-type]
        for f in own.values():
            value = f.default_factory() if f.default_factory is not MISSING else f.default
            setattr(self, f.name, value)
        for name, value in options.items():
            flag = BY_FIELD.get(name.replace("-", "_"))
            if flag is None or owner_of(flag) != self._OWNER:
                raise self._unknown(name, flag)
            typed = convert(flag, value)
            warning = judge(flag, typed)
            if warning is not None:
                self.warnings.append(warning)
            if flag.field in own:
                setattr(self, flag.field, typed)
            elif warning is not None:
                self.ignored[flag.field] = typed

    def _unknown(self, name: str, flag: Flag | None) -> ConfigError:
        class_name = type(self).__name__
        if flag is not None:
            return ConfigError(f"{class_name} has no option {name!r}: it is one of the server's")
        names = [f.field for f in BY_FIELD.values() if owner_of(f) == self._OWNER]
        return ConfigError(f"{class_name} has no option {name!r}{did_you_mean(name, names)}")

    def __repr__(self) -> str:
        options = non_default_args(self)
        shown = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return f"{type(self).__name__}({shown})"

    warnings: list[str]
    ignored: dict[str, object]


@dataclass(init=False, repr=False, eq=False)  # each generated method costs milliseconds
class EngineArgs(_Options):
    """Options of the engine; the fields are those that have an effect.

    `warnings` holds one sentence per option without effect, `ignored` those options' values.
    """

    _OWNER: ClassVar[str] = "engine"

    # model
    model: str | None = None
    served_model_name: list[str] | None = None
    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    dtype: str = "auto"
    prompt_dtype: str = "auto"
    seed: int = 0
    max_model_len: int | None = None  # -1: auto
    revision: str | None = None
    tokenizer_revision: str | None = None
    quantization: str | None = None
    runner: str = "auto"
    convert: str = "auto"
    max_logprobs: int = 20
    logprobs_mode: str = "raw_logprobs"
    logits_processors: list[str] | None = None
    generation_config: str = "auto"
    override_generation_config: dict[str, object] = field(default_factory=dict)
    hf_token: str | bool | None = None
    hf_overrides: dict[str, object] = field(default_factory=dict)
    config_format: str = "auto"
    model_impl: str = "auto"
    skip_tokenizer_init: bool = False
    disable_sliding_window: bool = False
    # loading
    load_format: str = "auto"
    download_dir: str | None = None
    ignore_patterns: list[str] = field(default_factory=lambda: ["original/**/*"])
    # KV cache
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    block_size: int = 16
    enable_prefix_caching: bool | None = None
    kv_cache_dtype: str = "auto"
    num_gpu_blocks_override: int | None = None
    prefix_caching_hash_algo: str = "sha256"
    kv_events_config: dict[str, object] | None = None
    structured_outputs_config: dict[str, object] = field(default_factory=dict)
    # scheduler
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_scheduled_tokens: int | None = None
    max_num_active_seqs: int | None = None
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    async_scheduling: bool | None = None
    stream_interval: int = 1
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    # processes and devices
    distributed_executor_backend: str | None = None
    cpu_threads: int | None = None
    isa: str | None = None
    # the rest
    performance_mode: str = "balanced"
    disable_log_stats: bool = False
    custom_histogram_buckets: dict[str, object] | None = None
    enable_logging_iteration_details: bool = False
    startup_trace: str | None = None

    warnings: list[str] = field(default_factory=list)
    ignored: dict[str, object] = field(default_factory=dict)

    def __init__(self, model: str | None = None, **options: Any) -> None:
        self._fill({"model": model, **options})


@dataclass(init=False, repr=False, eq=False)  # each generated method costs milliseconds
class ServerArgs(_Options):
    """Options of the HTTP server and of the process; the fields are those that have an effect."""

    _OWNER: ClassVar[str] = "server"

    # address
    host: str | None = None
    port: int = 8000
    uds: str | None = None
    root_path: str | None = None
    # who may do what
    api_key: list[str] | None = None
    api_key_guards_metrics: bool = False
    allowed_origins: list[object] = field(default_factory=list)
    allow_credentials: bool = False
    allowed_methods: list[object] = field(default_factory=lambda: ["*"])
    allowed_headers: list[object] = field(default_factory=lambda: ["*"])
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None
    ssl_cert_reqs: int = 0
    # the application
    middleware: list[str] = field(default_factory=list)
    enable_request_id_headers: bool = False
    disable_fastapi_docs: bool = False
    # chat
    chat_template: str | None = None
    chat_template_content_format: str = "auto"
    trust_request_chat_template: bool = False
    default_chat_template_kwargs: dict[str, object] | None = None
    response_role: str = "assistant"
    # tools and reasoning
    enable_auto_tool_choice: bool = False
    tool_call_parser: str | None = None
    tool_parser_plugin: str = ""
    tool_strict_level: str = "auto"
    exclude_tools_when_tool_choice_none: bool = False
    reasoning_parser: str = ""
    reasoning_parser_plugin: str = ""
    return_tokens_as_token_ids: bool = False
    enable_prompt_tokens_details: bool = False
    enable_force_include_usage: bool = False
    enable_server_load_tracking: bool = False
    enable_tokenizer_info_endpoint: bool = False
    sse_keep_alive_interval: float = 0.0
    # logs
    uvicorn_log_level: str = "info"
    disable_uvicorn_access_log: bool = False
    disable_access_log_for_endpoints: str | None = None
    max_log_len: int | None = None
    enable_log_requests: bool = False
    enable_log_outputs: bool = False
    log_error_stack: bool | None = None
    log_level: str | None = None
    logging_config: dict[str, object] | None = None
    log_config_file: str | None = None
    # the process
    shutdown_timeout: float = 15.0
    fail_on_environ_validation: bool = False

    warnings: list[str] = field(default_factory=list)
    ignored: dict[str, object] = field(default_factory=dict)

    def __init__(self, **options: Any) -> None:
        self._fill(options)


_SERVER_FIELDS = frozenset(f.name for f in fields(ServerArgs))
_ENGINE_FIELDS = frozenset(f.name for f in fields(EngineArgs))


def owner_of(flag: Flag) -> str:
    """`engine`, `server`, or `parser`: who takes this flag."""
    if flag.field in PARSER_FIELDS:
        return "parser"
    if flag.status == WORKS:
        return "server" if flag.field in _SERVER_FIELDS else "engine"
    if flag.status == REMOVED:
        return "engine"
    return "server" if flag.group in _SERVER_GROUPS else "engine"


def split_options(options: Mapping[str, object]) -> tuple[EngineArgs, ServerArgs]:
    """Engine and server options from one mapping of field names, as the parser returns it.

    Raises:
        ConfigError: a value is wrong, or an option cannot be honoured.
    """
    by_owner: dict[str, dict[str, Any]] = {"engine": {}, "server": {}, "parser": {}}
    for name, value in options.items():
        by_owner[owner_of(BY_FIELD[name])][name] = value
    return EngineArgs(**by_owner["engine"]), ServerArgs(**by_owner["server"])


def non_default_args(*args: _Options) -> dict[str, object]:
    """Options that differ from their defaults, for the log; keys and tokens are hidden."""
    shown: dict[str, object] = {}
    for options in args:
        for f in fields(options):  # type: ignore[arg-type]
            flag = BY_FIELD.get(f.name)
            if flag is None:
                continue
            value = getattr(options, f.name)
            if value != flag.default:
                shown[f.name] = _SECRET_SHOWN if flag.secret else value
        shown.update(options.ignored)
    return shown
