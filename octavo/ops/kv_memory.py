"""The memory of the KV cache: mapped when it is planned, given pages when it is used or before.

Runs in: workers on CPU. Owns: the memory. Knows nothing of: what lies where in a block.
"""

from __future__ import annotations

from octavo.errors import StartupError
from octavo.ops.backend import KVPool
from octavo.ops.library import Library
from octavo.ops.prefault import KVPrefault


class KVMemory:
    """Room for the blocks of a pool, one after the other.

    Attributes:
        address: of block 0.

    Raises:
        StartupError: it cannot be had.
    """

    def __init__(self, library: Library, pool: KVPool) -> None:
        size = pool.num_blocks * pool.bytes_per_block
        address = library.map_memory(size)
        if not address:
            raise StartupError(
                f"the KV cache of {size / 2**30:.2f} GiB cannot be allocated; lower "
                "--kv-cache-memory-bytes or --gpu-memory-utilization"
            )
        self.address = address
        self._library = library
        self._size = size
        self._bytes_per_block = pool.bytes_per_block
        self._prefault = KVPrefault(library, address, size)

    def prefault(self, num_blocks: int) -> None:
        """See `CompiledNetwork.prefault_kv`."""
        self._prefault.go_on(num_blocks * self._bytes_per_block)

    def begin_step(self) -> None:
        """A step wants all processors."""
        if self._prefault.is_running:
            self._prefault.pause()

    def close(self) -> None:
        """Gives the memory back. Called once."""
        self._prefault.close()
        self._library.ov_memory_unmap(self.address, self._size)
