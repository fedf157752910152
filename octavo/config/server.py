"""`ServerConfig`: what the HTTP side needs to know, resolved and frozen.

Made in: `octavo/config/resolve_server.py`. Read by: `octavo/api`, `octavo/cli/serve.py`.
"""

from __future__ import annotations

import msgspec


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of the Frontend group that work, with vLLM's names."""

    host: str | None = None
    port: int = 8000
    uds: str | None = None
    api_keys: list[str] = []
    api_key_guards_metrics: bool = False
    uvicorn_log_level: str = "info"
    disable_uvicorn_access_log: bool = False
    disable_access_log_for_endpoints: list[str] = []
    allowed_origins: list[str] = []
    allow_credentials: bool = False
    allowed_methods: list[str] = msgspec.field(default_factory=lambda: ["*"])
    allowed_headers: list[str] = msgspec.field(default_factory=lambda: ["*"])
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None
    ssl_cert_reqs: int = 0
    root_path: str | None = None
    middleware: list[str] = []
    enable_request_id_headers: bool = False
    disable_fastapi_docs: bool = False
    chat_template_content_format: str = "auto"
    trust_request_chat_template: bool = False
    default_chat_template_kwargs: dict[str, object] = {}
    response_role: str = "assistant"
    enable_auto_tool_choice: bool = False
    tool_call_parser: str | None = None  # a name, or auto; None: calls are not looked for
    tool_parser_plugin: str = ""
    tool_strict_level: str = "auto"
    exclude_tools_when_tool_choice_none: bool = False
    reasoning_parser: str | None = None
    reasoning_parser_plugin: str = ""
    return_tokens_as_token_ids: bool = False
    max_log_len: int | None = None
    enable_log_requests: bool = False
    enable_log_outputs: bool = False
    enable_prompt_tokens_details: bool = False
    enable_per_request_metrics: bool = False
    enable_force_include_usage: bool = False
    enable_server_load_tracking: bool = False
    enable_tokenizer_info_endpoint: bool = False
    sse_keep_alive_interval_s: float = 0.0
    log_error_stack: bool = False
    shutdown_timeout_s: float = 15.0
    http_timeout_keep_alive_s: int = 5
    max_completion_prompts: int = 1024
    max_stop_strings: int = 4
    dev_mode: bool = False
    #: warnings for the log, one sentence each
    notes: list[str] = []
