"""What happens to the names of KV blocks, told to whoever routes requests by prefix.

The pool and the manager tell a sink when a key appears or is forgotten; `EngineCore` ends each step
with `flush`. A subscriber that applies all batches in order holds exactly the keys that a request
could find. By default nobody listens and nothing is computed.

Called by: `block_pool.py`, `kv_cache_manager.py`, `engine_core.py`. Uses: `messages/kv_events.py`.
Runs in: EngineCore. Owns: the events of the step that is not over.
Knows nothing of: sockets, blocks, queues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from octavo.config.engine import KVEventsConfig
from octavo.core.block_hash import split_key
from octavo.core.request import Request
from octavo.messages.kv_cache import KVCacheConfig
from octavo.messages.kv_events import (
    MEDIUM,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    ExternalHash,
    KVCacheEvent,
    KVEventBatch,
)

logger = logging.getLogger(__name__)


class KVEventSink(Protocol):
    """Takes what happens, in order."""

    def stored(self, request: Request, group: int, indices: Sequence[int]) -> None:
        """Blocks of a request, by ascending index, have got names in `group`."""

    def removed(self, key: bytes) -> None:
        """A key can no longer be found."""

    def cleared(self) -> None:
        """No key can be found any more."""

    def flush(self) -> None:
        """The step is over: what has happened since the last call goes out as one batch."""


class NoKVEvents:
    """Nobody listens."""

    def stored(self, request: Request, group: int, indices: Sequence[int]) -> None:
        """Nothing."""

    def removed(self, key: bytes) -> None:
        """Nothing."""

    def cleared(self) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""


class KVEventPublisher(Protocol):
    """Carries batches away without waiting for anybody (`octavo/transport/event_publisher.py`)."""

    endpoint: str
    replay_endpoint: str | None

    def publish(self, batch: KVEventBatch) -> None: ...

    def close(self) -> None: ...


class KVEventLog:
    """Collects a step's events in vLLM's format.

    Args:
        publisher: takes the batches.
        config: block size and groups.
        rank: number of this engine among data-parallel ones.
        use_int_hashes: names are the last 8 bytes of a hash as a number, not all 32.
    """

    def __init__(
        self,
        publisher: KVEventPublisher,
        config: KVCacheConfig,
        *,
        rank: int,
        use_int_hashes: bool,
    ) -> None:
        self._publisher = publisher
        self._block_size = config.block_size
        self._tells_prompts_apart = config.tells_prompts_apart
        self._windows = [group.sliding_window for group in config.groups]
        self._rank = rank
        self._use_int_hashes = use_int_hashes
        self._events: list[KVCacheEvent] = []

    def stored(self, request: Request, group: int, indices: Sequence[int]) -> None:
        """See `KVEventSink`. One event for each run of consecutive blocks."""
        hashes, size, adapter = request.block_hashes, self._block_size, request.adapter
        window = self._windows[group]
        for first, end in _runs(indices):
            self._events.append(
                BlockStored(
                    block_hashes=[self._external(hashes[index]) for index in range(first, end)],
                    parent_block_hash=self._external(hashes[first - 1]) if first else None,
                    token_ids=request.all_token_ids[first * size : end * size],
                    block_size=size,
                    lora_id=None if adapter is None else adapter.id,
                    medium=MEDIUM,
                    lora_name=None if adapter is None else adapter.name,
                    extra_keys=[self._extra_keys(request, index) for index in range(first, end)],
                    group_idx=group,
                    kv_cache_spec_kind="full_attention" if window is None else "sliding_window",
                    kv_cache_spec_sliding_window=window,
                )
            )

    def removed(self, key: bytes) -> None:
        """See `KVEventSink`. Keys of one group that go one after another share an event."""
        block_hash, group = split_key(key)
        name = self._external(block_hash)
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockRemoved) and last.group_idx == group:
            last.block_hashes.append(name)
        else:
            self._events.append(BlockRemoved([name], MEDIUM, group))

    def cleared(self) -> None:
        """See `KVEventSink`."""
        self._events.append(AllBlocksCleared())

    def flush(self) -> None:
        """See `KVEventSink`."""
        if self._events:
            events, self._events = self._events, []
            try:
                self._publisher.publish(KVEventBatch(time.time(), events, self._rank))
            except Exception:  # who listens is no reason for requests to end
                logger.exception("KV events: a batch of %d events is lost.", len(events))

    def _extra_keys(self, request: Request, index: int) -> tuple[str, ...] | None:
        """What the hash of a block covers besides tokens, as vLLM shows it outside."""
        scope = request.prefix_scope
        keys = [] if scope.adapter is None else [scope.adapter[0]]
        if scope.cache_salt is not None and index == 0:
            keys.append(scope.cache_salt)
        if self._tells_prompts_apart:
            first_generated = request.num_prompt_tokens - index * self._block_size
            if 0 <= first_generated < self._block_size:
                keys.append(f"generated:{first_generated}")
        return tuple(keys) or None

    def _external(self, block_hash: bytes) -> ExternalHash:
        return int.from_bytes(block_hash[-8:], "big") if self._use_int_hashes else block_hash


def make_kv_events(
    publisher: KVEventPublisher | None,
    config: KVEventsConfig | None,
    layout: KVCacheConfig,
    rank: int,
) -> KVEventSink:
    """The sink for a publisher; one that does nothing if there is none."""
    if publisher is None or config is None:
        return NoKVEvents()
    return KVEventLog(publisher, layout, rank=rank, use_int_hashes=config.use_int_block_hashes)


def bound_source(
    publisher: KVEventPublisher | None, config: KVEventsConfig | None
) -> KVEventsConfig | None:
    """What subscribers are told: the configuration with the addresses that were really bound."""
    if publisher is None or config is None:
        return None
    return msgspec.structs.replace(
        config, endpoint=publisher.endpoint, replay_endpoint=publisher.replay_endpoint
    )


def _runs(indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, one past the last) of each run of consecutive numbers."""
    first = 0
    for position in range(1, len(indices) + 1):
        if position == len(indices) or indices[position] != indices[position - 1] + 1:
            yield indices[first], indices[position - 1] + 1
            first = position
