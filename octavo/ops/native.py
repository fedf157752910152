"""The op set on the native CPU library: calling an op records an instruction.

Weights are packed by the library when a model is built. Calling the network once afterwards writes
a `Program`, which `octavo/ops/plan.py` turns into something that runs steps.

Runs in: workers on CPU. Owns: packed weights, the thread pool.
Knows nothing of: requests, schedulers, checkpoints' names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.ops.backend import Network, cache_element_type
from octavo.ops.dequantize import dequantize
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import Activation, KVLayer, StoredTensor, Tensor, Weight
from octavo.ops.library import Library, NativeWeight, ThreadPool
from octavo.ops.plan import Plan, PlanOptions
from octavo.ops.program import Buffer, ElementType, Instruction, Op, Operand, Program, Rows
from octavo.ops.step import Float32Array


class NativeTensor(msgspec.Struct, frozen=True, eq=False):
    """Columns of a buffer; `version` counts the overwrites the buffer had when it was made."""

    buffer: int
    col: int
    cols: int
    rows: Rows
    version: int

    @property
    def operand(self) -> Operand:
        """As instructions name it."""
        return Operand(self.buffer, self.col)


class NativeLinear(msgspec.Struct, frozen=True, eq=False):
    """A packed [n, k] weight: its number in the backend and the input it reads."""

    index: int
    n: int
    k: int
    input_type: ElementType


class NativeVector(msgspec.Struct, frozen=True, eq=False):
    """An f32 vector: its number in the backend."""

    index: int
    n: int


def stored_kind(stored: GGMLType, dtype: str) -> GGMLType:
    """How a weight of a checkpoint is kept in memory under `--dtype`."""
    if dtype == "float32":
        return GGMLType.F32
    if dtype == "bfloat16":
        return GGMLType.BF16
    return GGMLType.BF16 if stored == GGMLType.F16 else stored


def input_type(kind: GGMLType) -> ElementType:
    """What a weight of this kind multiplies: quantised ones take int8 activations."""
    if kind == GGMLType.F32:
        return ElementType.F32
    return ElementType.BF16 if kind == GGMLType.BF16 else ElementType.A8


_ACTIVATIONS = {
    ElementType.A8: "int8",
    ElementType.A8R: "rotated int8",
    ElementType.BF16: "bfloat16",
    ElementType.F32: "float32",
}


def round_to_bf16(value: float) -> float:
    """The nearest bfloat16, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(np.uint32(rounded).view(np.float32))


