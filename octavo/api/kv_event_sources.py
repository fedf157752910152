"""`GET /kv_event_sources`: where each engine publishes events of its prefix cache.

Runs in: API process, event loop. Owns: the answer's shape (vLLM's). Knows nothing of: the events.
"""

from __future__ import annotations

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation
from octavo.config.engine import KVEventsConfig
from octavo.errors import Unauthorized
from octavo.frontend.async_llm import AsyncLLM


class KVEventSource(msgspec.Struct, kw_only=True):
    """One engine's publisher; the keys of `--kv-events-config`, with the ports that were bound."""

    enable_kv_cache_events: bool = True
    publisher: str = "zmq"
    endpoint: str
    replay_endpoint: str | None
    buffer_steps: int
    hwm: int
    max_queue_size: int
    topic: str


class KVEventSources:
    """The route."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    def operations(self) -> list[Operation]:
        """The route."""
        return [
            Operation(
                ("GET",),
                "/kv_event_sources",
                self._show,
                "Number of each engine that publishes KV events -> where",
                "server",
                response=dict[str, KVEventSource],
                errors=(Unauthorized,),
            )
        ]

    async def _show(self, scope: Scope, receive: Receive, send: Send) -> None:
        sources = {
            str(rank): _source(config) for rank, config in self._llm.kv_event_sources.items()
        }
        await respond(send, 200, msgspec.json.encode(sources))


def _source(config: KVEventsConfig) -> KVEventSource:
    return KVEventSource(
        endpoint=config.endpoint,
        replay_endpoint=config.replay_endpoint,
        buffer_steps=config.buffer_steps,
        hwm=config.hwm,
        max_queue_size=config.max_queue_size,
        topic=config.topic,
    )
