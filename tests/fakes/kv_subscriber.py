"""A subscriber of KV events as others write them: its own structs, and a set of names per group.

The structs are what vLLM 0.32 declares and tells subscribers to declare, so a field that is
missing, misnamed or out of order in our messages is missed here, too.
"""

from __future__ import annotations

from typing import Any

import msgspec


class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Base of the events."""


class BlockStored(KVCacheEvent):
    """Blocks appear."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class BlockRemoved(KVCacheEvent):
    """Blocks are gone."""

    block_hashes: list[int | bytes]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(KVCacheEvent):
    """All blocks are gone."""


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """One step."""

    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class KVSubscriber:
    """Replays batches. `names` are (group, hash) pairs that can be found now."""

    def __init__(self) -> None:
        self.names: set[tuple[int | None, int | bytes]] = set()
        self.batches: list[KVEventBatch] = []
        self._decoder = msgspec.msgpack.Decoder(KVEventBatch)

    @property
    def events(self) -> list[BlockStored | BlockRemoved | AllBlocksCleared]:
        """All events so far."""
        return [event for batch in self.batches for event in batch.events]

    def apply(self, payload: bytes) -> None:
        """Takes one batch, and checks that each event says something new."""
        batch = self._decoder.decode(payload)
        self.batches.append(batch)
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self.names.clear()
                continue
            names = {(event.group_idx, block_hash) for block_hash in event.block_hashes}
            assert len(names) == len(event.block_hashes)
            if isinstance(event, BlockStored):
                assert len(event.token_ids) == len(event.block_hashes) * event.block_size
                assert event.extra_keys is not None
                assert len(event.extra_keys) == len(event.block_hashes)
                assert self.names.isdisjoint(names), "stored twice"
                self.names |= names
            else:
                assert names <= self.names, "removed, but never stored"
                self.names -= names


class FakePublisher:
    """Hands batches to a subscriber at once, as bytes."""

    endpoint = "tcp://*:5557"
    replay_endpoint: str | None = None

    def __init__(self) -> None:
        self.subscriber = KVSubscriber()
        self.is_closed = False

    def publish(self, batch: object) -> None:
        """Delivers."""
        self.subscriber.apply(msgspec.msgpack.encode(batch))

    def close(self) -> None:
        """Notes it."""
        self.is_closed = True