class NativeOps:
    """`Ops` as a recorder.

    Args:
        library: the native library.
        pool: its threads; packing is parallel.
        dtype: "auto", "float32" or "bfloat16".
    """

    def __init__(self, library: Library, pool: ThreadPool, dtype: str) -> None:
        self._library = library
        self._pool = pool
        self._dtype = dtype
        self.weights: list[NativeWeight] = []
        self.vectors: list[Float32Array] = []
        self.rounds_half_precision = False  # float16 weights are kept as bfloat16
        self._program = Program()
        self._segment = self._program.forward
        self._copies_before_overwrite = False
        self._overwrites: list[list[tuple[int, int]]] = []  # per buffer: first and end column
        self._prepared: dict[tuple[Operand, int, int, ElementType], NativeTensor] = {}

    # ---- weights
    def pack_linear(self, tensor: StoredTensor) -> Weight:
        kind = stored_kind(tensor.type, self._dtype)
        if tensor.type == GGMLType.F16 and self._dtype == "auto":
            self.rounds_half_precision = True
        n, k = tensor.shape
        packed = self._library.pack_weight(self._pool, tensor, kind)
        self.weights.append(packed)
        return NativeLinear(len(self.weights) - 1, n, k, input_type(kind))

    def pack_vector(self, tensor: StoredTensor) -> Weight:
        return self.constant(dequantize(tensor))

    def constant(self, values: npt.NDArray[np.float32]) -> Weight:
        self.vectors.append(np.ascontiguousarray(values, np.float32))
        return NativeVector(len(self.vectors) - 1, values.size)

    # ---- recording
    def record(self, network: Network, *, copies_before_overwrite: bool) -> Program:
        """Calls the network once.

        Args:
            copies_before_overwrite: let operations that work in place work on a copy, so that every
                value of the network can be read after a step.
        """
        self._copies_before_overwrite = copies_before_overwrite
        self._program = Program(vectors=self.vectors, kv_layers=list(network.kv_layers))
        self._segment = self._program.forward
        self._overwrites, self._prepared = [], {}
        network.sample(network.forward())
        return self._program

    def input(self, rows: Rows, cols: int) -> Tensor:
        """A tensor that no instruction writes: tests write it through the plan."""
        return self._new(rows, cols)

    def _new(self, rows: Rows, cols: int, dtype: ElementType = ElementType.F32) -> NativeTensor:
        is_chunked = self._segment is self._program.sample
        buffer = self._program.add_buffer(Buffer(rows, cols, dtype, is_chunked))
        self._overwrites.append([])
        return NativeTensor(buffer, 0, cols, rows, 0)

    def _read(self, tensor: Tensor) -> NativeTensor:
        """The handle, if its value is still what it was when the handle was made."""
        assert isinstance(tensor, NativeTensor)
        end = tensor.col + tensor.cols
        later = self._overwrites[tensor.buffer][tensor.version :]
        assert not any(first < end and tensor.col < last for first, last in later), (
            "an operation that works in place has overwritten this tensor; the model must not use "
            "it afterwards"
        )
        return tensor

    def _emit(self, instruction: Instruction) -> None:
        self._segment.append(instruction)

    def _elementwise(
        self, op: Op, inputs: Sequence[Tensor], *, i: Sequence[int] = (), f: Sequence[float] = ()
    ) -> NativeTensor:
        handles = [self._read(x) for x in inputs]
        assert len({(x.cols, x.rows) for x in handles}) == 1, "operands of different shapes"
        out = self._new(handles[0].rows, handles[0].cols)
        ins: list[Operand | None] = [x.operand for x in handles]
        self._emit(Instruction(op, out.rows, ins, [out.operand], i=list(i), f=list(f)))
        return out

    def _overwritten(self, tensor: Tensor) -> tuple[NativeTensor, NativeTensor]:
        """(what an in-place operation works on, the handle of its result)."""
        before = self._read(tensor)
        if self._copies_before_overwrite:
            before = self._elementwise(Op.SCALE, [before], f=[1.0])
        overwrites = self._overwrites[before.buffer]
        overwrites.append((before.col, before.col + before.cols))
        return before, msgspec.structs.replace(before, version=len(overwrites))

    def _prepare(self, tensor: Tensor, dtype: ElementType) -> NativeTensor:
        """What a linear reads, made once per tensor and type."""
        x = self._read(tensor)
        if dtype == ElementType.F32:
            return x
        key = (x.operand, x.cols, x.version, dtype)
        if key not in self._prepared:
            out = self._new(x.rows, x.cols, dtype)
            self._emit(Instruction(Op.PREPARE, x.rows, [x.operand], [out.operand], i=[dtype]))
            self._prepared[key] = out
        return self._prepared[key]

    # ---- network
    def embed(self, weight: Weight, *, scale: float = 1.0) -> Tensor:
        matrix = _linear(weight)
        out = self._new(Rows.T, matrix.k)
        if matrix.input_type == ElementType.BF16:
            scale = round_to_bf16(scale)
        self._emit(
            Instruction(Op.EMBED, Rows.T, outs=[out.operand], weights=[matrix.index], f=[scale])
        )
        return out

    def linear(self, x: Tensor, weight: Weight, bias: Weight | None = None) -> Tensor:
        return self._product(Op.LINEAR, x, weight, bias)

    def _product(self, op: Op, x: Tensor, weight: Weight, bias: Weight | None) -> NativeTensor:
        matrix = _linear(weight)
        prepared = self._prepare(x, matrix.input_type)
        assert prepared.cols == matrix.k, "the input is not as wide as the weight"
        if op == Op.LM_HEAD:
            self._segment = self._program.sample
        out = self._new(prepared.rows, matrix.n)
        self._emit(
            Instruction(
                op,
                out.rows,
                [prepared.operand],
                [out.operand],
                weights=[matrix.index],
                vectors=[None if bias is None else _vector(bias).index],
            )
        )
        return out

    def rms_norm(
        self, x: Tensor, weight: Weight, *, eps: float, offset: float = 0.0, num_heads: int = 1
    ) -> Tensor:
        source, vector = self._read(x), _vector(weight)
        size = source.cols // num_heads
        assert vector.n == size, "the norm's weight is not as wide as its input"
        out = self._new(source.rows, source.cols)
        self._emit(
            Instruction(
                Op.RMS_NORM,
                out.rows,
                [source.operand],
                [out.operand],
                vectors=[vector.index],
                i=[size, num_heads, ElementType.F32],
                f=[eps, offset],
            )
        )
        return out

    def layer_norm(
        self, x: Tensor, weight: Weight | None, bias: Weight | None, *, eps: float
    ) -> Tensor:
        source = self._read(x)
        out = self._new(source.rows, source.cols)
        self._emit(
            Instruction(
                Op.LAYER_NORM,
                out.rows,
                [source.operand],
                [out.operand],
                vectors=[None if v is None else _vector(v).index for v in (weight, bias)],
                i=[source.cols, 1, ElementType.F32],
                f=[eps, 0.0],
            )
        )
        return out

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._elementwise(Op.ADD, [x, y])

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._elementwise(Op.MUL, [x, y])

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return self._elementwise(Op.SCALE, [x], f=[factor])

    def split(self, x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        whole, col = self._read(x), 0
        parts: list[Tensor] = []
        for size in sizes:
            parts.append(
                NativeTensor(whole.buffer, whole.col + col, size, whole.rows, whole.version)
            )
            col += size
        assert col == whole.cols, "the parts do not add up to the tensor"
        return parts

    def rope(
        self,
        x: Tensor,
        inv_freq: Weight,
        *,
        num_heads: int,
        head_dim: int,
        rotary_dim: int,
        scaling: float = 1.0,
    ) -> Tensor:
        target, result = self._overwritten(x)
        assert target.cols == num_heads * head_dim, "heads do not add up to the tensor"
        self._emit(
            Instruction(
                Op.ROPE,
                target.rows,
                [target.operand],
                vectors=[_vector(inv_freq).index],
                i=[num_heads, head_dim, rotary_dim],
                f=[scaling],
            )
        )
        return result

    def kv_write(self, k: Tensor, v: Tensor, layer: KVLayer) -> None:
        keys, values = self._read(k), self._read(v)
        index = self._program.kv_layers.index(layer)
        self._emit(Instruction(Op.KV_WRITE, keys.rows, [keys.operand, values.operand], i=[index]))

    def attention(
        self,
        q: Tensor,
        layer: KVLayer,
        *,
        num_heads: int,
        scale: float,
        soft_cap: float = 0.0,
        sinks: Weight | None = None,
    ) -> Tensor:
        queries = self._read(q)
        out = self._new(queries.rows, num_heads * layer.v_head_dim)
        index = self._program.kv_layers.index(layer)
        self._emit(
            Instruction(
                Op.ATTENTION,
                out.rows,
                [queries.operand],
                [out.operand],
                vectors=[None if sinks is None else _vector(sinks).index],
                i=[num_heads, index, layer.sliding_window or 0, ElementType.F32],
                f=[scale, soft_cap],
            )
        )
        return out

    def act(self, x: Tensor, kind: Activation) -> Tensor:
        return self._elementwise(Op.ACT, [x], i=[kind])

    def act_mul(self, gate: Tensor, up: Tensor, kind: Activation) -> Tensor:
        return self._elementwise(Op.ACT_MUL, [gate, up], i=[kind, 0, ElementType.F32])

    def soft_cap(self, x: Tensor, cap: float) -> Tensor:
        return self._in_place(Op.SOFT_CAP, x, f=[cap])

    def _in_place(self, op: Op, x: Tensor, f: Sequence[float] = ()) -> NativeTensor:
        target, result = self._overwritten(x)
        self._emit(Instruction(op, target.rows, [target.operand], f=list(f)))
        return result

    # ---- logits
    def select_rows(self, x: Tensor) -> Tensor:
        return self._gather(x, Rows.T, Rows.S)

    def logit_rows(self, x: Tensor) -> Tensor:
        return self._gather(x, Rows.S, Rows.L)

    def _gather(self, x: Tensor, of: Rows, rows: Rows) -> NativeTensor:
        source = self._read(x)
        assert source.rows == of, f"rows are {source.rows.name}, not {of.name}"
        out = self._new(rows, source.cols)
        self._emit(Instruction(Op.GATHER, rows, [source.operand], [out.operand]))
        return out

    def lm_head(self, x: Tensor, weight: Weight) -> Tensor:
        return self._product(Op.LM_HEAD, x, weight, None)

    # ---- sampling
    def logprobs(self, logits: Tensor, *, processed: bool, as_logits: bool = False) -> None:
        source = self._read(logits)
        kind = [int(processed), int(as_logits)]
        self._emit(Instruction(Op.LOGPROBS, source.rows, [source.operand], i=kind))

    def penalize(self, logits: Tensor) -> Tensor:
        return self._in_place(Op.PENALIZE, logits)

    def mask(self, logits: Tensor) -> Tensor:
        return self._in_place(Op.MASK, logits)

    def logits_hook(self, logits: Tensor) -> Tensor:
        return self._in_place(Op.LOGITS_HOOK, logits)

    def sample(self, logits: Tensor) -> None:
        source = self._read(logits)
        self._emit(Instruction(Op.SAMPLE, source.rows, [source.operand]))


def _linear(weight: Weight) -> NativeLinear:
    assert isinstance(weight, NativeLinear)
    return weight


def _vector(weight: Weight) -> NativeVector:
    assert isinstance(weight, NativeVector)
    return weight


class NativeBackend:
    """The CPU as a backend.

    Args:
        library: the native library of one ISA level.
        num_threads: compute threads, the calling one included.
        spin_us: how long they spin for work before they sleep.
        cpus: one CPU per thread to pin it to; None: threads are not pinned.
        dtype: "auto", "float32" or "bfloat16".
        cache_dtype: as `--kv-cache-dtype`.
        options: how programs become plans.
    """

    def __init__(
        self,
        library: Library,
        *,
        num_threads: int,
        spin_us: int,
        cpus: Sequence[int] | None = None,
        dtype: str,
        cache_dtype: str = "auto",
        options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    ) -> None:
        self._library = library
        self._pool = library.create_pool(num_threads, cpus=cpus, spin_us=spin_us)
        self._num_threads = num_threads
        self.options = options
        self.kv_dtype = cache_element_type(cache_dtype, dtype)
        self.ops = NativeOps(library, self._pool, dtype)

    @property
    def tells_prompts_apart(self) -> bool:
        return any(map(self._has_prompt_form, {weight.kind for weight in self.ops.weights}))

    def _has_prompt_form(self, kind: GGMLType) -> bool:
        """True if weights of this kind read prompt tokens in another form than generated ones."""
        if self.options.prompts_as_generated:
            return False
        forms = {self._library.input_type(kind, is_prompt=is_prompt) for is_prompt in (True, False)}
        return len(forms) > 1

    @property
    def weight_bytes(self) -> int:
        vectors = sum(vector.nbytes for vector in self.ops.vectors)
        return vectors + sum(weight.stored_bytes for weight in self.ops.weights)

    @property
    def notes(self) -> list[str]:
        threads = "1 thread" if self._num_threads == 1 else f"{self._num_threads} threads"
        summary = (
            f"weights are {self._kinds()} ({self.weight_bytes / 2**20:.1f} MiB); KV cache is "
            f"{self.kv_dtype}; {self._library.isa} kernels on {threads}"
        )
        notes = [summary]
        if self.ops.rounds_half_precision:
            notes.append(
                "float16 weights are kept as bfloat16; --dtype float32 keeps their full precision"
            )
        return notes

    def _kinds(self) -> str:
        """How matrices are kept and what they multiply, most frequent kind first."""
        kinds = Counter(weight.kind for weight in self.ops.weights)
        return ", ".join(f"{kind.name} with {self._form(kind)}" for kind, _ in kinds.most_common())

    def _form(self, kind: GGMLType) -> str:
        generated = f"{_ACTIVATIONS[input_type(kind)]} activations"
        if not self._has_prompt_form(kind):
            return generated
        prompt = _ACTIVATIONS[ElementType(self._library.input_type(kind, is_prompt=True))]
        return f"{generated} ({prompt} ones for prompts)"

    def compile(self, network: Network, *, max_tokens: int, max_requests: int) -> Plan:
        program = self.ops.record(network, copies_before_overwrite=not self.options.is_arena_shared)
        return Plan(
            self._library,
            self._pool,
            program,
            self.ops.weights,
            vocab_size=network.vocab_size,
            max_tokens=max_tokens,
            max_requests=max_requests,
            kv_dtype=self.kv_dtype,
            options=self.options,
        )

    def close(self) -> None:
        for weight in self.ops.weights:
            weight.close()
        self.ops.weights.clear()
        self._pool.close()
