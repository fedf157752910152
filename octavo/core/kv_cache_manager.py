"""Which blocks each request holds: prefix hits, allocation, naming of full blocks, release.

A request has one block table per KV group; all tables have the same length, because a block holds
`block_size` tokens in every group. Groups with a sliding window give back blocks that no later
token can see; their place in the table is then the null block.

Called by: `octavo/core/scheduler.py`. Uses: `block_pool.py`, `block_hash.py`.
Runs in: EngineCore. Owns: block tables. Knows nothing of: queues, budgets, tensors.
"""

from __future__ import annotations

import msgspec

from octavo.core.block_hash import BlockHasher, Sha256Hasher, group_key
from octavo.core.block_pool import NULL_BLOCK, BlockPool
from octavo.core.kv_cache_layout import KVCacheLayout
from octavo.core.kv_events import KVEventSink, NoKVEvents
from octavo.core.request import Request
from octavo.messages.kv_cache import KVCacheConfig


class PrefixHit(msgspec.Struct, frozen=True):
    """A prefix found in the cache: per group a table of its blocks (nobody holds them yet)."""

    num_tokens: int
    tables: list[list[int]]


class NextBlock(msgspec.Struct, frozen=True):
    """A block that a running request is about to fill with tokens it knows."""

    index: int  # in the request
    hash: bytes


class HeldBlocks(msgspec.Struct):
    """What one request holds. `num_named` blocks at the start of each table have been named."""

    tables: list[list[int]]
    num_named: int
    num_expired: list[int]  # per group: leading table entries that are the null block


