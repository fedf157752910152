"""A checkpoint file mapped read-only into memory.

Runs in: every process that reads a checkpoint. Owns: the map and giving its pages back.
Knows nothing of: file formats.
"""

from __future__ import annotations

import mmap
import os

from octavo.errors import ConfigError, StartupError
from octavo.wording import printable


class MappedFile:
    """Read-only map of one file. Pages are read when first touched.

    Args:
        path: the file.
        kind: what the file should be, for error sentences ("GGUF file").

    Raises:
        ConfigError: the file is missing, not a file, or not readable.
        StartupError: the file is empty or cannot be mapped.
    """

    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.kind = kind
        try:
            with open(path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                if self.size == 0:
                    raise self.damaged("it is empty")
                self._map: mmap.mmap | None = mmap.mmap(
                    file.fileno(), self.size, access=mmap.ACCESS_READ
                )
        except FileNotFoundError:
            raise ConfigError(f"No such file: {path}; check the path of the model.") from None
        except IsADirectoryError:
            raise ConfigError(f"{path} is a folder where a {kind} is needed.") from None
        except PermissionError:
            raise ConfigError(f"No permission to read {path}; check its mode and owner.") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise StartupError(f"The {kind} {path} cannot be read: {reason}.") from error

    @property
    def buffer(self) -> mmap.mmap:
        """The map itself: sliced to bytes, or given to struct.unpack_from."""
        assert self._map is not None, f"{self.path} is closed"
        return self._map

    def view(self, start: int, num_bytes: int) -> memoryview:
        """Bytes [start, start + num_bytes) without copying; keeps the map alive."""
        return memoryview(self.buffer)[start : start + num_bytes]

    def release(self, start: int, num_bytes: int) -> None:
        """Gives the pages that lie wholly inside the range back to the system; they are read again
        if they are touched again."""
        page = mmap.PAGESIZE
        first = -(-start // page) * page
        last = (start + num_bytes) // page * page
        if last > first:
            self.buffer.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        """Drops the map; it goes when the last view of it is gone."""
        self._map = None

    def damaged(self, what: str) -> StartupError:
        """The error for contents that cannot be right; `what` completes "...: it ends early"."""
        return StartupError(
            f"{self.path} is not a usable {self.kind}: {printable(what)}; download or copy it "
            "again."
        )
