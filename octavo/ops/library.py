"""The native CPU library as Python sees it, and its loader.

One shared object per instruction-set level lies in octavo/lib. Its sizes and version are compared
with octavo/ops/abi.py at load, so a stale build is a sentence and not a crash.

Runs in: workers on CPU, tests, benchmarks. Owns: loaded libraries, handles of weights and pools.
Knows nothing of: models, plans, requests.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_int32, c_void_p, sizeof
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import EngineError, StartupError
from octavo.ops.abi import ABI_VERSION, PROTOTYPES, STRUCTS, OvKvLayer
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.platforms.cpu import ISA_FLAGS, cpu_facts, runnable_isas

#: where the build puts the shared objects
LIBRARY_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")
#: all levels of all processors
ISA_LEVELS = (*ISA_FLAGS, "scalar")
#: segments that one linear call can have
MAX_SEGMENTS = 4


class Library:
    """One loaded level. The C functions are attributes under their own names.

    Args:
        path: the shared object.

    Raises:
        StartupError: it cannot be loaded, or was built from other sources than this package.
    """

    def __init__(self, path: str) -> None:
        try:
            self._dll = ctypes.CDLL(path)
        except OSError as error:
            raise StartupError(
                f"the native library {path} cannot be loaded ({error}); run `make native` in a "
                "source tree, or reinstall octavo"
            ) from error
        try:
            for name, (result, arguments) in PROTOTYPES.items():
                function = getattr(self._dll, name)
                function.restype, function.argtypes = result, arguments
        except AttributeError as error:
            raise _stale(path) from error
        sizes_agree = all(
            self._dll.ov_sizeof(name.encode()) == sizeof(mirror) for name, mirror in STRUCTS.items()
        )
        if self._dll.ov_abi_version() != ABI_VERSION or not sizes_agree:
            raise _stale(path)

    def __getattr__(self, name: str) -> Any:
        if name not in PROTOTYPES:
            raise AttributeError(name)
        return getattr(self._dll, name)

    @property
    def isa(self) -> str:
        """The level this library was built for."""
        name: bytes = self._dll.ov_isa_name()
        return name.decode()

    def last_error(self) -> str:
        """The sentence behind the last failure on this thread."""
        text: bytes = self._dll.ov_last_error()
        return text.decode(errors="replace")

    def create_pool(
        self, num_threads: int, *, cpus: Sequence[int] | None = None, spin_us: int = 0
    ) -> ThreadPool:
        """Compute threads, the calling one included.

        Args:
            cpus: one CPU number per thread to pin it to; None: not pinned.
            spin_us: how long a thread spins for work before it sleeps.
        """
        return ThreadPool(self, num_threads, cpus, spin_us)

    def pack_weight(self, pool: ThreadPool, tensor: StoredTensor, kind: GGMLType) -> NativeWeight:
        """An [n, k] tensor repacked for `ov_linear` and plans; its bytes are not needed afterwards.

        Args:
            kind: how it is kept: the tensor's own type, BF16 or F32.

        Raises:
            StartupError: the type, the kind or the shape cannot be packed; names the tensor.
        """
        return NativeWeight(self, pool, tensor, kind)

    def linear(
        self,
        pool: ThreadPool,
        weights: Sequence[NativeWeight],
        x: npt.NDArray[np.float32],
        *,
        is_prompt: bool = False,
    ) -> list[npt.NDArray[np.float32]]:
        """x @ w.T for each weight, in one call, outside any plan (tests, benchmarks).

        Args:
            weights: at most `MAX_SEGMENTS`, of one k and one input type.
            x: [rows, k].
            is_prompt: in the arithmetic of prompt tokens (`input_type`).
        """
        x = np.ascontiguousarray(x, np.float32)
        outputs = [np.empty((len(x), weight.n), np.float32) for weight in weights]
        if any(weight.k != x.shape[1] for weight in weights):
            raise ValueError(f"input of {x.shape[1]} columns, weights of {weights[0].k}")
        code = self._dll.ov_linear(
            pool.handle,
            len(weights),
            (c_void_p * len(weights))(*(weight.handle for weight in weights)),
            is_prompt,
            len(x),
            x.ctypes.data,
            (c_void_p * len(weights))(*(output.ctypes.data for output in outputs)),
        )
        if code < 0:
            raise ValueError(self.last_error())
        return outputs

    def input_type(self, kind: GGMLType, *, is_prompt: bool) -> int:
        """The `ElementType` that a weight of this kind reads: of prompts, or generated tokens."""
        return int(self._dll.ov_input_type(kind, is_prompt))

    def convert(
        self, source_type: GGMLType, data: memoryview | bytes, count: int
    ) -> npt.NDArray[np.float32]:
        """`count` stored values as f32 [count]."""
        raw = np.frombuffer(data, np.uint8)
        values = np.empty(count, np.float32)
        code = self._dll.ov_convert(
            source_type, raw.ctypes.data, count, GGMLType.F32, values.ctypes.data
        )
        if code < 0:
            raise ValueError(self.last_error())
        return values

    def probe(self, pool: ThreadPool, limit: int) -> float:
        """`ov_probe`: what the threads of the pool reach together, per second."""
        rate: float = self._dll.ov_probe(pool.handle, limit)
        if rate < 0:
            raise EngineError(f"the machine's limits cannot be measured: {self.last_error()}")
        return rate

    def probe_weights(
        self, pool: ThreadPool, weights: Sequence[NativeWeight], num_passes: int
    ) -> float:
        """`ov_probe_weights`: bytes per second that they read of this memory together, the best of
        so many passes."""
        handles = (ctypes.c_void_p * len(weights))(*(weight.handle for weight in weights))
        rate: float = self._dll.ov_probe_weights(pool.handle, len(weights), handles, num_passes)
        if rate < 0:
            raise EngineError(f"the weights cannot be read: {self.last_error()}")
        return rate

    def row_bytes(self, dtype: int, cols: int) -> int:
        """Bytes of one activation row, padded to the library's alignment."""
        size: int = self._dll.ov_row_bytes(dtype, cols)
        return size

    def kv_layer_bytes(self, layer: OvKvLayer, block_size: int) -> int:
        """Bytes of one layer's share of a block."""
        size: int = self._dll.ov_kv_layer_bytes(ctypes.byref(layer), block_size)
        return size

    def map_memory(self, size_bytes: int) -> int | None:
        """Address of zeroed memory, touched lazily; None when there is none."""
        address: int | None = self._dll.ov_memory_map(size_bytes)
        return address


