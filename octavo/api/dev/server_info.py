"""`GET /server_info`: the configuration, the environment and the machine, without secrets.

Runs in: API process, event loop. Owns: what is shown. Knows nothing of: the core.
"""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation, QueryParam
from octavo.api.query import choice, query_of
from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.envs import set_variables
from octavo.errors import InvalidParameter, Unauthorized

FORMATS = ("text", "json")
HIDDEN = "(hidden)"


class ServerInfo(msgspec.Struct):
    """Answer of `GET /server_info`, with vLLM's keys.

    Attributes:
        vllm_config: all settings, as one text or as objects by part.
        vllm_env: variables that are set and have a meaning here.
        system_env: what the machine is.
    """

    vllm_config: str | dict[str, Any]
    vllm_env: dict[str, str]
    system_env: dict[str, str]


class ServerInfoRoute:
    """The route.

    Args:
        engine: of the engine.
        server: of the HTTP side.
        version: of the package.
    """

    def __init__(self, engine: EngineConfig, server: ServerConfig, *, version: str) -> None:
        self._engine = engine
        self._server = msgspec.structs.replace(server, api_keys=[HIDDEN for _ in server.api_keys])
        self._version = version

    def operations(self) -> list[Operation]:
        """The route."""
        return [
            Operation(
                ("GET",),
                "/server_info",
                self._show,
                "Configuration, environment and machine",
                "dev",
                response=ServerInfo,
                errors=(Unauthorized, InvalidParameter),
                query_params={"config_format": QueryParam("of vllm_config", FORMATS)},
            )
        ]

    async def _show(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_text = choice(query_of(scope), "config_format", FORMATS) == "text"
        parts = msgspec.to_builtins(self._engine) | {"server": msgspec.to_builtins(self._server)}
        info = ServerInfo(
            f"{self._engine!r}, {self._server!r}" if is_text else parts,
            set_variables(),
            self._system(),
        )
        await respond(send, 200, msgspec.json.encode(info))

    def _system(self) -> dict[str, str]:
        import platform  # for a page few ask for

        return {
            "octavo_version": self._version,
            "python_version": platform.python_version(),
            "os": platform.platform(),
            "machine": platform.machine(),
        }