class KVCacheManager:
    """Block tables of all running requests over one pool.

    Args:
        config: pool size, block size and groups.
        max_num_batched_tokens: longest chunk of one request in a step; a sliding window keeps its
            blocks until the chunk that needs them is done.
        enable_caching: find and name prefixes.
        hasher: how blocks are named.
        events: is told which names come and go.
    """

    def __init__(
        self,
        config: KVCacheConfig,
        *,
        max_num_batched_tokens: int,
        enable_caching: bool,
        hasher: BlockHasher | None = None,
        events: KVEventSink | None = None,
    ) -> None:
        self.block_size = config.block_size
        self.enable_caching = enable_caching
        self._tells_prompts_apart = config.tells_prompts_apart
        self._hasher = hasher or Sha256Hasher()
        self._events = events or NoKVEvents()
        self._pool = BlockPool(config.num_blocks, self._events)
        self._windows = tuple(group.sliding_window for group in config.groups)
        self._sliding = [(g, w) for g, w in enumerate(self._windows) if w is not None]
        self._layout = KVCacheLayout(config.block_size, self._windows, max_num_batched_tokens)
        self._held: dict[str, HeldBlocks] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return self._pool.usage

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return self._pool.num_free_blocks

    @property
    def num_usable_blocks(self) -> int:
        """Blocks of the whole pool that requests can hold."""
        return self._pool.num_usable_blocks

    def longest_request(self, limit: int) -> int:
        """Most tokens, at most `limit`, of a request that fits when it is alone."""
        return self._layout.longest(self._pool.num_usable_blocks, limit)

    def num_blocks_later(self, request: Request, num_tokens: int) -> int:
        """Blocks that a request of which `num_tokens` tokens have blocks still needs for the rest
        of the tokens it has now."""
        layout = self._layout
        return layout.blocks_for(request.num_tokens) - layout.blocks_for(num_tokens)

    def find_prefix(self, request: Request) -> PrefixHit:
        """The longest cached prefix of a request: whole blocks, at most `num_tokens - 1` tokens,
        because the last token must be computed to sample the next."""
        empty: list[list[int]] = [[] for _ in self._windows]
        if not self.enable_caching or not request.reads_prefix_cache:
            return PrefixHit(0, empty)
        max_blocks = (request.num_tokens - 1) // self.block_size
        self._extend_hashes(request, max_blocks)
        found = [
            self._find_blocks(request.block_hashes, group, max_blocks, window)
            for group, window in enumerate(self._windows)
        ]
        num_blocks = self._longest_hit(found, max_blocks)
        tables = [
            self._visible(blocks, num_blocks, window)
            for blocks, window in zip(found, self._windows, strict=True)
        ]
        return PrefixHit(num_blocks * self.block_size, tables)

    def missing_block(self, request: Request, hit: PrefixHit) -> bytes | None:
        """Hash of the block that would make a hit longer; None if it is as long as it can be."""
        index = hit.num_tokens // self.block_size
        if not self._can_share(request, index):
            return None
        return request.block_hashes[index]

    def next_block(self, request: Request) -> NextBlock | None:
        """The first block a running request has not computed, if it has all tokens for it."""
        index = request.num_computed_tokens // self.block_size
        if not self.enable_caching or (index + 1) * self.block_size > request.num_tokens:
            return None
        self._extend_hashes(request, index + 1)
        return NextBlock(index, request.block_hashes[index])

    def may_share(self, request: Request, block: NextBlock) -> bool:
        """True if a block is part of the prefix that a waiting request could find. Its hashes have
        been made by `find_prefix`."""
        return (
            self._can_share(request, block.index)
            and request.block_hashes[block.index] == block.hash
        )

    def _can_share(self, request: Request, index: int) -> bool:
        """True if block `index` lies before the request's last token, and it reads the cache."""
        is_inside = (index + 1) * self.block_size < request.num_tokens
        return is_inside and self.enable_caching and request.reads_prefix_cache

    def admit(
        self, request: Request, hit: PrefixHit, num_new_tokens: int, *, keep_free: int
    ) -> list[list[int]] | None:
        """Gives a waiting request its prefix and blocks for `num_new_tokens` tokens after it.

        Args:
            keep_free: blocks that must stay free afterwards.

        Returns:
            Its whole table per group, or None (and nothing changed) if blocks are short.
        """
        assert request.request_id not in self._held
        num_hit_blocks = hit.num_tokens // self.block_size
        total = -(-(hit.num_tokens + num_new_tokens) // self.block_size)
        num_new_blocks = (total - num_hit_blocks) * len(self._windows)
        revived = sum(
            self._pool.num_free_among([block for block in table if block != NULL_BLOCK])
            for table in hit.tables
        )
        if num_new_blocks + revived + keep_free > self._pool.num_free_blocks:
            return None
        for table in hit.tables:
            self._pool.share([block for block in table if block != NULL_BLOCK])
        tables = [[*table, *self._pool.take(total - num_hit_blocks)] for table in hit.tables]
        expired = [_leading_nulls(table) for table in hit.tables]
        self._held[request.request_id] = HeldBlocks(tables, num_hit_blocks, expired)
        request.num_slots = total * self.block_size
        return [list(table) for table in tables]

    def extend(self, request: Request, num_tokens: int) -> list[list[int]] | None:
        """Makes room for the first `num_tokens` tokens of a running request, which has less
        (`request.num_slots`).

        Returns:
            The new blocks per group, or None if blocks are short.
        """
        held = self._held[request.request_id]
        missing = -(-(num_tokens - request.num_slots) // self.block_size)
        if self._sliding:
            self._expire(held, request.num_computed_tokens)
        pool, new_blocks = self._pool, []
        if missing * len(held.tables) > pool.num_free_blocks:
            return None
        for table in held.tables:
            blocks = pool.take(missing)
            table += blocks
            new_blocks.append(blocks)
        request.num_slots += missing * self.block_size
        return new_blocks

    def name_full_blocks(self, request: Request, num_tokens: int) -> list[int]:
        """Makes the blocks that the first `num_tokens` tokens fill findable by others.

        It may be called when the step that computes them is scheduled: keys and values of all rows
        of a step are written, layer by layer, before any row reads them.

        Returns:
            The blocks that got a name now.
        """
        if not self.enable_caching:
            return []
        held = self._held[request.request_id]
        first, num_full = held.num_named, num_tokens // self.block_size
        if num_full <= first:
            return []
        self._extend_hashes(request, num_full)
        held.num_named = num_full
        named: list[int] = []
        hashes, name = request.block_hashes, self._pool.name
        for group, table in enumerate(held.tables):
            indices = []
            for index in range(first, num_full):  # mostly one
                block = table[index]
                if block != NULL_BLOCK and name(block, group_key(hashes[index], group)):
                    indices.append(index)
                    named.append(block)
            if indices:
                self._events.stored(request, group, indices)
        return named

    def unname(self, blocks: list[int]) -> set[int]:
        """Takes back names, because the step that should have filled the blocks failed.

        Returns:
            Those of the blocks that somebody holds: what they hold is not valid.
        """
        for block in blocks:
            self._pool.unname(block)
        return {block for block in blocks if self._pool.ref_count(block)}

    def holds_any(self, request: Request, blocks: set[int]) -> bool:
        """True if a running request holds one of `blocks`."""
        return any(not blocks.isdisjoint(table) for table in self._held[request.request_id].tables)

    def release(self, request: Request) -> None:
        """Gives back all blocks of a request, its tail to be reused first. No-op if it has none."""
        request.num_slots = 0
        held = self._held.pop(request.request_id, None)
        if held is not None:
            for table in held.tables:
                self._pool.release(table[::-1])

    def reset_prefix_cache(self) -> bool:
        """Forgets every cached prefix. Refused (False) while requests hold blocks."""
        return self._pool.forget_all()

    def _extend_hashes(self, request: Request, num_blocks: int) -> None:
        hashes = request.block_hashes
        have = len(hashes)
        if have < num_blocks:
            parent = hashes[-1] if hashes else None
            tokens = request.all_token_ids[have * self.block_size : num_blocks * self.block_size]
            first_generated = None
            if self._tells_prompts_apart:
                first_generated = request.num_prompt_tokens - have * self.block_size
            hashes.extend(
                self._hasher.hash_blocks(
                    request.prefix_scope, parent, tokens, self.block_size, first_generated
                )
            )

    def _find_blocks(
        self, hashes: list[bytes], group: int, max_blocks: int, window: int | None
    ) -> list[int]:
        """Per block of the prefix where it is cached, null where it is not; full attention stops
        at the first gap, because it can use nothing behind it."""
        found = []
        for index in range(max_blocks):
            block = self._pool.find(group_key(hashes[index], group))
            if block is None:
                if window is None:
                    break
                block = NULL_BLOCK
            found.append(block)
        return found

    def _longest_hit(self, found: list[list[int]], max_blocks: int) -> int:
        """Largest number of blocks h such that every full group has blocks [0, h) and every sliding
        group has those that cover the last `window - 1` tokens before h."""
        limit = min([max_blocks, *map(len, found)])
        if not any(self._windows):
            return limit
        usable = [True] * (limit + 1)
        for blocks, window in zip(found, self._windows, strict=True):
            if window is None:
                continue
            needed = -(-(window - 1) // self.block_size)
            run = 0  # consecutive cached blocks that end at block h - 1
            for h in range(1, limit + 1):
                run = run + 1 if blocks[h - 1] != NULL_BLOCK else 0
                usable[h] = usable[h] and run >= min(h, needed)
        return max(h for h in range(limit + 1) if usable[h])

    def _visible(self, blocks: list[int], num_blocks: int, window: int | None) -> list[int]:
        """The part of a hit that the tokens after it can still see; null blocks before it."""
        if window is None:
            return blocks[:num_blocks]
        needed = min(num_blocks, -(-(window - 1) // self.block_size))
        return [NULL_BLOCK] * (num_blocks - needed) + blocks[num_blocks - needed : num_blocks]

    def _expire(self, held: HeldBlocks, num_computed_tokens: int) -> None:
        """Gives back blocks of sliding groups that end before the window of the next token."""
        for group, window in self._sliding:
            first_visible = max(0, num_computed_tokens - window + 1) // self.block_size
            table, gone = held.tables[group], held.num_expired[group]
            if first_visible > gone:
                self._pool.release(table[gone:first_visible][::-1])
                table[gone:first_visible] = [NULL_BLOCK] * (first_visible - gone)
                held.num_expired[group] = first_visible


def _leading_nulls(table: list[int]) -> int:
    count = 0
    for block in table:
        if block != NULL_BLOCK:
            break
        count += 1
    return count
