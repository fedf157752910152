"""A program made runnable: fused, laid out in an arena, handed to the native library.

`Plan` is the CPU's counterpart of a captured CUDA graph, without size buckets: one native call per
segment and step, no allocation, sizes come with the step. `PlanOptions` turn fusion and memory
sharing off, for tests that look at every value.

Runs in: workers on CPU. Owns: the native plan. Knows nothing of: requests, models.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.errors import EngineError, StartupError
from octavo.messages.kv_cache import DTYPE_BYTES
from octavo.messages.profile import Profile
from octavo.ops.abi import (
    ABI_VERSION,
    LOGITS_HOOK,
    OvBuffer,
    OvInstr,
    OvKvLayer,
    OvMatcherCalls,
    OvOperand,
    OvPlanDesc,
    OvSampleOutput,
    OvSampling,
    OvStep,
    OvVector,
)
from octavo.ops.arena import lay_out
from octavo.ops.backend import KVPool
from octavo.ops.fusion import forget_logits, fuse_program
from octavo.ops.ggml_type import GGMLType
from octavo.ops.kv_memory import KVMemory
from octavo.ops.library import Library, NativeWeight, ThreadPool
from octavo.ops.limits import measure_limits
from octavo.ops.logits_hook import GuardedHook
from octavo.ops.program import CacheType, ElementType, Instruction, Operand, Program, Rows
from octavo.ops.roofline import StepCounter, op_times, windows_of
from octavo.ops.step import Float32Array, SampleOutputArrays, SamplingArrays, StepArrays

#: Logit rows per pass of the sample segment: a row of logits can be 1 MB.
LOGIT_CHUNK = 32
#: a key of `messages.kv_cache.DTYPE_BYTES` -> its number in the library
CACHE_TYPES = {
    "float32": CacheType.F32,
    "bfloat16": CacheType.BF16,
    "int8": CacheType.I8,
    "fp8_e4m3": CacheType.F8_E4M3,
}


class PlanOptions(msgspec.Struct, frozen=True):
    """How a program becomes a plan.

    Attributes:
        is_fused: apply `octavo/ops/fusion.py`.
        is_arena_shared: let buffers share memory. Off, every value can be read after a step.
        prompts_as_generated: compute prompt tokens as generated ones also where the library has
            kernels of their own for them (`Library.input_type`).
    """

    is_fused: bool = True
    is_arena_shared: bool = True
    prompts_as_generated: bool = False


class Plan:
    """A compiled network on the native library. See `CompiledNetwork`.

    Args:
        library, pool: the library and its threads.
        program: as recorded.
        weights: the backend's packed weights, which instructions number.
        vocab_size: columns of the logits.
        max_tokens, max_requests: the largest step.
        kv_dtype: element type of the cache: a key of `messages.kv_cache.DTYPE_BYTES`.
        options: see `PlanOptions`.
    """

    def __init__(
        self,
        library: Library,
        pool: ThreadPool,
        program: Program,
        weights: Sequence[NativeWeight],
        *,
        vocab_size: int,
        max_tokens: int,
        max_requests: int,
        kv_dtype: str,
        options: PlanOptions,
    ) -> None:
        self._library = library
        self._pool = pool
        program = fuse_program(program) if options.is_fused else program
        self._program = forget_logits(program) if options.is_arena_shared else program
        self._weights = weights
        self._vocab_size = vocab_size
        self._prompts_as_generated = options.prompts_as_generated
        self._max_tokens = max_tokens
        self._max_requests = max_requests
        self._kv_dtype = CACHE_TYPES[kv_dtype]
        self._kv_bytes_per_value = DTYPE_BYTES[kv_dtype]
        self._counter: StepCounter | None = None  # while a profile is taken
        self._layout = lay_out(self._program, self._buffer_bytes, is_shared=options.is_arena_shared)
        self._handle: int | None = None
        self._kv_memory: KVMemory | None = None
        self._is_aborted = False
        self._step = _StepBinding()
        self._sampling = _SamplingBinding()
        self._hook = _HookBinding(vocab_size)

    @property
    def activation_bytes(self) -> int:
        return self._layout.arena_bytes

    @property
    def program(self) -> Program:
        """As it runs, fused or not."""
        return self._program

    def allocate_kv(self, pool: KVPool) -> None:
        assert self._handle is None, "the cache is allocated once"
        self._kv_memory = KVMemory(self._library, pool)
        self._create(pool, self._kv_memory.address)

    def prefault_kv(self, num_blocks: int) -> None:
        assert self._kv_memory is not None
        self._kv_memory.prefault(num_blocks)

    def forward(self, step: StepArrays) -> bool:
        if self._kv_memory is not None:
            self._kv_memory.begin_step()
        if self._counter is not None:
            self._counter.add(step)
        return self._run(self._library.ov_plan_forward, self._step.bind(step))

    def sample(
        self, step: StepArrays, sampling: SamplingArrays, output: SampleOutputArrays
    ) -> bool:
        structs = (self._step.bind(step), *self._sampling.bind(sampling, output))
        if sampling.logits_hook is None:
            return self._run(self._library.ov_plan_sample, *structs)
        hook = GuardedHook(sampling.logits_hook, output)
        with self._hook.bind(hook, structs[1]):
            is_done = self._run(self._library.ov_plan_sample, *structs)
        hook.finish()
        return is_done

    def abort(self) -> None:
        self._is_aborted = True
        if self._handle is not None:
            self._library.ov_plan_abort(self._handle, 1)

    def close(self) -> None:
        if self._handle is not None:
            self._library.ov_plan_destroy(self._handle)
            self._handle = None
        if self._kv_memory is not None:
            self._kv_memory.close()
            self._kv_memory = None

    # ---- looking inside (tests, profiles)
    def read(self, buffer: int, num_rows: int) -> Float32Array:
        """[num_rows, cols] f32: a buffer after a step. Meaningful when it shares no memory."""
        values = np.zeros((num_rows, self._program.buffers[buffer].cols), np.float32)
        self._check(self._library.ov_plan_read(self._handle, buffer, num_rows, _address(values)))
        return values

    def write(self, buffer: int, values: Float32Array) -> None:
        """Sets the first rows of a buffer that no instruction writes."""
        values = np.ascontiguousarray(values, np.float32)
        self._check(
            self._library.ov_plan_write(self._handle, buffer, len(values), _address(values))
        )

    def enable_timers(self, is_on: bool) -> None:
        """Starts or stops the clock of every instruction, at zero."""
        self._library.ov_plan_enable_timers(self._handle, int(is_on))

    def timers(self) -> list[tuple[Instruction, int]]:
        """Nanoseconds summed over steps, per instruction, forward first."""
        instructions = [*self._program.forward, *self._program.sample]
        elapsed = np.zeros(len(instructions), np.uint64)
        self._check(
            self._library.ov_plan_timers(self._handle, _address(elapsed), len(instructions))
        )
        return list(zip(instructions, elapsed.tolist(), strict=True))

    def start_profile(self) -> None:
        self._counter = StepCounter(windows_of(self._program), LOGIT_CHUNK)
        self.enable_timers(True)

    def stop_profile(self) -> Profile:
        counter, self._counter = self._counter, None
        if counter is None:
            raise EngineError("no profile is being taken: start one first")
        times = op_times(
            self._program,
            self._weights,
            self._kv_bytes_per_value,
            counter,
            self.timers(),
            self._prompt_type(),
        )
        self.enable_timers(False)
        limits = measure_limits(self._library, self._pool, self._weights)
        return Profile(times, counter.num_steps, limits)

    def _prompt_type(self) -> ElementType:
        """How quantised weights read tokens of prompts."""
        is_prompt = not self._prompts_as_generated
        return ElementType(self._library.input_type(GGMLType.Q8_0, is_prompt=is_prompt))

    # ---- the description
    def _capacity(self, buffer: int) -> int:
        """Rows a buffer must have room for."""
        description = self._program.buffers[buffer]
        if description.is_chunked:
            return LOGIT_CHUNK
        return self._max_requests if description.rows == Rows.R else self._max_tokens

    def _row_bytes(self, buffer: int) -> int:
        description = self._program.buffers[buffer]
        return self._library.row_bytes(description.dtype, description.cols)

    def _buffer_bytes(self, buffer: int) -> int:
        return self._capacity(buffer) * self._row_bytes(buffer)

    def _create(self, pool: KVPool, kv_address: int) -> None:
        """Describes the plan to the library, which copies the description."""
        program = self._program
        buffers = (OvBuffer * len(program.buffers))(
            *(
                OvBuffer(offset, self._row_bytes(index), buffer.dtype, buffer.rows, buffer.cols)
                for index, (buffer, offset) in enumerate(
                    zip(program.buffers, self._layout.offsets, strict=True)
                )
            )
        )
        forward = (OvInstr * len(program.forward))(*map(_native_instruction, program.forward))
        sample = (OvInstr * len(program.sample))(*map(_native_instruction, program.sample))
        weights = (ctypes.c_void_p * len(self._weights))(*(w.handle for w in self._weights))
        vectors = (OvVector * len(program.vectors))(
            *(OvVector(_address(vector), vector.size) for vector in program.vectors)
        )
        kv_layers = self._kv_layers(pool)
        description = OvPlanDesc(
            buffers=ctypes.addressof(buffers),
            forward=ctypes.addressof(forward),
            sample=ctypes.addressof(sample),
            weights=ctypes.addressof(weights),
            vectors=ctypes.addressof(vectors),
            kv_layers=ctypes.addressof(kv_layers),
            kv_pool=kv_address,
            kv_block_stride_bytes=pool.bytes_per_block,
            arena_bytes=self._layout.arena_bytes,
            num_buffers=len(buffers),
            num_forward=len(forward),
            num_sample=len(sample),
            num_weights=len(weights),
            num_vectors=len(vectors),
            num_kv_layers=len(kv_layers),
            max_tokens=self._max_tokens,
            max_requests=self._max_requests,
            logit_chunk=LOGIT_CHUNK,
            block_size=pool.block_size,
            vocab_size=self._vocab_size,
            prompts_as_generated=self._prompts_as_generated,
        )
        self._handle = self._library.ov_plan_create(self._pool.handle, ctypes.byref(description))
        if not self._handle:
            raise StartupError(f"the plan cannot be made: {self._library.last_error()}")
        if self._is_aborted:
            self.abort()

    def _kv_layers(self, pool: KVPool) -> ctypes.Array[OvKvLayer]:
        """The places of the layers, in the order in which instructions number them."""
        number_to_place = {place.layer.layer: place for place in pool.placements}
        layers = []
        for layer in self._program.kv_layers:
            place = number_to_place[layer.layer]
            native = OvKvLayer(
                place.offset_bytes,
                place.group,
                layer.num_kv_heads,
                layer.k_head_dim,
                layer.v_head_dim,
                self._kv_dtype,
            )
            end = place.offset_bytes + self._library.kv_layer_bytes(native, pool.block_size)
            assert end <= pool.bytes_per_block, f"layer {layer.layer} does not fit in its block"
            layers.append(native)
        return (OvKvLayer * len(layers))(*layers)

    def _run(self, function: ctypes._FuncPointer, *structs: ctypes.Structure) -> bool:
        """Calls a segment; True when it ran to its end."""
        code: int = function(self._handle, *map(ctypes.byref, structs))
        self._check(code)
        return code == 0

    def _check(self, code: int) -> None:
        if code < 0:
            raise EngineError(f"the native library failed: {self._library.last_error()}")


class _StepBinding:
    """The native views of step arrays; addresses are set once per set of arrays. There are as many
    sets as steps on their way at the same time."""

    def __init__(self) -> None:
        self._views: dict[StepArrays, tuple[OvStep, list[ctypes.Array[ctypes.c_void_p]]]] = {}

    def bind(self, step: StepArrays) -> OvStep:
        if step not in self._views:
            self._views[step] = _view_of(step)
        struct, _ = self._views[step]
        struct.num_tokens = step.num_tokens
        struct.num_requests = step.num_requests
        struct.num_logits = step.num_logits
        struct.num_generated = step.num_generated
        return struct


def _view_of(step: StepArrays) -> tuple[OvStep, list[ctypes.Array[ctypes.c_void_p]]]:
    """The struct without its sizes, and the tables it points to."""
    tables = [_addresses(step.slot_mapping), _addresses(step.block_tables)]
    struct = OvStep(
        version=ABI_VERSION,
        bytes=ctypes.sizeof(OvStep),
        num_groups=step.num_groups,
        input_ids=_address(step.input_ids),
        input_rows=_address(step.input_rows),
        positions=_address(step.positions),
        query_start=_address(step.query_start),
        seq_lens=_address(step.seq_lens),
        logit_rows=_address(step.logit_rows),
        last_tokens=_address(step.last_tokens),
        block_table_stride=step.block_tables.shape[2],
        slot_mapping=ctypes.addressof(tables[0]),
        block_tables=ctypes.addressof(tables[1]),
    )
    return struct, tables


def _view_of_sampling(sampling: SamplingArrays) -> OvSampling:
    """The struct without its lists."""
    return OvSampling(
        version=ABI_VERSION,
        bytes=ctypes.sizeof(OvSampling),
        temperature=_address(sampling.temperature),
        top_p=_address(sampling.top_p),
        min_p=_address(sampling.min_p),
        top_k=_address(sampling.top_k),
        seed=_address(sampling.seed),
        output_index=_address(sampling.output_index),
        state_row=_address(sampling.state_row),
        target=_address(sampling.target),
        num_logprobs=_address(sampling.num_logprobs),
    )


class _SamplingBinding:
    """The native view of sampling arrays and outputs; lists change address from step to step."""

    def __init__(self) -> None:
        self._samplings: dict[SamplingArrays, OvSampling] = {}
        self._outputs: dict[SampleOutputArrays, OvSampleOutput] = {}

    def bind(
        self, sampling: SamplingArrays, output: SampleOutputArrays
    ) -> tuple[OvSampling, OvSampleOutput]:
        if sampling not in self._samplings:
            self._samplings[sampling] = _view_of_sampling(sampling)
        struct = self._samplings[sampling]
        if sampling.uses_report_ids:
            struct.report_offsets = _address(sampling.report_offsets)
            struct.report_ids = _address(sampling.report_ids)
        else:
            struct.report_offsets = struct.report_ids = None
        if sampling.uses_penalties:
            struct.repetition_penalty = _address(sampling.repetition_penalty)
            struct.presence_penalty = _address(sampling.presence_penalty)
            struct.frequency_penalty = _address(sampling.frequency_penalty)
            struct.seen_offsets = _address(sampling.seen_offsets)
            struct.seen_ids = _address(sampling.seen_ids)
            struct.seen_counts = _address(sampling.seen_counts)
        else:
            struct.repetition_penalty = struct.presence_penalty = None
            struct.frequency_penalty = None
            struct.seen_offsets = struct.seen_ids = struct.seen_counts = None
        if sampling.uses_bias:
            struct.bias_offsets = _address(sampling.bias_offsets)
            struct.bias_ids = _address(sampling.bias_ids)
            struct.bias_values = _address(sampling.bias_values)
        else:
            struct.bias_offsets = struct.bias_ids = struct.bias_values = None
        if sampling.uses_masks:
            struct.mask_row = _address(sampling.mask_row)
            struct.masks = _address(sampling.masks)
        else:
            struct.mask_row = struct.masks = None
        if sampling.uses_matchers:
            struct.matchers = _address(sampling.matchers)
            struct.matcher_calls = OvMatcherCalls(*sampling.matcher_calls)
        else:
            struct.matchers = None
        return struct, self._bind_output(output)

    def _bind_output(self, output: SampleOutputArrays) -> OvSampleOutput:
        if output not in self._outputs:
            self._outputs[output] = OvSampleOutput(
                sampled=_address(output.sampled), status=_address(output.status)
            )
        struct = self._outputs[output]
        struct.max_logprobs = max(output.max_logprobs, 0)
        if output.max_logprobs >= 0:
            struct.logprob_ids = _address(output.logprob_ids)
            struct.logprob_values = _address(output.logprob_values)
            struct.logprob_ranks = _address(output.logprob_ranks)
        else:
            struct.logprob_ids = struct.logprob_values = struct.logprob_ranks = None
        return struct


class _HookBinding:
    """The C function through which the library calls a step's hook."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._hook: GuardedHook
        self._callback: ctypes._FuncPointer | None = None

    @contextmanager
    def bind(self, hook: GuardedHook, struct: OvSampling) -> Iterator[None]:
        """Makes `struct` call the hook."""
        if self._callback is None:  # nobody else pays for it
            self._callback = LOGITS_HOOK(self._call)
        self._hook = hook
        struct.logits_hook = ctypes.cast(self._callback, ctypes.c_void_p).value
        try:
            yield
        finally:
            struct.logits_hook = None

    def _call(self, _: None, first_row: int, num_rows: int, address: int, row_stride: int) -> None:
        memory = (ctypes.c_float * (num_rows * row_stride)).from_address(address)
        rows = np.ctypeslib.as_array(memory).reshape(num_rows, row_stride)
        self._hook(first_row, rows[:, : self._vocab_size])


def _native_instruction(item: Instruction) -> OvInstr:
    native = OvInstr(op=item.op, rows=item.rows)
    for slots, operands in ((native.in_, item.ins), (native.out, item.outs)):
        for index in range(len(slots)):
            operand = operands[index] if index < len(operands) else None
            slots[index] = _native_operand(operand)
    for index in range(len(native.weight)):
        native.weight[index] = item.weights[index] if index < len(item.weights) else -1
        vector = item.vectors[index] if index < len(item.vectors) else None
        native.vec[index] = -1 if vector is None else vector
    for index, constant in enumerate(item.i):
        native.i[index] = constant
    for index, number in enumerate(item.f):
        native.f[index] = number
    return native


def _native_operand(operand: Operand | None) -> OvOperand:
    return OvOperand(-1, 0) if operand is None else OvOperand(operand.buffer, operand.col)


def _address(array: npt.NDArray[np.generic]) -> int:
    assert array.flags.c_contiguous
    return array.ctypes.data


def _addresses(array: npt.NDArray[np.generic]) -> ctypes.Array[ctypes.c_void_p]:
    """The address of each array[g]."""
    return (ctypes.c_void_p * len(array))(*(_address(part) for part in array))
