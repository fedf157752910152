"""Settings from the environment: the one place that reads them.

`OCTAVO_X` comes before `VLLM_X`, which comes before the default; flags and YAML come before both.
Set and different, the two are named in a warning. Names nobody knows are reported once, and are
an error with `--fail-on-environ-validation`. Variables that Kubernetes sets for a service that
happens to be called `vllm` or `octavo` are not settings and are left alone.

    env = read_environ()
    env.api_key, env.cpu_kvcache_space, env.hf_token, ...
    env.warnings  # sentences for the log

Runs in: the API process, `LLM`, EngineCore. Owns: names, types and defaults of variables.
Knows nothing of: flags, logging.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from octavo.errors import ConfigError

OWN_PREFIX = "OCTAVO_"
VLLM_PREFIX = "VLLM_"

_TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
_FALSE_WORDS = frozenset({"0", "false", "no", "off", ""})


def _text(value: str) -> str:
    return value


def _boolean(value: str) -> bool:
    word = value.strip().lower()
    if word in _TRUE_WORDS:
        return True
    if word in _FALSE_WORDS:
        return False
    raise ValueError("1 or 0, true or false")


def _whole(value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ValueError("a whole number") from None
    if number < 0:
        raise ValueError("a whole number of at least 0")
    return number


def _number(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("a number") from None
    if not 0 <= number < float("inf"):
        raise ValueError("a number of at least 0")
    return number


def _positive(value: str) -> float:
    try:
        number = _number(value)
    except ValueError:
        number = 0.0
    if number == 0:
        raise ValueError("a number above 0")
    return number


def _level(value: str) -> str:
    level = value.strip().upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise ValueError("DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return level


def _colour(value: str) -> str:
    word = value.strip().lower()
    if word not in ("auto", "0", "1"):
        raise ValueError("auto, 0 or 1")
    return word


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


class _Variable:
    """How one variable is read; `is_plain`: other programs share the name, so it has no prefix."""

    __slots__ = ("is_plain", "is_secret", "parse")

    def __init__(
        self, parse: Callable[[str], object], *, is_plain: bool = False, is_secret: bool = False
    ) -> None:
        self.parse = parse
        self.is_plain = is_plain
        self.is_secret = is_secret


#: field of `Env` -> how it is read; the variable's name is the field's in capitals
_VARIABLES: dict[str, _Variable] = {
    # access and logs
    "api_key": _Variable(_text, is_secret=True),
    "logging_level": _Variable(_level),
    "configure_logging": _Variable(_boolean),
    "logging_config_path": _Variable(_text),
    "logging_prefix": _Variable(_text),
    "logging_stream": _Variable(_text),
    "logging_color": _Variable(_colour),
    "log_stats_interval": _Variable(_number),
    # processes
    "engine_ready_timeout_s": _Variable(_whole),
    "stall_limit_s": _Variable(_positive),
    # HTTP
    "http_timeout_keep_alive": _Variable(_whole),
    "server_dev_mode": _Variable(_boolean),
    "max_completion_prompts": _Variable(_whole),
    "max_stop_strings": _Variable(_whole),
    # model
    "allow_long_max_model_len": _Variable(_boolean),
    # prefix cache
    "kv_events_use_int_block_hashes": _Variable(_boolean),
    # CPU
    "cpu_kvcache_space": _Variable(_number),
    "cpu_omp_threads_bind": _Variable(_text),
    "cpu_num_of_reserved_cpu": _Variable(_whole),
    # standard names
    "no_color": _Variable(bool, is_plain=True),  # https://no-color.org: any text but an empty one
    "force_color": _Variable(bool, is_plain=True),
    "openai_api_key": _Variable(_text, is_plain=True, is_secret=True),  # of our clients only
    "hf_token": _Variable(_text, is_plain=True, is_secret=True),
    "hf_home": _Variable(_text, is_plain=True),
    "hf_hub_cache": _Variable(_text, is_plain=True),
    "hf_endpoint": _Variable(_text, is_plain=True),
    "hf_hub_offline": _Variable(_boolean, is_plain=True),
    "transformers_offline": _Variable(_boolean, is_plain=True),
    "xdg_cache_home": _Variable(_text, is_plain=True),
    "home": _Variable(_text, is_plain=True),
    "tmpdir": _Variable(_text, is_plain=True),
    "pythonhashseed": _Variable(_text, is_plain=True),  # vLLM derives the first hash from it
}


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says, typed; see `read_environ`."""

    api_key: str | None = None
    logging_level: str | None = None
    configure_logging: bool = True
    logging_config_path: str | None = None
    logging_prefix: str = ""
    logging_stream: str = "ext://sys.stdout"
    logging_color: str = "auto"  # auto, 0, 1
    log_stats_interval: float = 10.0  # seconds; 0 means the default
    engine_ready_timeout_s: int = 600
    stall_limit_s: float = 30.0
    http_timeout_keep_alive: int = 5  # seconds
    server_dev_mode: bool = False
    max_completion_prompts: int = 1024
    max_stop_strings: int = 4
    allow_long_max_model_len: bool = False
    kv_events_use_int_block_hashes: bool = True
    cpu_kvcache_space: float | None = None  # GiB
    cpu_omp_threads_bind: str = "auto"  # auto, nobind, or 0-3|4-7
    cpu_num_of_reserved_cpu: int | None = None
    no_color: bool = False
    force_color: bool = False
    openai_api_key: str | None = None
    hf_token: str | None = None
    hf_home: str | None = None
    hf_hub_cache: str | None = None
    hf_endpoint: str | None = None
    hf_hub_offline: bool = False
    transformers_offline: bool = False
    xdg_cache_home: str | None = None
    home: str | None = None
    tmpdir: str | None = None
    pythonhashseed: str = "vllm-none-hash"  # vLLM's constant where the variable is not set

    #: sentences for the log
    warnings: list[str] = []
    #: OCTAVO_* and VLLM_* names that nobody knows
    unknown: list[str] = []

    @property
    def is_offline(self) -> bool:
        """True when the hub must not be asked."""
        return self.hf_hub_offline or self.transformers_offline

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'***' if variable.is_secret else repr(getattr(self, name))}"
            for name, variable in _VARIABLES.items()
            if getattr(self, name) != getattr(DEFAULTS, name)
        )
        return f"Env({shown})"