class ThreadPool:
    """The compute threads of a backend."""

    def __init__(
        self, library: Library, num_threads: int, cpus: Sequence[int] | None, spin_us: int
    ) -> None:
        numbers = None if cpus is None else (c_int32 * len(cpus))(*cpus)
        assert numbers is None or len(numbers) == num_threads, "one CPU per thread"
        self._library = library
        self.handle: int | None = library.ov_pool_create(num_threads, numbers, spin_us)
        if not self.handle:
            raise StartupError(f"no compute threads: {library.last_error()}")

    def close(self) -> None:
        """Ends the threads."""
        if self.handle is not None:
            self._library.ov_pool_destroy(self.handle)
            self.handle = None


class NativeWeight:
    """A packed [n, k] weight.

    Attributes:
        handle: its address in the library.
        stored_bytes: memory it takes, scales and padding included.
    """

    def __init__(
        self, library: Library, pool: ThreadPool, tensor: StoredTensor, kind: GGMLType
    ) -> None:
        assert len(tensor.shape) == 2, f"tensor {tensor.name} is not a matrix"
        assert tensor.value_offset == 0, f"tensor {tensor.name}: matrices carry no value offset"
        self.n, self.k = tensor.shape
        self.kind = kind
        self._library = library
        data = np.frombuffer(tensor.data, np.uint8)
        permutation = tensor.row_permutation
        if permutation is not None:
            permutation = np.ascontiguousarray(permutation, np.int32)
            assert permutation.size == self.n
        self.handle: int | None = library.ov_weight_create(
            pool.handle,
            tensor.type,
            data.ctypes.data,
            self.n,
            self.k,
            kind,
            None if permutation is None else permutation.ctypes.data,
        )
        if not self.handle:
            raise StartupError(f"tensor {tensor.name} cannot be loaded: {library.last_error()}")
        self.stored_bytes: int = library.ov_weight_bytes(self.handle)

    def dequantize(self, first: int, count: int) -> npt.NDArray[np.float32]:
        """Rows [first, first + count) as f32 [count, k]."""
        rows = np.empty((count, self.k), np.float32)
        code = self._library.ov_weight_dequantize(self.handle, first, count, rows.ctypes.data)
        if code < 0:
            raise ValueError(self._library.last_error())
        return rows

    def close(self) -> None:
        """Gives the memory back."""
        if self.handle is not None:
            self._library.ov_weight_destroy(self.handle)
            self.handle = None


def available_isas(directory: str | os.PathLike[str] = LIBRARY_DIR) -> list[str]:
    """Levels that were built and run on this CPU, best first."""
    return [isa for isa in runnable_isas(best_isa()) if os.path.exists(_path(directory, isa))]


@cache
def best_isa() -> str:
    """The best level that this CPU runs."""
    return cpu_facts().isa


def load_library(
    isa: str | None = None, directory: str | os.PathLike[str] = LIBRARY_DIR
) -> Library:
    """The library of one level, by default the best that was built and runs here.

    Raises:
        StartupError: unknown level, one this CPU does not run, or a library that is missing or
            stale.
    """
    if isa is None:
        return _load(_path(directory, next(iter(available_isas(directory)), best_isa())))
    if isa not in ISA_LEVELS:
        raise StartupError(
            f"unknown instruction-set level {isa!r}; there are {', '.join(ISA_LEVELS)}"
        )
    if isa not in runnable_isas(best_isa()):
        raise StartupError(
            f"this CPU does not run the level {isa!r}; the best it runs is {best_isa()!r}"
        )
    return _load(_path(directory, isa))


@cache
def _load(path: str) -> Library:
    if not os.path.exists(path):
        raise StartupError(
            f"the native library {path} is missing; run `make native` in a source tree, or "
            "reinstall octavo"
        )
    return Library(path)


def _path(directory: str | os.PathLike[str], isa: str) -> str:
    return os.path.join(directory, f"liboctavo_{isa}.so")


def _stale(path: str) -> StartupError:
    return StartupError(
        f"the native library {path} was built from other sources than this package; run "
        "`make native` in a source tree, or reinstall octavo"
    )
