"""How many blocks a request needs: arithmetic shared by the memory plan and the manager.

Runs in: EngineCore. Knows nothing of: which blocks there are, who holds them, bytes.
"""

from __future__ import annotations

import msgspec


class KVCacheLayout(msgspec.Struct, frozen=True):
    """Sizes from which tokens become blocks.

    Attributes:
        block_size: tokens per block.
        windows: per KV group its sliding window, None for full attention.
        max_chunk: longest chunk of one request in a step, in tokens.
    """

    block_size: int
    windows: tuple[int | None, ...]
    max_chunk: int

    def blocks_for(self, num_tokens: int) -> int:
        """Most blocks that a request of `num_tokens` tokens holds at a time, over all groups.

        A sliding group needs the window before the chunk being computed and the chunk itself; one
        block more, because neither end need lie on a block's edge.
        """
        all_blocks = -(-num_tokens // self.block_size)
        total = 0
        for window in self.windows:
            if window is None:
                total += all_blocks
            else:
                visible = window - 1 + self.max_chunk
                total += min(all_blocks, -(-visible // self.block_size) + 1)
        return total

    def longest(self, num_blocks: int, limit: int) -> int:
        """Most tokens, at most `limit`, of a request that holds at most `num_blocks` blocks."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_for(middle) <= num_blocks:
                low = middle
            else:
                high = middle - 1
        return low
