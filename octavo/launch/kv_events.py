"""The publisher of KV events that the configuration asks for.

Neighbours: `octavo/launch/core.py`, `octavo/launch/offline.py` (callers). Runs in: EngineCore, or
the user's process offline. Owns: nothing. Knows nothing of: blocks.
"""

from __future__ import annotations

import msgspec

from octavo.config.engine import EngineConfig
from octavo.core.kv_events import KVEventPublisher


def make_kv_event_publisher(config: EngineConfig) -> KVEventPublisher | None:
    """A publisher whose sockets are open; None if nothing is to be published.

    Raises:
        StartupError: an address cannot be used.
    """
    events = config.kv_events
    if events is None:
        return None
    # for this flag only: offline there are no other sockets
    from octavo.transport.event_publisher import EventPublisher

    return EventPublisher(
        msgspec.msgpack.Encoder().encode,
        endpoint=events.endpoint,
        replay_endpoint=events.replay_endpoint,
        topic=events.topic,
        hwm=events.hwm,
        max_queue_size=events.max_queue_size,
        buffer_steps=events.buffer_steps,
    )
