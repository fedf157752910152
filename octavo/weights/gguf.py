"""GGUF files: metadata and tensor table, versions 2 and 3, little endian.

Our own because the `gguf` package takes seconds to open a file with a vocabulary: here arrays stay
where they are until somebody asks for them, and so does the tensor table. Source: the GGUF
specification (ggml, docs/gguf.md).

Runs in: the API process (facts, tokenizer) and workers (tensors). Owns: the format and its limits.
Knows nothing of: architectures, what a key means.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from octavo.errors import ConfigError, StartupError
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.weights.mapped_file import MappedFile
from octavo.weights.tensor_info import TensorInfo

MAGIC: Final = b"GGUF"
KIND: Final = "GGUF file"
DEFAULT_ALIGNMENT: Final = 32
MAX_ALIGNMENT: Final = 1 << 20
MAX_DIMS: Final = 4  # GGML_MAX_DIMS
MAX_ARRAY_DEPTH: Final = 4
MARK_DISTANCE: Final = 4096  # strings that are stepped over at most to find one
MAX_NAME_BYTES: Final = 1024  # of keys and tensors; the specification allows 65535 and 64

#: value type -> struct code of the scalar types; 8 is a string, 9 an array
SCALARS: Final[dict[int, str]] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
STRING: Final = 8
ARRAY: Final = 9

#: names of ggml types that exist but are not read here, for the sentence that refuses them
OTHER_TYPE_NAMES: Final[dict[int, str]] = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16",
    26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
    40: "NVFP4",
}  # fmt: skip

Scalar = int | float | bool | str

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SPLIT_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class GGUFArray:
    """An array value; its elements stay in the file until they are asked for.

    Args:
        start: where its element type lies.
        keep_strings: strings have to be stepped over one by one anyway; keep them while doing so.
    """

    __slots__ = (
        "_depth", "_element_type", "_end", "_file", "_key", "_marks", "_start", "_strings", "count",
    )  # fmt: skip

    def __init__(
        self, file: MappedFile, key: str, start: int, *, keep_strings: bool = False, depth: int = 1
    ) -> None:
        if depth > MAX_ARRAY_DEPTH:
            raise file.damaged(f"arrays in {key} are nested more than {MAX_ARRAY_DEPTH} deep")
        cursor = _Cursor(file, start)
        self._file = file
        self._key = key
        self._depth = depth
        self._element_type = cursor.u32(key)
        self.count = cursor.u64(key)
        self._start = cursor.position
        smallest = _smallest_bytes(self._element_type)
        if smallest is None:
            raise file.damaged(f"{key} has the unknown element type {self._element_type}")
        if self.count * smallest > file.size - self._start:
            raise file.damaged(f"{key} claims {self.count} elements, more than fit in the file")
        self._strings: list[str] | None = None
        self._marks: list[int] = []  # where each MARK_DISTANCE-th string begins
        if self._element_type == STRING and keep_strings:
            self._strings, self._end = _read_strings(file, key, self._start, self.count)
        elif self._element_type == STRING:
            self._end, self._marks = _skip_strings(file, key, self._start, self.count)
        elif self._element_type == ARRAY:
            self._end = self._start
            for inner in self._inner_arrays():
                self._end = inner.end
        else:
            self._end = self._start + self.count * smallest

    @property
    def end(self) -> int:
        """First byte after the array."""
        return self._end

    def tolist(self) -> list[Scalar | list[object]]:
        """The elements as Python values.

        Raises:
            StartupError: a string is not UTF-8.
        """
        if self._element_type == ARRAY:
            return [list(inner.tolist()) for inner in self._inner_arrays()]
        if self._element_type == STRING:
            return list(self.strings())
        region = self._file.buffer[self._start : self._end]
        return list(struct.unpack(f"<{self.count}{SCALARS[self._element_type]}", region))

    def strings(self) -> list[str]:
        """The elements of an array of strings.

        Raises:
            StartupError: it is an array of something else, or not UTF-8.
        """
        if self._strings is not None:
            return self._strings
        if self._element_type != STRING:
            raise self._file.damaged(f"{self._key} is not a list of strings")
        return _read_strings(self._file, self._key, self._start, self.count)[0]

    def indices_of(self, texts: Sequence[str]) -> list[int]:
        """Where each of `texts` that is there is first, found without reading all strings.

        Raises:
            StartupError: it is an array of something else.
        """
        if self._element_type != STRING:
            raise self._file.damaged(f"{self._key} is not a list of strings")
        if self._strings is not None:
            return [self._strings.index(text) for text in texts if text in self._strings]
        region = self._file.buffer[self._start : self._end]
        found = (self._index_of(text.encode(), region) for text in texts)
        return [index for index in found if index is not None]

    def _index_of(self, text: bytes, region: bytes) -> int | None:
        stored = _U64.pack(len(text)) + text
        place = region.find(stored)
        while place >= 0:
            # what looks like a string may be a part of a longer one: count from the last mark
            position = self._start + place
            mark = bisect_right(self._marks, position) - 1
            index, start = mark * MARK_DISTANCE, self._marks[mark]
            while start < position:
                start += _U64.unpack_from(self._file.buffer, start)[0] + 8
                index += 1
            if start == position:
                return index
            place = region.find(stored, place + 1)
        return None

    def numbers(self) -> list[int | float]:
        """The elements of an array of numbers.

        Raises:
            StartupError: it is an array of something else.
        """
        if self._element_type in (STRING, ARRAY):
            raise self._file.damaged(f"{self._key} is not a list of numbers")
        return self.tolist()  # type: ignore[return-value]  # checked above

    def _inner_arrays(self) -> Iterator[GGUFArray]:
        position = self._start
        for _ in range(self.count):
            inner = GGUFArray(self._file, self._key, position, depth=self._depth + 1)
            position = inner.end
            yield inner


class GGUFFile:
    """One GGUF file, mapped. `metadata` is read at once, arrays and the tensor table on demand.

    Args:
        path: the file.
        keep_strings: also read arrays of strings at once (a vocabulary that will be needed).

    Raises:
        ConfigError: missing, not readable, or a version or byte order that is not supported.
        StartupError: not a GGUF file, truncated or corrupt.
    """

    def __init__(self, path: str, *, keep_strings: bool = False) -> None:
        self.path = path
        self._file = MappedFile(path, KIND)
        self._keep_strings = keep_strings
        cursor = _Cursor(self._file, 0)
        magic = cursor.take(4, "its first bytes")
        if magic != MAGIC:
            raise self._file.damaged("it does not begin with the letters GGUF")
        self.version = cursor.u32("the version")
        if self.version not in (2, 3):
            raise _unsupported_version(path, self.version)
        self._num_tensors = cursor.u64("the number of tensors")
        num_keys = cursor.u64("the number of metadata keys")
        # a key is at least 8 + 0 + 4 + 1 bytes, a tensor 8 + 4 + 4 + 8
        if num_keys * 13 + self._num_tensors * 24 > self._file.size:
            raise self._file.damaged(
                f"it claims {num_keys} metadata keys and {self._num_tensors} tensors, more than "
                "fit in the file"
            )
        self.metadata: dict[str, Scalar | GGUFArray] = {}
        for _ in range(num_keys):
            self._read_pair(cursor)
        self._table_start = cursor.position
        self.alignment = self._read_alignment()

    def text(self, key: str) -> str | None:
        """A string value, None when absent."""
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong_type(key, "text")
        return value

    def integer(self, key: str) -> int | None:
        """An integer value, None when absent."""
        value = self.metadata.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self._wrong_type(key, "a whole number")
        return value

    def number(self, key: str) -> float | None:
        """An integer or floating point value, None when absent."""
        value = self.metadata.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self._wrong_type(key, "a number")
        return value

    def flag(self, key: str) -> bool | None:
        """A boolean value, None when absent."""
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong_type(key, "true or false")
        return value

    def array(self, key: str) -> GGUFArray | None:
        """An array value, None when absent; its elements are read by its own methods."""
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, GGUFArray):
            raise self._wrong_type(key, "a list")
        return value

    @cached_property
    def tensors(self) -> dict[str, TensorInfo]:
        """The tensor table, checked: known types, whole blocks, inside the file, no overlaps.

        Raises:
            ConfigError: a tensor's type is not supported; names the tensor and the type.
            StartupError: the table is truncated or corrupt.
        """
        cursor = _Cursor(self._file, self._table_start)
        rows = [self._read_tensor(cursor) for _ in range(self._num_tensors)]
        data_start = -(-cursor.position // self.alignment) * self.alignment
        tensors: dict[str, TensorInfo] = {}
        for name, code, shape, offset in rows:
            if name in tensors:
                raise self._file.damaged(f"tensor {name} is there twice")
            tensors[name] = self._place_tensor(name, code, shape, data_start + offset)
        previous: TensorInfo | None = None
        for info in sorted(tensors.values(), key=lambda info: info.offset):
            if previous is not None and previous.offset + previous.num_bytes > info.offset:
                raise self._file.damaged(f"tensors {previous.name} and {info.name} overlap")
            previous = info
        return tensors

    def close(self) -> None:
        """Drops the map; views of it stay valid until they go."""
        self._file.close()

    def damaged(self, what: str) -> StartupError:
        """The error for contents that cannot be right."""
        return self._file.damaged(what)

    def _read_pair(self, cursor: _Cursor) -> None:
        key = cursor.name("a metadata key", MAX_NAME_BYTES)
        value_type = cursor.u32(key)
        value: Scalar | GGUFArray
        if value_type == STRING:
            value = cursor.string(key, self._file.size)
        elif value_type == ARRAY:
            value = GGUFArray(self._file, key, cursor.position, keep_strings=self._keep_strings)
            cursor.position = value.end
        elif value_type in SCALARS:
            value = cursor.scalar(SCALARS[value_type], key)
        else:
            raise self._file.damaged(f"{key} has the unknown value type {value_type}")
        if key in self.metadata:
            raise self._file.damaged(f"the metadata key {key} is there twice")
        self.metadata[key] = value

    def _read_alignment(self) -> int:
        alignment = self.integer("general.alignment")
        if alignment is None:
            return DEFAULT_ALIGNMENT
        if not 0 < alignment <= MAX_ALIGNMENT or alignment % 8:
            raise self._file.damaged(f"general.alignment is {alignment}, not a multiple of 8")
        return alignment

    def _read_tensor(self, cursor: _Cursor) -> tuple[str, int, tuple[int, ...], int]:
        name = cursor.name("a tensor's name", MAX_NAME_BYTES)
        num_dims = cursor.u32(name)
        if not 1 <= num_dims <= MAX_DIMS:
            raise self._file.damaged(f"tensor {name} has {num_dims} dimensions")
        # stored with the fastest dimension first
        shape = tuple(reversed([cursor.u64(name) for _ in range(num_dims)]))
        return name, cursor.u32(name), shape, cursor.u64(name)

    def _place_tensor(
        self, name: str, code: int, shape: tuple[int, ...], offset: int
    ) -> TensorInfo:
        try:
            kind = GGMLType(code)
        except ValueError:
            other = OTHER_TYPE_NAMES.get(code, f"number {code}")
            known = ", ".join(kind.name for kind in GGMLType)
            raise ConfigError(
                f"{self.path}: tensor {name} has type {other}, which is not supported; use a file "
                f"whose tensors are of types {known}."
            ) from None
        num_values = 1
        for size in shape:
            num_values *= size
        block, block_bytes = BLOCK_SHAPE[kind]
        if num_values == 0 or shape[-1] % block:
            raise self._file.damaged(
                f"tensor {name} has shape {list(shape)}, which type {kind.name} cannot have"
            )
        num_bytes = num_values // block * block_bytes
        if offset + num_bytes > self._file.size:
            raise self._file.damaged(
                f"tensor {name} should end at byte {offset + num_bytes}, but the file has "
                f"{self._file.size} bytes"
            )
        if offset % self.alignment:
            raise self._file.damaged(f"tensor {name} is not aligned to {self.alignment} bytes")
        return TensorInfo(name, kind, shape, self._file, offset, num_bytes)

    def _wrong_type(self, key: str, expected: str) -> StartupError:
        return self._file.damaged(f"the metadata key {key} is not {expected}")


def open_shards(first: GGUFFile) -> list[GGUFFile]:
    """The files of a split GGUF in order, `first` among them; [first] when it is whole.

    Raises:
        ConfigError: `first` is not the first shard, or another one is missing.
        StartupError: the shards do not belong together.
    """
    count = first.integer("split.count") or 1
    if count == 1:
        return [first]
    match = _SPLIT_NAME.search(first.path)
    if match is None or int(match[2]) != count:
        raise ConfigError(
            f"{first.path} is one of {count} shards; its name must end in "
            f"-00001-of-{count:05d}.gguf with the others beside it."
        )
    stem = first.path[: match.start()]
    if int(match[1]) != 1:
        raise ConfigError(
            f"{first.path} is shard {int(match[1])} of {count}; name the first one, "
            f"{stem}-00001-of-{count:05d}.gguf."
        )
    shards = [first]
    for number in range(2, count + 1):
        shard = GGUFFile(f"{stem}-{number:05d}-of-{count:05d}.gguf")
        if shard.integer("split.no") != number - 1:
            raise shard.damaged(f"it is not shard {number} of {count}")
        shards.append(shard)
    return shards


def joined_tensors(files: list[GGUFFile]) -> dict[str, TensorInfo]:
    """The tensor tables of all shards, under the names in the files.

    Raises:
        StartupError: a name occurs twice, or shards lack tensors.
    """
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, info in file.tensors.items():
            if name in tensors:
                raise file.damaged(f"tensor {name} is in another shard too")
            tensors[name] = info
    expected = files[0].integer("split.tensors.count")
    if expected is not None and len(files) > 1 and expected != len(tensors):
        raise files[0].damaged(f"its shards hold {len(tensors)} tensors, not {expected}")
    return tensors


class _Cursor:
    """Bounds-checked reads at a moving position. `what` names the thing being read for errors."""

    __slots__ = ("_file", "position")

    def __init__(self, file: MappedFile, position: int) -> None:
        self._file = file
        self.position = position

    def take(self, num_bytes: int, what: str) -> bytes:
        start = self.position
        if num_bytes > self._file.size - start:
            raise self._file.damaged(f"it ends inside {what}")
        self.position = start + num_bytes
        return self._file.buffer[start : self.position]

    def u32(self, what: str) -> int:
        return int(_U32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack(self.take(8, what))[0])

    def scalar(self, code: str, what: str) -> Scalar:
        value: Scalar = struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]
        return value

    def string(self, what: str, max_bytes: int) -> str:
        num_bytes = self.u64(what)
        if num_bytes > max_bytes:
            raise self._file.damaged(f"{what} claims to be {num_bytes} bytes long")
        try:
            return self.take(num_bytes, what).decode()
        except UnicodeDecodeError:
            raise self._file.damaged(f"{what} is not UTF-8") from None

    def name(self, what: str, max_bytes: int) -> str:
        """A string that sentences may quote."""
        name = self.string(what, max_bytes)
        if not name.isprintable():
            raise self._file.damaged(f"{what}, {name}, has control characters")
        return name


def _smallest_bytes(value_type: int) -> int | None:
    """Fewest bytes of one value of this type, None for an unknown type."""
    if value_type == STRING:
        return 8
    if value_type == ARRAY:
        return 12
    code = SCALARS.get(value_type)
    return None if code is None else struct.calcsize("<" + code)


def _skip_strings(file: MappedFile, key: str, position: int, count: int) -> tuple[int, list[int]]:
    """First byte after `count` strings, and where each MARK_DISTANCE-th begins. The hot loop of
    opening a file: two vocabulary arrays."""
    buffer, unpack = file.buffer, _U64.unpack_from
    marks: list[int] = []
    try:
        for first in range(0, count, MARK_DISTANCE):
            marks.append(position)
            for _ in range(min(MARK_DISTANCE, count - first)):
                position += unpack(buffer, position)[0] + 8
    except (struct.error, OverflowError, IndexError):  # a length pointed past the end
        position = file.size + 1
    if position > file.size:
        raise file.damaged(f"it ends inside {key}")
    return position, marks


def _read_strings(file: MappedFile, key: str, position: int, count: int) -> tuple[list[str], int]:
    """`count` strings and the first byte after them."""
    buffer, unpack = file.buffer, _U64.unpack_from
    strings: list[str] = []
    append = strings.append
    try:
        for _ in range(count):
            start = position + 8
            position = start + unpack(buffer, position)[0]
            append(buffer[start:position].decode())
    except UnicodeDecodeError:
        raise file.damaged(f"{key} holds text that is not UTF-8") from None
    except (struct.error, OverflowError, IndexError):  # a length pointed past the end
        position = file.size + 1
    if position > file.size:
        raise file.damaged(f"it ends inside {key}")
    return strings, position


def _unsupported_version(path: str, version: int) -> ConfigError:
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in (1, 2, 3):
        return ConfigError(f"{path} is a big-endian GGUF file; use the little-endian one.")
    return ConfigError(
        f"{path} is GGUF version {version}; versions 2 and 3 are supported, convert it again."
    )
