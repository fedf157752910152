"""Where a tensor lies in a mapped file, as its table says.

Runs in: every process that reads a checkpoint. Knows nothing of: formats, architectures.
"""

from __future__ import annotations

import msgspec

from octavo.ops.ggml_type import GGMLType
from octavo.weights.mapped_file import MappedFile


class TensorInfo(msgspec.Struct, frozen=True):
    """One row of a tensor table: `shape` is row-major, `offset` counts from the start of `file`."""

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    file: MappedFile
    offset: int
    num_bytes: int

    def view(self) -> memoryview:
        """The tensor's bytes, not copied."""
        return self.file.view(self.offset, self.num_bytes)

    def release(self) -> None:
        """Gives the tensor's pages back to the system."""
        self.file.release(self.offset, self.num_bytes)
