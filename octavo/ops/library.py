"""The native CPU library as Python sees it: ctypes mirror of csrc/include/octavo.h, and its loader.

One shared object per instruction-set level lies in octavo/lib. Structs and prototypes are declared
here and nowhere else; sizes and the ABI version are compared at load, so a stale build is a
sentence and not a crash.

Runs in: workers on CPU, tests, benchmarks. Owns: loaded libraries, handles of weights and pools.
Knows nothing of: models, plans, requests.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
    sizeof,
)
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import EngineError, StartupError
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.platforms.cpu import ISA_FLAGS, cpu_facts, runnable_isas

ABI_VERSION = 3
#: where the build puts the shared objects
LIBRARY_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")
#: all levels of all processors
ISA_LEVELS = (*ISA_FLAGS, "scalar")
#: segments that one linear call can have
MAX_SEGMENTS = 4


class OvKvLayer(Structure):
    _fields_ = [
        ("layer_offset_bytes", c_int64),
        ("group", c_int32),
        ("num_kv_heads", c_int32),
        ("k_head_dim", c_int32),
        ("v_head_dim", c_int32),
        ("dtype", c_int32),
    ]


class OvBuffer(Structure):
    _fields_ = [
        ("offset_bytes", c_int64),
        ("stride_bytes", c_int64),
        ("dtype", c_int32),
        ("rows", c_int32),
        ("cols", c_int32),
        ("pad_", c_int32),
    ]


class OvOperand(Structure):
    _fields_ = [("buffer", c_int32), ("col", c_int32)]


class OvInstr(Structure):
    _fields_ = [
        ("op", c_int32),
        ("rows", c_int32),
        ("in_", OvOperand * 4),
        ("out", OvOperand * 4),
        ("weight", c_int32 * 4),
        ("vec", c_int32 * 4),
        ("i", c_int32 * 8),
        ("f", c_float * 4),
    ]


class OvVector(Structure):
    _fields_ = [("data", c_void_p), ("n", c_int64)]


class OvPlanDesc(Structure):
    _fields_ = [
        ("buffers", c_void_p),
        ("forward", c_void_p),
        ("sample", c_void_p),
        ("weights", c_void_p),
        ("vectors", c_void_p),
        ("kv_layers", c_void_p),
        ("kv_pool", c_void_p),
        ("kv_block_stride_bytes", c_int64),
        ("arena_bytes", c_int64),
        ("num_buffers", c_int32),
        ("num_forward", c_int32),
        ("num_sample", c_int32),
        ("num_weights", c_int32),
        ("num_vectors", c_int32),
        ("num_kv_layers", c_int32),
        ("max_tokens", c_int32),
        ("max_requests", c_int32),
        ("logit_chunk", c_int32),
        ("block_size", c_int32),
        ("vocab_size", c_int32),
        ("prompts_as_generated", c_int32),
    ]


class OvStep(Structure):
    _fields_ = [
        ("version", c_uint32),
        ("bytes", c_uint32),
        ("num_tokens", c_int32),
        ("num_requests", c_int32),
        ("num_logits", c_int32),
        ("num_groups", c_int32),
        ("num_generated", c_int32),
        ("pad_", c_int32),
        ("input_ids", c_void_p),
        ("input_rows", c_void_p),
        ("positions", c_void_p),
        ("query_start", c_void_p),
        ("seq_lens", c_void_p),
        ("logit_rows", c_void_p),
        ("slot_mapping", c_void_p),
        ("block_tables", c_void_p),
        ("block_table_stride", c_int64),
        ("last_tokens", c_void_p),
        ("lora_slots", c_void_p),
        ("draft_tokens", c_void_p),
    ]


class OvSampling(Structure):
    _fields_ = [
        ("version", c_uint32),
        ("bytes", c_uint32),
        ("temperature", c_void_p),
        ("top_p", c_void_p),
        ("min_p", c_void_p),
        ("top_k", c_void_p),
        ("seed", c_void_p),
        ("output_index", c_void_p),
        ("state_row", c_void_p),
        ("target", c_void_p),
        ("num_logprobs", c_void_p),
        ("report_offsets", c_void_p),
        ("report_ids", c_void_p),
        ("repetition_penalty", c_void_p),
        ("presence_penalty", c_void_p),
        ("frequency_penalty", c_void_p),
        ("seen_offsets", c_void_p),
        ("seen_ids", c_void_p),
        ("seen_counts", c_void_p),
        ("bias_offsets", c_void_p),
        ("bias_ids", c_void_p),
        ("bias_values", c_void_p),
        ("mask_row", c_void_p),
        ("masks", c_void_p),
        ("logits_hook", c_void_p),
        ("hook_context", c_void_p),
    ]


class OvSampleOutput(Structure):
    _fields_ = [
        ("sampled", c_void_p),
        ("status", c_void_p),
        ("max_logprobs", c_int32),
        ("pad_", c_int32),
        ("logprob_ids", c_void_p),
        ("logprob_values", c_void_p),
        ("logprob_ranks", c_void_p),
    ]


#: `ov_sampling.logits_hook`: context, first row, rows, address of the logits, floats per row
LOGITS_HOOK = CFUNCTYPE(None, c_void_p, c_int32, c_int32, c_void_p, c_int64)

#: name in the header -> mirror
STRUCTS: dict[str, type[Structure]] = {
    "ov_kv_layer": OvKvLayer,
    "ov_buffer": OvBuffer,
    "ov_operand": OvOperand,
    "ov_instr": OvInstr,
    "ov_vector": OvVector,
    "ov_plan_desc": OvPlanDesc,
    "ov_step": OvStep,
    "ov_sampling": OvSampling,
    "ov_sample_output": OvSampleOutput,
}

#: function -> (result, arguments)
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "ov_abi_version": (c_int, []),
    "ov_isa_name": (c_char_p, []),
    "ov_last_error": (c_char_p, []),
    "ov_sizeof": (c_size_t, [c_char_p]),
    "ov_pool_create": (c_void_p, [c_int, c_void_p, c_int]),
    "ov_pool_destroy": (None, [c_void_p]),
    "ov_weight_create": (
        c_void_p,
        [c_void_p, c_int, c_void_p, c_int64, c_int64, c_int, c_void_p],
    ),
    "ov_weight_destroy": (None, [c_void_p]),
    "ov_weight_bytes": (c_int64, [c_void_p]),
    "ov_weight_dequantize": (c_int, [c_void_p, c_int64, c_int64, c_void_p]),
    "ov_convert": (c_int, [c_int, c_void_p, c_int64, c_int, c_void_p]),
    "ov_input_type": (c_int, [c_int, c_int]),
    "ov_linear": (c_int, [c_void_p, c_int, c_void_p, c_int, c_int64, c_void_p, c_void_p]),
    "ov_plan_create": (c_void_p, [c_void_p, c_void_p]),
    "ov_plan_destroy": (None, [c_void_p]),
    "ov_plan_set_kv": (c_int, [c_void_p, c_void_p, c_int64]),
    "ov_plan_forward": (c_int, [c_void_p, c_void_p]),
    "ov_plan_sample": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "ov_plan_abort": (None, [c_void_p, c_int]),
    "ov_plan_read": (c_int, [c_void_p, c_int32, c_int64, c_void_p]),
    "ov_plan_write": (c_int, [c_void_p, c_int32, c_int64, c_void_p]),
    "ov_plan_enable_timers": (None, [c_void_p, c_int]),
    "ov_plan_timers": (c_int, [c_void_p, c_void_p, c_int64]),
    "ov_row_bytes": (c_int64, [c_int, c_int64]),
    "ov_kv_layer_bytes": (c_int64, [POINTER(OvKvLayer), c_int32]),
    "ov_probe": (c_double, [c_void_p, c_int]),
    "ov_memory_map": (c_void_p, [c_int64]),
    "ov_memory_unmap": (None, [c_void_p, c_int64]),
}


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
