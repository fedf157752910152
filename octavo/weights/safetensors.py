"""Safetensors files: a JSON header and raw tensors, alone or sharded by an index file.

Our own reader over one map per file, so that workers can hand out ranges and give their pages back;
the format is eight bytes of length, a JSON object, and data. Source: the safetensors format
description (huggingface/safetensors, README).

Runs in: the API process (facts) and workers (tensors). Owns: the format and its limits.
Knows nothing of: architectures, configuration files.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

from octavo.errors import ConfigError, StartupError
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.weights.json_file import read_json_object
from octavo.weights.mapped_file import MappedFile
from octavo.weights.tensor_info import TensorInfo
from octavo.wording import first_line, shown

KIND: Final = "safetensors file"
INDEX_NAME: Final = "model.safetensors.index.json"
SINGLE_NAME: Final = "model.safetensors"
MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit

DTYPES: Final[dict[str, GGMLType]] = {
    "F32": GGMLType.F32,
    "F16": GGMLType.F16,
    "BF16": GGMLType.BF16,
}
#: bytes of one element of types that may lie in a file as long as no model reads them
OTHER_DTYPE_BYTES: Final[dict[str, int]] = {
    "F64": 8, "I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1,
    "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8,
}  # fmt: skip


class SafetensorsFile:
    """One file. `tensors` has the supported types; `other_dtypes` names the rest.

    Raises:
        ConfigError: missing or not readable.
        StartupError: truncated or corrupt.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = MappedFile(path, KIND)
        self.tensors: dict[str, TensorInfo] = {}
        self.other_dtypes: dict[str, str] = {}
        header, data_start = self._read_header()
        ranges: list[tuple[int, int, str]] = []
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = self._place_tensor(name, entry, data_start)
            ranges.append((begin, end, name))
        self._check_ranges(ranges)

    def close(self) -> None:
        """Drops the map; views of it stay valid until they go."""
        self._file.close()

    def _read_header(self) -> tuple[dict[str, Any], int]:
        file = self._file
        if file.size < 8:
            raise file.damaged("it ends inside the header's length")
        num_bytes = int.from_bytes(file.buffer[:8], "little")
        if num_bytes > MAX_HEADER_BYTES:
            raise file.damaged(f"its header claims to be {num_bytes} bytes long")
        if 8 + num_bytes > file.size:
            raise file.damaged("it ends inside the header")
        try:
            header = json.loads(
                file.buffer[8 : 8 + num_bytes], object_pairs_hook=_refuse_duplicates
            )
        except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors are ValueErrors
            raise file.damaged(f"its header cannot be read ({first_line(error)})") from None
        if not isinstance(header, dict):
            raise file.damaged("its header is not a JSON object")
        return header, 8 + num_bytes

    def _place_tensor(self, name: str, entry: object, data_start: int) -> tuple[int, int]:
        file = self._file
        if not name.isprintable():
            raise file.damaged(f"the tensor name {name} has control characters")
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]}:
                pass
            case _:
                raise file.damaged(f"tensor {name} has no dtype, shape and data_offsets")
        if not all(_is_size(value) for value in (*shape, begin, end)):
            raise file.damaged(f"tensor {name} has a size or offset that is not a whole number")
        kind = DTYPES.get(dtype)
        item_bytes = OTHER_DTYPE_BYTES.get(dtype) if kind is None else BLOCK_SHAPE[kind][1]
        if kind is None and not dtype.isidentifier():
            raise file.damaged(f"tensor {name} has the type {dtype}")
        if kind is None:
            self.other_dtypes[name] = dtype
        num_values = 1
        for size in shape:
            num_values *= size
        if item_bytes is not None and end - begin != num_values * item_bytes:
            raise file.damaged(
                f"tensor {name} of shape {shape} and type {dtype} does not have {end - begin} bytes"
            )
        if end < begin or data_start + end > file.size:
            raise file.damaged(
                f"tensor {name} should end at byte {data_start + end}, but the file has "
                f"{file.size} bytes"
            )
        if kind is not None:
            self.tensors[name] = TensorInfo(
                name, kind, tuple(shape), file, data_start + begin, end - begin
            )
        return begin, end

    def _check_ranges(self, ranges: list[tuple[int, int, str]]) -> None:
        previous_end, previous_name = 0, ""
        for begin, end, name in sorted(ranges):
            if begin < previous_end:
                raise self._file.damaged(f"tensors {previous_name} and {name} overlap")
            previous_end, previous_name = end, name


def safetensors_paths(folder: str) -> list[str]:
    """The safetensors files of a checkpoint folder: those of the index, or the single one.

    Raises:
        ConfigError: there are none, or one that the index names is missing.
        StartupError: the index cannot be read.
    """
    index_path = os.path.join(folder, INDEX_NAME)
    single_path = os.path.join(folder, SINGLE_NAME)
    if os.path.isfile(single_path) and not os.path.isfile(index_path):
        return [single_path]
    if os.path.isfile(index_path):
        return _indexed_paths(folder, index_path)
    found = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    if len(found) == 1:
        return [os.path.join(folder, found[0])]
    if found:
        raise ConfigError(
            f"{folder} has {len(found)} .safetensors files but no {INDEX_NAME} that says how they "
            "belong together; download the index too."
        )
    raise ConfigError(f"{folder} has no .safetensors file; download the model's weights there.")


def _indexed_paths(folder: str, index_path: str) -> list[str]:
    names = read_json_object(index_path).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise StartupError(f"{index_path} has no weight_map of names; download it again.")
    paths: list[str] = []
    for name in sorted(set(names.values())):
        path = os.path.join(folder, name)
        if os.path.basename(name) != name:  # a checkpoint does not reach outside its folder
            raise StartupError(f"{index_path} names {shown(name)}, which is outside its folder.")
        if not os.path.isfile(path):
            raise ConfigError(
                f"{folder} lacks {shown(name)}, which its index names; download it too."
            )
        paths.append(path)
    return paths


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is there twice")
    return result
