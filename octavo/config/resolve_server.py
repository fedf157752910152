"""Flags and environment -> the HTTP side's frozen configuration.

Apart from `octavo/config/resolve.py` because the socket is bound before anything is known of the
model.

Runs in: the API process. Owns: which source answers which field.
Knows nothing of: argv, models, devices.
"""

from __future__ import annotations

from octavo.config.args import ServerArgs
from octavo.config.rules.access import (
    check_tls,
    check_uds,
    choose_api_keys,
    exposure_warning,
)
from octavo.config.rules.chat_template import read_chat_template
from octavo.config.rules.tool_parser import check_plugin, choose_tool_parser
from octavo.config.server import ServerConfig
from octavo.envs import Env
from octavo.errors import ConfigError


def resolve_server(args: ServerArgs, env: Env) -> ServerConfig:
    """The HTTP side's configuration; `notes` are warnings for the log.

    Raises:
        ConfigError: flags contradict each other or name files that cannot be read.
    """
    if args.enable_log_outputs and not args.enable_log_requests:
        raise ConfigError("--enable-log-outputs needs --enable-log-requests")
    check_tls(
        ssl_keyfile=args.ssl_keyfile,
        ssl_certfile=args.ssl_certfile,
        ssl_ca_certs=args.ssl_ca_certs,
        ssl_cert_reqs=args.ssl_cert_reqs,
    )
    check_uds(args.uds)
    read_chat_template(args.chat_template)  # fails before anything is started
    check_plugin("--tool-parser-plugin", args.tool_parser_plugin)
    check_plugin("--reasoning-parser-plugin", args.reasoning_parser_plugin)
    api_keys = choose_api_keys(args.api_key, env.api_key)
    exposure = exposure_warning(args.host, args.uds, api_keys)
    stack = args.log_error_stack
    return ServerConfig(
        host=args.host or None,
        port=args.port,
        uds=args.uds,
        api_keys=api_keys,
        api_key_guards_metrics=args.api_key_guards_metrics,
        uvicorn_log_level=args.uvicorn_log_level,
        disable_uvicorn_access_log=args.disable_uvicorn_access_log,
        disable_access_log_for_endpoints=_paths(args.disable_access_log_for_endpoints),
        allowed_origins=_strings("allowed-origins", args.allowed_origins),
        allow_credentials=args.allow_credentials,
        allowed_methods=_strings("allowed-methods", args.allowed_methods),
        allowed_headers=_strings("allowed-headers", args.allowed_headers),
        ssl_keyfile=args.ssl_keyfile,
        ssl_certfile=args.ssl_certfile,
        ssl_ca_certs=args.ssl_ca_certs,
        ssl_cert_reqs=args.ssl_cert_reqs,
        root_path=args.root_path,
        middleware=args.middleware,
        enable_request_id_headers=args.enable_request_id_headers,
        disable_fastapi_docs=args.disable_fastapi_docs,
        chat_template_content_format=args.chat_template_content_format,
        trust_request_chat_template=args.trust_request_chat_template,
        default_chat_template_kwargs=args.default_chat_template_kwargs or {},
        response_role=args.response_role,
        enable_auto_tool_choice=args.enable_auto_tool_choice,
        tool_call_parser=choose_tool_parser(
            args.tool_call_parser, is_auto_choice=args.enable_auto_tool_choice
        ),
        tool_parser_plugin=args.tool_parser_plugin,
        tool_strict_level=args.tool_strict_level,
        exclude_tools_when_tool_choice_none=args.exclude_tools_when_tool_choice_none,
        reasoning_parser=args.reasoning_parser or None,
        reasoning_parser_plugin=args.reasoning_parser_plugin,
        return_tokens_as_token_ids=args.return_tokens_as_token_ids,
        max_log_len=args.max_log_len,
        enable_log_requests=args.enable_log_requests,
        enable_log_outputs=args.enable_log_outputs,
        enable_prompt_tokens_details=args.enable_prompt_tokens_details,
        enable_per_request_metrics=args.enable_per_request_metrics,
        enable_force_include_usage=args.enable_force_include_usage,
        enable_server_load_tracking=args.enable_server_load_tracking,
        enable_tokenizer_info_endpoint=args.enable_tokenizer_info_endpoint,
        sse_keep_alive_interval_s=args.sse_keep_alive_interval,
        log_error_stack=env.server_dev_mode if stack is None else stack,
        shutdown_timeout_s=args.shutdown_timeout,
        http_timeout_keep_alive_s=env.http_timeout_keep_alive,
        max_completion_prompts=env.max_completion_prompts,
        max_stop_strings=env.max_stop_strings,
        dev_mode=env.server_dev_mode,
        notes=[exposure] if exposure else [],
    )


def _paths(text: str | None) -> list[str]:
    return [path.strip() for path in (text or "").split(",") if path.strip()]


def _strings(flag: str, values: list[object]) -> list[str]:
    if not all(isinstance(value, str) for value in values):
        raise ConfigError(f"--{flag} must be a JSON list of strings, got {values!r}")
    return [str(value) for value in values]