#: what holds when nothing is set
DEFAULTS = Env()


def read_environ(environ: Mapping[str, str] | None = None) -> Env:
    """Reads `environ` (the process's own if None).

    Raises:
        ConfigError: a variable has a value that cannot be read; names the variable and the value.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for field, variable in _VARIABLES.items():
        name = _name_set(field.upper(), variable.is_plain, environ, warnings)
        if name is None:
            continue
        try:
            values[field] = variable.parse(environ[name])
        except ValueError as error:
            shown = "(hidden)" if variable.is_secret else repr(environ[name])
            raise ConfigError(f"{name} must be {error}, got {shown}") from None
    unknown, inert = _other_names(environ, warnings)
    if unknown:
        warnings.append(f"unknown environment variables are ignored: {', '.join(unknown)}")
    if inert:
        warnings.append(f"environment variables without effect here: {', '.join(inert)}")
    return Env(**values, warnings=warnings, unknown=unknown)


def set_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What is set of all that is read here: name -> value, secrets hidden. Names beginning with our
    prefixes that are not read here are listed without their values, which may be anything."""
    environ = os.environ if environ is None else environ
    shown: dict[str, str] = {}
    for name in sorted(environ):
        has_prefix = name.startswith((OWN_PREFIX, VLLM_PREFIX))
        field = name.removeprefix(OWN_PREFIX).removeprefix(VLLM_PREFIX).lower()
        variable = _VARIABLES.get(field)
        if variable is not None and variable.is_plain != has_prefix:
            shown[name] = "(hidden)" if variable.is_secret else environ[name]
        elif has_prefix and not is_kubernetes_service_name(name, environ[name]):
            shown[name] = "(not read)"
    return shown


def check_unknown(env: Env) -> None:
    """The stricter rule of `--fail-on-environ-validation`.

    Raises:
        ConfigError: there are OCTAVO_* or VLLM_* variables that nobody knows.
    """
    if env.unknown:
        raise ConfigError(
            f"unknown environment variables: {', '.join(env.unknown)} "
            "(--fail-on-environ-validation)"
        )


def is_kubernetes_service_name(name: str, value: str) -> bool:
    """True for variables Kubernetes sets for a service whose name begins with ours.

    A service `vllm` gives VLLM_SERVICE_HOST, VLLM_SERVICE_PORT[_NAME], VLLM_PORT=tcp://...,
    VLLM_PORT_8000_TCP[_ADDR|_PORT|_PROTO]; a service `vllm-chat` the same with VLLM_CHAT_.
    """
    if re.fullmatch(_SERVICE_NAME, name):
        return True
    return name.endswith("_PORT") and value.startswith(("tcp://", "udp://", "sctp://"))


