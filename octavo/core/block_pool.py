"""The pool of equal KV blocks: who holds which, which can be found again, which goes next.

Blocks are integers. A block is *in use* while its reference count is positive. A block that nobody
holds is in the free list; if it has a key it can still be found there (a prefix-cache hit) until it
is taken for something else. The free list is the order of eviction: blocks without a key first,
then the least recently used. Blocks that nobody has had yet are among the first ones and come in
order of their numbers, which is that of their places in memory.

Block 0 is the null block: it stands in block tables where there is nothing to read, and is never
handed out.

Runs in: EngineCore. Owns: reference counts, the free list, the index by key.
Knows nothing of: requests, tokens, tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from octavo.core.kv_events import KVEventSink, NoKVEvents

NULL_BLOCK = 0


class FreeList:
    """Doubly linked list of block ids 1..n: both ends and any middle in O(1), no allocation.

    Kept as two arrays of neighbours. Id 0, the null block, is never free, so it serves as the
    sentinel that closes the ring.
    """

    def __init__(self, num_blocks: int) -> None:
        self._next: list[int] = [*range(1, num_blocks), 0]
        self._prev: list[int] = [num_blocks - 1, *range(num_blocks - 1)]
        self._length = num_blocks - 1

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        block = self._next[0]
        while block:
            yield block
            block = self._next[block]

    def append(self, block: int) -> None:
        """Puts a block at the end: it is taken last."""
        self._link(self._prev[0], block, 0)

    def prepend(self, block: int) -> None:
        """Puts a block at the front: it is taken next."""
        self._link(0, block, self._next[0])

    def pop(self) -> int:
        """Takes the first block. The list must not be empty."""
        block = self._next[0]
        assert block, "no free block"
        self.remove(block)
        return block

    def remove(self, block: int) -> None:
        """Takes a block out, wherever it is in the list."""
        before, after = self._prev[block], self._next[block]
        self._next[before] = after
        self._prev[after] = before
        self._length -= 1

    def _link(self, before: int, block: int, after: int) -> None:
        self._next[before] = self._prev[after] = block
        self._prev[block], self._next[block] = before, after
        self._length += 1


class BlockPool:
    """Reference-counted blocks with an index of those whose content has a name.

    Args:
        num_blocks: size of the pool, with the null block.
        events: is told which keys are forgotten; who names blocks says what they hold.
    """

    def __init__(self, num_blocks: int, events: KVEventSink | None = None) -> None:
        assert num_blocks >= 2, "a pool needs the null block and one more"
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._keys: list[bytes | None] = [None] * num_blocks
        self._key_to_block: dict[bytes, int] = {}
        self._free = FreeList(num_blocks)
        self._events = events or NoKVEvents()

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that can be handed out at all."""
        return self.num_blocks - 1

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, with or without a key."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the usable blocks that is in use, 0..1."""
        return 1.0 - len(self._free) / (self.num_blocks - 1)

    def ref_count(self, block: int) -> int:
        """How many holders a block has."""
        return self._ref_counts[block]

    def find(self, key: bytes) -> int | None:
        """The block known by `key`, in use or free."""
        return self._key_to_block.get(key)

    def take(self, count: int) -> list[int]:
        """Hands out `count` blocks of no defined content; the pool must have them.

        What they held before can no longer be found.
        """
        assert count <= len(self._free), f"{count} blocks wanted, {len(self._free)} free"
        free, keys, blocks = self._free, self._keys, []
        for _ in range(count):
            block = free.pop()
            if keys[block] is not None:
                self._forget_key(block)
            self._ref_counts[block] = 1
            blocks.append(block)
        return blocks

    def num_free_among(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` nobody holds: what sharing them would take from the free list."""
        ref_counts = self._ref_counts
        return sum(1 for block in blocks if not ref_counts[block])

    def share(self, blocks: Sequence[int]) -> None:
        """Adds a holder to each of `blocks`, which have been found by their keys."""
        for block in blocks:
            if not self._ref_counts[block]:
                self._free.remove(block)
            self._ref_counts[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Removes a holder from each of `blocks`; the first ones are evicted first.

        A request's blocks are given in reverse: without its beginning, a tail is worth nothing.
        """
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            count = self._ref_counts[block] - 1
            assert count >= 0, f"block {block} is released more often than taken"
            self._ref_counts[block] = count
            if count == 0:
                if self._keys[block] is None:
                    self._free.prepend(block)
                else:
                    self._free.append(block)

    def name(self, block: int, key: bytes) -> bool:
        """Makes a block in use known by `key`; a second block of the same content stays unnamed.

        Returns:
            True if the block carries the key now.
        """
        assert self._ref_counts[block] > 0, f"block {block} is not in use"
        assert self._keys[block] is None, f"block {block} has a name already"
        if key in self._key_to_block:
            return False
        self._keys[block] = key
        self._key_to_block[key] = block
        return True

    def unname(self, block: int) -> None:
        """Takes the name from a block whose content turned out to be wrong, if it has one."""
        self._forget_key(block)

    def forget_all(self) -> bool:
        """Makes nothing findable any more. Refused (False) while blocks are in use: their holders
        would go on naming blocks that continue what should be forgotten."""
        if len(self._free) != self.num_blocks - 1:
            return False
        self._key_to_block.clear()
        self._events.cleared()
        self._keys = [None] * self.num_blocks
        return True

    def _forget_key(self, block: int) -> None:
        key = self._keys[block]
        if key is not None:
            self._keys[block] = None
            del self._key_to_block[key]
            self._events.removed(key)
