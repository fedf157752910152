"""A checkpoint of any format as models see it: Hugging Face's names and values.

Runs in: workers. Owns: joining shards, applying `transforms`, giving pages back.
Knows nothing of: backends, model classes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.errors import ConfigError, StartupError
from octavo.ops.interface import StoredTensor
from octavo.weights.gguf import GGUFFile, joined_tensors, open_shards
from octavo.weights.gguf_config import gguf_architecture, gguf_config
from octavo.weights.safetensors import SafetensorsFile, safetensors_paths
from octavo.weights.tensor_info import TensorInfo
from octavo.weights.transforms import (
    Rows,
    TensorRule,
    interleaved_to_half_split,
)

_LAYER = re.compile(r"^(blk\.)(\d+)(\..+)$")


class Checkpoint(Protocol):
    """Named tensors of a model. `path` is the file or folder, for sentences."""

    path: str

    @property
    def tensor_names(self) -> Iterable[str]:
        """Hugging Face's names of all tensors."""
        ...

    def get(self, name: str) -> StoredTensor:
        """One tensor, not copied.

        Raises:
            ConfigError: its type is not supported.
            StartupError: there is none of this name.
        """
        ...

    def release(self, tensor: StoredTensor) -> None:
        """Gives the tensor's pages back to the system; it may still be read (from disk) again."""
        ...

    def close(self) -> None:
        """Drops the maps; views of them stay valid until they go."""
        ...


class _MappedCheckpoint:
    """What both formats share: a table of HF name -> place, closed with its files."""

    def __init__(
        self, path: str, files: list[GGUFFile] | list[SafetensorsFile], infos: dict[str, TensorInfo]
    ) -> None:
        self.path = path
        self._files = files
        self._infos = infos

    @property
    def tensor_names(self) -> Iterable[str]:
        return self._infos.keys()

    def get(self, name: str) -> StoredTensor:
        info = self._info(name)
        return StoredTensor(name, info.type, info.shape, info.view())

    def release(self, tensor: StoredTensor) -> None:
        self._info(tensor.name).release()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> _MappedCheckpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _info(self, name: str) -> TensorInfo:
        info = self._infos.get(name)
        if info is None:
            raise StartupError(
                f"{self.path} lacks the tensor {name}, which the model needs; download it again."
            )
        return info


class GGUFCheckpoint(_MappedCheckpoint):
    """A GGUF file, or all shards of a split one.

    Raises:
        ConfigError: an architecture or a tensor type that is not supported, or a missing shard.
        StartupError: a damaged file.
    """

    def __init__(self, path: str) -> None:
        first = GGUFFile(path)
        files = open_shards(first)
        stored = joined_tensors(files)
        _, architecture = gguf_architecture(first)
        self._architecture = architecture
        self._config = gguf_config(first, stored)
        self._rules: dict[str, TensorRule] = {}
        infos: dict[str, TensorInfo] = {}
        rules = {rule.stored_name: rule for rule in architecture.rules}
        for name, info in stored.items():
            if name in architecture.ignored:
                continue
            found = _hf_name(name, rules)
            if found is None:  # leaving it out would change results
                raise ConfigError(
                    f"{path}: tensor {name} is not part of {architecture.hf_architecture} as "
                    "supported here; the model is a variant that is not supported."
                )
            infos[found[0]] = info
            self._rules[found[0]] = found[1]
        super().__init__(path, files, infos)

    def _info(self, name: str) -> TensorInfo:
        if name not in self._infos:
            raise StartupError(
                f"{self.path} lacks the tensor {self._stored_name(name)}, which the model needs; "
                "download it again."
            )
        return self._infos[name]

    def _stored_name(self, name: str) -> str:
        """What this format calls the tensor."""
        numbers = re.findall(r"\d+", name)
        layer = numbers[0] if numbers else ""
        for rule in self._architecture.rules:
            if rule.hf_name.format(layer) == name:
                return rule.stored_name.format(layer)
        return name

    def get(self, name: str) -> StoredTensor:
        info = self._info(name)
        rule = self._rules[name]
        return StoredTensor(
            name,
            info.type,
            info.shape,
            info.view(),
            row_permutation=self._row_permutation(rule, info),
            value_offset=rule.value_offset,
        )

    def _row_permutation(self, rule: TensorRule, info: TensorInfo) -> npt.NDArray[np.int32] | None:
        if rule.rows is Rows.AS_STORED:
            return None
        key = "num_attention_heads" if rule.rows is Rows.QUERY_HEADS else "num_key_value_heads"
        num_heads, head_dim = self._config[key], self._config["head_dim"]
        if info.shape[0] != num_heads * head_dim:
            raise StartupError(
                f"{self.path}: tensor {info.name} has {info.shape[0]} rows where {num_heads} heads "
                f"of {head_dim} are expected; download it again."
            )
        return np.array(interleaved_to_half_split(num_heads, head_dim), dtype=np.int32)


class SafetensorsCheckpoint(_MappedCheckpoint):
    """A folder of safetensors files; names and values are HF's already.

    Raises:
        ConfigError: no weights, or one of the files is missing.
        StartupError: a damaged file.
    """

    def __init__(self, path: str) -> None:
        files = [SafetensorsFile(file) for file in safetensors_paths(path)]
        infos: dict[str, TensorInfo] = {}
        self._other_dtypes: dict[str, str] = {}
        for file in files:
            for name, info in file.tensors.items():
                if name in infos:
                    raise StartupError(f"{path} has the tensor {name} in two files.")
                infos[name] = info
            self._other_dtypes |= file.other_dtypes
        super().__init__(path, files, infos)

    def _info(self, name: str) -> TensorInfo:
        dtype = self._other_dtypes.get(name)
        if dtype is not None:
            raise ConfigError(
                f"{self.path}: tensor {name} has type {dtype}, which is not supported; use a "
                "checkpoint in F32, F16 or BF16."
            )
        return super()._info(name)


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a GGUF file or a folder of safetensors files.

    Raises:
        ConfigError: missing, or something that is not supported.
        StartupError: damaged.
    """
    return SafetensorsCheckpoint(path) if os.path.isdir(path) else GGUFCheckpoint(path)


def _hf_name(stored_name: str, rules: dict[str, TensorRule]) -> tuple[str, TensorRule] | None:
    """HF's name of a tensor and its rule, None when no rule has it."""
    match = _LAYER.match(stored_name)
    rule = rules.get(f"{match[1]}{{}}{match[3]}" if match else stored_name)
    return None if rule is None else (rule.hf_name.format(match[2] if match else ""), rule)