_SERVICE_NAME = (  # compiled on use: pods have such names, most start-ups do not
    r"(OCTAVO|VLLM)(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)


def _name_set(
    name: str, is_plain: bool, environ: Mapping[str, str], warnings: list[str]
) -> str | None:
    """Which spelling of a variable counts, or None if it is not set."""
    if is_plain:
        return name if name in environ else None
    own, vllm = OWN_PREFIX + name, VLLM_PREFIX + name
    if own in environ and vllm in environ and environ[own] != environ[vllm]:
        warnings.append(f"{own} and {vllm} are both set and differ; {own} is used")
    return own if own in environ else vllm if vllm in environ else None


def _other_names(environ: Mapping[str, str], warnings: list[str]) -> tuple[list[str], list[str]]:
    """Names that nobody knows, and names that are known to have no effect here."""
    known = {field.upper() for field, variable in _VARIABLES.items() if not variable.is_plain}
    unknown: list[str] = []
    inert: list[str] = []
    for name in sorted(environ):
        own = name.startswith(OWN_PREFIX)
        if not own and not name.startswith(VLLM_PREFIX):
            continue
        if is_kubernetes_service_name(name, environ[name]):
            if name in ("OCTAVO_PORT", "VLLM_PORT"):
                warnings.append(
                    f"{name}={environ[name]} is ignored: Kubernetes sets it for a service of that "
                    "name"
                )
            continue
        rest = name.removeprefix(OWN_PREFIX if own else VLLM_PREFIX)
        if rest in known or rest in _SILENT:
            continue
        if rest in _INERT or rest.startswith(_INERT_FAMILIES):
            inert.append(name)
        else:
            unknown.append(name)
    return unknown, inert


# Switches of what does not exist here: telemetry, a banner.
_SILENT = frozenset(
    {"NO_USAGE_STATS", "DO_NOT_TRACK", "USAGE_SOURCE", "USAGE_STATS_SERVER", "DISABLE_LOG_LOGO"}
)

# vLLM's variables that have no effect here, so that they are not taken for mistakes: those of
# other devices and libraries by family, the rest by name.
_INERT_FAMILIES = (
    "ALLREDUCE_", "BLOCKSCALE_", "CUDA", "DBO_", "DEEP", "DP_", "ELASTIC_EP_", "FASTSAFETENSORS_",
    "FLASHINFER_", "FLASH_ATTN_", "GPT_OSS_", "HUMMING_", "LORA_", "MARLIN_", "MEDIA_",
    "MOE_", "MOONCAKE_", "MXFP8_", "NCCL_", "NIXL_", "NVFP4_", "NVTX_", "RAY_", "ROCM_", "TPU_",
    "TRITON_", "USE_", "WEIGHT_OFFLOADING_", "XLA_", "XPU_", "ZENTORCH_",
)  # fmt: skip

# fmt: off
_INERT = frozenset({
    "ALL2ALL_BACKEND", "ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE",
    "ALLOW_INSECURE_SERIALIZATION", "ALLOW_RUNTIME_LORA_UPDATING", "ASSETS_CACHE",
    "ASSETS_CACHE_MODEL_CLEAN", "ATTENTION_BACKEND", "AUDIO_FETCH_TIMEOUT", "BATCH_INVARIANT",
    "CACHE_ROOT", "CHAT_TEMPLATE_RENDER_TIMEOUT", "COMPILE_CACHE_SAVE_FORMAT",
    "COMPUTE_NANS_IN_LOGITS", "CONFIG_ROOT", "CPU_ATTN_SPLIT_KV", "CPU_CI_ENV", "CPU_INT4_W4A8",
    "CPU_MOE_PREPACK", "CPU_SGL_KERNEL", "CPU_SIM_MULTI_NUMA", "CUSTOM_SCOPES_FOR_PROFILING",
    "DEBUG_DUMP_PATH", "DEBUG_LOG_API_SERVER_RESPONSE", "DEBUG_MFU_METRICS", "DEBUG_WORKSPACE",
    "DISABLED_KERNELS", "DISABLE_COMPILE_CACHE", "DISABLE_PYNCCL",
    "DISABLE_REQUEST_ID_RANDOMIZATION", "DISABLE_SHARED_EXPERTS_STREAM",
    "DISTRIBUTED_USE_SPLIT_GROUP", "DOCKER_BUILD_CONTEXT", "ENABLE_COHERE_API",
    "ENABLE_CUDAGRAPH_GC", "ENABLE_CUDA_COMPATIBILITY", "ENABLE_FLA_PACKED_RECURRENT_DECODE",
    "ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING", "ENABLE_INDUCTOR_MAX_AUTOTUNE",
    "ENABLE_PREGRAD_PASSES", "ENABLE_RESPONSES_API_STORE", "ENABLE_STARTUP_PLAN",
    "ENABLE_V1_MULTIPROCESSING", "ENFORCE_STRICT_TOOL_CALLING", "ENGINE_ITERATION_TIMEOUT_S",
    "EXECUTE_MODEL_TIMEOUT_SECONDS", "KEEP_ALIVE_ON_ENGINE_DEATH", "RPC_BASE_PATH",
    "FLOAT32_MATMUL_PRECISION", "FORCE_AOT_LOAD", "FUSED_MOE_CHUNK_SIZE", "GC_DEBUG",
    "GPU_NIC_PCIE_MAPPING", "HAS_FLASHINFER_CUBIN", "HOST_IP", "IMAGE_FETCH_TIMEOUT",
    "KV_CACHE_LAYOUT", "LOGITS_PROCESSOR_THREADS",
    "LOG_BATCHSIZE_INTERVAL", "LOG_MODEL_INSPECTION", "LOOPBACK_IP", "MAIN_CUDA_VERSION",
    "MAX_AUDIO_CLIP_FILESIZE_MB", "MAX_AUDIO_DECODE_DURATION_S", "MAX_AUDIO_PREPROCESS_WORKERS",
    "MAX_BAD_WORDS_TOTAL_TOKENS", "MAX_IMAGE_PIXELS", "MAX_MEDIA_DOWNLOAD_SIZE_MB",
    "MAX_NUM_BAD_WORDS", "MAX_N_SEQUENCES", "MAX_TOKENS_PER_EXPERT_FP4_MOE",
    "MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "MLA_DISABLE", "MM_HASHER_ALGORITHM",
    "MM_INPUT_CACHE_GIB", "MODEL_REDIRECT_PATH", "MQ_MAX_CHUNK_BYTES_MB",
    "MSGPACK_ZERO_COPY_THRESHOLD", "MULTI_STREAM_GEMM_TOKEN_THRESHOLD", "NIC_SELECTION_VARS",
    "NO_DEPRECATION_WARNING", "OBJECT_STORAGE_SHM_BUFFER_NAME", "PATTERN_MATCH_DEBUG", "PLUGINS",
    "PORT", "PP_LAYER_PARTITION", "PREFIX_CACHE_RETENTION_INTERVAL", "PROCESS_NAME_PREFIX",
    "RAISE_ON_LOGIT_NANS", "RANDOMIZE_DP_DUMMY_INPUTS", "REGEX_COMPILATION_TIMEOUT_S",
    "RINGBUFFER_WARNING_INTERVAL", "RPC_TIMEOUT", "RUST_FRONTEND_PATH",
    "SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD", "SKIP_MODEL_NAME_VALIDATION", "SKIP_P2P_CHECK",
    "SKIP_PRECOMPILED_VERSION_SUFFIX", "SLEEP_WHEN_IDLE", "SPARSE_INDEXER_MAX_LOGITS_MB",
    "SSM_CONV_STATE_LAYOUT", "SYSTEM_START_DATE", "TARGET_DEVICE", "TEST_DYNAMO_FULLGRAPH_CAPTURE",
    "TOOL_JSON_ERROR_AUTOMATIC_RETRY", "TOOL_PARSE_REGEX_TIMEOUT_SECONDS", "TORCH_PROFILER_DIR",
    "TRACE_FUNCTION", "TUNED_CONFIG_FOLDER", "V0_USE_OUTLINES_CACHE", "V1_OUTPUT_PROC_CHUNK_SIZE",
    "V1_USE_OUTLINES_CACHE", "VIDEO_FETCH_TIMEOUT", "VIDEO_LOADER_BACKEND",
    "WORKER_MULTIPROC_METHOD", "WORKER_SHUTDOWN_TIMEOUT_SECONDS", "WSL2_ENABLE_PIN_MEMORY",
    "XGRAMMAR_CACHE_MB",
})
# fmt: on
