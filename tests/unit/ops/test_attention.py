"""Paged attention against float64, and that its bits depend on nothing but a row's own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.ops.interface import KVLayer
from octavo.ops.library import available_isas
from octavo.ops.program import ElementType, Op, Operand
from tests.fakes.kv_codes import stored_values
from tests.fakes.plan_rig import F32, plan_rig

ISAS = available_isas()
#: besides what the cache itself rounds away, which the reference knows
TOLERANCE = {"float32": 4e-6, "bfloat16": 2e-2, "int8": 4e-6, "fp8_e4m3": 4e-6}


def tolerance(isa: str, kv_dtype: str) -> float:
    """Of one output. Levels with products of bfloat16 take queries and softmax weights so."""
    rounds = isa in ("amx", "avx512_bf16") and kv_dtype != "float32"
    return TOLERANCE["bfloat16" if rounds else kv_dtype]


each_isa = pytest.mark.parametrize("isa", ISAS)
each_cache = pytest.mark.parametrize("kv_dtype", TOLERANCE)


@dataclass(frozen=True)
class Shape:
    """One attention layer."""

    heads: int = 6
    kv_heads: int = 2
    k_dim: int = 64
    v_dim: int = 64
    window: int = 0
    cap: float = 0.0
    has_sinks: bool = False
    block_size: int = 16

    @property
    def scale(self) -> float:
        return self.k_dim**-0.5


@dataclass(frozen=True)
class Tokens:
    """Q, K and V of all tokens of one request."""

    q: F32
    k: F32
    v: F32

    def __len__(self) -> int:
        return len(self.q)

    def stored(self, shape: Shape, kv_dtype: str) -> Tokens:
        """With K and V as they come back from the cache."""

        def stored(values: F32) -> F32:
            heads = values.reshape(len(values), shape.kv_heads, -1)
            return stored_values(heads, kv_dtype).reshape(values.shape)

        return Tokens(self.q, stored(self.k), stored(self.v))


def sequence(shape: Shape, length: int, seed: int) -> Tokens:
    rng = np.random.default_rng(seed)

    def draw(cols: int, scale: float = 1.0) -> F32:
        return (rng.standard_normal((length, cols)) * scale).astype(np.float32)

    return Tokens(
        draw(shape.heads * shape.k_dim, 1.5),
        draw(shape.kv_heads * shape.k_dim),
        draw(shape.kv_heads * shape.v_dim),
    )


def sinks_of(shape: Shape) -> F32:
    return np.linspace(-2, 3, shape.heads, dtype=np.float32)


def reference(shape: Shape, seq: Tokens) -> npt.NDArray[np.float64]:
    """Naive attention of every token of a sequence, [length, heads * v_dim]."""
    n, group = len(seq), shape.heads // shape.kv_heads
    q = seq.q.astype(np.float64).reshape(n, shape.heads, shape.k_dim)
    k = seq.k.astype(np.float64).reshape(n, shape.kv_heads, shape.k_dim).repeat(group, 1)
    v = seq.v.astype(np.float64).reshape(n, shape.kv_heads, shape.v_dim).repeat(group, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) * shape.scale
    if shape.cap:
        scores = shape.cap * np.tanh(scores / shape.cap)
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    visible = (j <= i) & ((j > i - shape.window) if shape.window else True)
    scores = np.where(visible, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    if shape.has_sinks:
        sink = sinks_of(shape).astype(np.float64)[:, None, None]
        top = np.maximum(top, sink)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if shape.has_sinks:
        total = total + np.exp(sink - top)
    return np.einsum("hij,jhd->ihd", weights / total, v).reshape(n, -1)


@lru_cache(maxsize=16)
def expected_rows(shape: Shape, length: int, seed: int, kv_dtype: str) -> npt.NDArray[np.float64]:
    """`reference` of a random sequence over what the cache keeps of it."""
    return reference(shape, sequence(shape, length, seed).stored(shape, kv_dtype))


def last_row(shape: Shape, seq: Tokens) -> npt.NDArray[np.float64]:
    """`reference` of the last token alone, without window, cap and sinks."""
    group = shape.heads // shape.kv_heads
    q = seq.q[-1].astype(np.float64).reshape(shape.heads, shape.k_dim)
    k = seq.k.astype(np.float64).reshape(-1, shape.kv_heads, shape.k_dim).repeat(group, 1)
    v = seq.v.astype(np.float64).reshape(-1, shape.kv_heads, shape.v_dim).repeat(group, 1)
    scores = np.einsum("hd,jhd->hj", q, k) * shape.scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hj,jhd->hd", weights, v).reshape(-1)


class Cache:
    """A layer with its cache, run step by step over chosen chunks of sequences.

    All blocks are poisoned with NaN first; a request's blocks are in random order.
    """

    def __init__(
        self,
        shape: Shape,
        sequences: Sequence[Tokens],
        *,
        isa: str | None = None,
        num_threads: int = 1,
        kv_dtype: str = "float32",
        seed: int = 0,
        out_dtype: ElementType = ElementType.F32,
    ) -> None:
        self.shape, self.sequences = shape, sequences
        self.blocks_per_request = max(-(-len(s) // shape.block_size) for s in sequences)
        self.num_blocks = 1 + len(sequences) * self.blocks_per_request
        order = np.random.default_rng(seed).permutation(np.arange(1, self.num_blocks))
        self.tables = order.reshape(len(sequences), self.blocks_per_request)
        self._context = plan_rig(
            isa,
            num_threads,
            kv_dtype=kv_dtype,
            max_tokens=self.num_blocks * shape.block_size,
            max_requests=self.num_blocks,
        )
        self.rig = rig = self._context.__enter__()
        self.q = rig.buffer(shape.heads * shape.k_dim)
        self.k = rig.buffer(shape.kv_heads * shape.k_dim)
        self.v = rig.buffer(shape.kv_heads * shape.v_dim)
        self.out = rig.buffer(shape.heads * shape.v_dim, dtype=out_dtype)
        layer = rig.kv_layer(KVLayer(0, shape.kv_heads, shape.k_dim, shape.v_dim))
        sinks = rig.vector(sinks_of(shape)) if shape.has_sinks else None
        rig.emit(Op.KV_WRITE, [self.k, self.v], i=[layer])
        rig.emit(
            Op.ATTENTION,
            [self.q],
            [self.out],
            vectors=[sinks],
            i=[shape.heads, layer, shape.window, out_dtype],
            f=[shape.scale, shape.cap],
        )
        self.plan = rig.build(num_blocks=self.num_blocks, block_size=shape.block_size)
        self._poison()
        self.num_computed = [0] * len(sequences)

    def _poison(self) -> None:
        num_slots = self.num_blocks * self.shape.block_size
        cols = (self.q, self.k, self.v)
        nan = [np.full((num_slots, self._cols(x)), np.nan, np.float32) for x in cols]
        self._write(np.arange(self.num_blocks), *nan)

    def _cols(self, operand: Operand) -> int:
        return self.rig.program.buffers[operand.buffer].cols

    def _write(self, blocks: npt.NDArray[np.int64], q: F32, k: F32, v: F32) -> None:
        """Fills blocks with tokens; each block is a request of its own, which is quick."""
        size, length = self.shape.block_size, len(k)
        step = self.rig.step(length, max_blocks=1)
        step.num_requests = len(blocks)
        ends = np.minimum(np.arange(1, len(blocks) + 1) * size, length)
        step.query_start[1 : len(blocks) + 1] = ends
        step.seq_lens[: len(blocks)] = np.diff(ends, prepend=0)
        step.block_tables[0, : len(blocks), 0] = blocks
        step.slot_mapping[0, :length] = (blocks[:, None] * size + np.arange(size)).ravel()[:length]
        for operand, values in zip((self.q, self.k, self.v), (q, k, v), strict=True):
            self.plan.write(operand.buffer, values)
        assert self.plan.forward(step)

    def run(self, chunks: Sequence[tuple[int, int]]) -> list[F32]:
        """One step: (request, tokens) in order; the outputs of each."""
        step = self.rig.step(0, max_blocks=self.blocks_per_request)
        rows: list[tuple[F32, F32, F32]] = []
        start = 0
        for index, (request, length) in enumerate(chunks):
            seq, first = self.sequences[request], self.num_computed[request]
            tokens = np.arange(first, first + length)
            table = self.tables[request]
            step.query_start[index + 1] = start + length
            step.seq_lens[index] = first + length
            step.block_tables[0, index] = table
            step.slot_mapping[0, start : start + length] = (
                table[tokens // self.shape.block_size] * self.shape.block_size
                + tokens % self.shape.block_size
            )
            rows.append((seq.q[tokens], seq.k[tokens], seq.v[tokens]))
            self.num_computed[request] += length
            start += length
        step.num_requests, step.num_tokens = len(chunks), start
        for operand, parts in zip((self.q, self.k, self.v), zip(*rows, strict=True), strict=True):
            self.plan.write(operand.buffer, np.concatenate(parts))
        assert self.plan.forward(step)
        values = self.plan.read(self.out.buffer, start)
        ends = step.query_start[1 : len(chunks)]
        return list(np.split(values, ends))

    def write_all(self, request: int, length: int) -> None:
        """Puts the first tokens of a request into the cache without attending to all of them."""
        seq = self.sequences[request]
        blocks = self.tables[request][: -(-length // self.shape.block_size)]
        self._write(blocks, seq.q[:length], seq.k[:length], seq.v[:length])
        self.num_computed[request] = length

    def close(self) -> None:
        self._context.__exit__(None, None, None)


def attend(
    shape: Shape,
    sequences: Sequence[Tokens],
    steps: Sequence[Sequence[tuple[int, int]]],
    **options: object,
) -> list[F32]:
    """Outputs of all tokens of each sequence after the steps."""
    cache = Cache(shape, sequences, **options)  # type: ignore[arg-type]
    try:
        outputs: list[list[F32]] = [[] for _ in sequences]
        for chunks in steps:
            for (request, _), values in zip(chunks, cache.run(chunks), strict=True):
                outputs[request].append(values)
    finally:
        cache.close()
    return [np.concatenate(parts) for parts in outputs]


def whole(sequences: Sequence[Tokens]) -> list[list[tuple[int, int]]]:
    """Each sequence in one step of its own."""
    return [[(index, len(s))] for index, s in enumerate(sequences)]


def check(shape: Shape, lengths: Sequence[int], isa: str, kv_dtype: str, **options: object) -> None:
    sequences = [sequence(shape, n, seed) for seed, n in enumerate(lengths)]
    got = attend(shape, sequences, whole(sequences), isa=isa, kv_dtype=kv_dtype, **options)
    for seed, (values, seq) in enumerate(zip(got, sequences, strict=True)):
        expected = expected_rows(shape, len(seq), seed, kv_dtype)
        np.testing.assert_allclose(values, expected, atol=tolerance(isa, kv_dtype))


@each_isa
@each_cache
@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(heads=9, kv_heads=3),
        Shape(heads=4, kv_heads=4),
        Shape(heads=32, kv_heads=1, k_dim=32, v_dim=32),
        Shape(k_dim=80, v_dim=80),
        Shape(k_dim=96, v_dim=32),
        Shape(k_dim=128, v_dim=128),
        Shape(heads=4, kv_heads=1, k_dim=256, v_dim=256),
        Shape(heads=2, kv_heads=1, k_dim=24, v_dim=8),
        Shape(heads=2, kv_heads=2, k_dim=6, v_dim=5),
        Shape(block_size=32),
        Shape(block_size=128),
    ],
    ids=str,
)
def test_head_sizes_and_groups(isa: str, kv_dtype: str, shape: Shape) -> None:
    check(shape, [1, 16, 277], isa, kv_dtype)


@each_isa
@each_cache
@pytest.mark.parametrize(
    "shape",
    [
        Shape(window=1),
        Shape(window=16),
        Shape(window=40),
        Shape(window=257),
        Shape(window=10_000),
        Shape(cap=5.0),
        Shape(has_sinks=True),
        Shape(window=33, cap=20.0, has_sinks=True),
    ],
    ids=str,
)
def test_windows_caps_and_sinks(isa: str, kv_dtype: str, shape: Shape) -> None:
    check(shape, [5, 300], isa, kv_dtype)


@each_isa
@each_cache
def test_a_window_reads_only_its_blocks(isa: str, kv_dtype: str) -> None:
    shape, length = Shape(window=32), 200
    seq = sequence(shape, length, 0)
    cache = Cache(shape, [seq], isa=isa, kv_dtype=kv_dtype)
    try:
        cache.run([(0, length - 1)])
        # blocks before the window of the last token are given back: their ids mean nothing any more
        cache.tables[0, : (length - 32) // 16] = 2**24
        (got,) = cache.run([(0, 1)])
    finally:
        cache.close()
    expected = reference(shape, seq.stored(shape, kv_dtype))[-1]
    np.testing.assert_allclose(got[0], expected, atol=tolerance(isa, kv_dtype))


@each_isa
@each_cache
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_batches_mixing_prefill_and_decode(isa: str, kv_dtype: str, num_threads: int) -> None:
    shape = Shape(heads=9, kv_heads=3)
    sequences = [sequence(shape, n, n) for n in (330, 70, 33, 4)]
    steps = [
        [(0, 200), (1, 50)],
        [(1, 17), (0, 1), (2, 33), (3, 3)],
        [(0, 128), (1, 1), (3, 1)],
        [(1, 1), (0, 1)],
        [(1, 1)],
    ]
    got = attend(shape, sequences, steps, isa=isa, kv_dtype=kv_dtype, num_threads=num_threads)
    for values, seq in zip(got, sequences, strict=True):
        expected = expected_rows(shape, len(seq), len(seq), kv_dtype)
        np.testing.assert_allclose(values, expected, atol=tolerance(isa, kv_dtype))


@each_isa
@each_cache
def test_bits_do_not_depend_on_chunks_company_or_threads(isa: str, kv_dtype: str) -> None:
    shape = Shape(heads=9, kv_heads=3, window=290)
    sequences = [sequence(shape, n, n) for n in (330, 300, 18)]
    alone = attend(shape, sequences, whole(sequences), isa=isa, kv_dtype=kv_dtype)
    steps = [
        [(0, 7), (1, 256)],
        [(0, 250), (1, 1), (2, 1)],
        [(2, 16), (1, 42), (0, 1)],
        *[[(0, 1), (1, 1)]] * 1,
        [(2, 1)],
        [(0, 71)],
    ]
    for num_threads in (1, 2, 3):
        options = {"isa": isa, "kv_dtype": kv_dtype, "num_threads": num_threads}
        got = attend(shape, sequences, steps, seed=num_threads, **options)
        for values, expected in zip(got, alone, strict=True):
            np.testing.assert_array_equal(values, expected)


@each_isa
@each_cache
@pytest.mark.parametrize("dims", [(64, 64), (40, 24)])
def test_runs_of_every_length_leave_the_cache_of_one_step(
    isa: str, kv_dtype: str, dims: tuple[int, int]
) -> None:
    """Few tokens are written word by word, more of a sub-block as whole lines."""
    shape = Shape(heads=2, kv_heads=2, k_dim=dims[0], v_dim=dims[1])
    lengths = [*range(1, 17), 5, 11, 16, 16]
    sequences = [sequence(shape, sum(lengths) + 1, 0)]
    options = {"isa": isa, "kv_dtype": kv_dtype, "num_threads": 2}
    (whole_step,) = attend(shape, sequences, whole(sequences), **options)
    (parts,) = attend(shape, sequences, [[(0, n)] for n in (*lengths, 1)], **options)
    np.testing.assert_array_equal(parts, whole_step)


@each_cache
@pytest.mark.parametrize("isa", ISAS[:1])
def test_a_decode_row_split_over_more_partitions_than_fit_at_once(isa: str, kv_dtype: str) -> None:
    shape, length = Shape(heads=2, kv_heads=1, k_dim=8, v_dim=8, block_size=128), 20_000
    seq = sequence(shape, length, 0)
    outputs = []
    for num_threads in (1, 2):
        cache = Cache(shape, [seq], isa=isa, kv_dtype=kv_dtype, num_threads=num_threads)
        try:
            cache.write_all(0, length - 1)
            outputs.append(cache.run([(0, 1)])[0])
        finally:
            cache.close()
    np.testing.assert_array_equal(*outputs)
    expected = last_row(shape, seq.stored(shape, kv_dtype))
    np.testing.assert_allclose(outputs[0][0], expected, atol=tolerance(isa, kv_dtype))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.data())
def test_any_chunking_gives_the_bits_of_one_pass(data: st.DataObject) -> None:
    kv_heads = data.draw(st.integers(1, 3))
    shape = Shape(
        heads=kv_heads * data.draw(st.integers(1, 9)),
        kv_heads=kv_heads,
        k_dim=data.draw(st.sampled_from([8, 16, 64])),
        v_dim=data.draw(st.sampled_from([8, 16, 48, 64])),
        window=data.draw(st.sampled_from([0, 0, 20, 270])),
        has_sinks=data.draw(st.booleans()),
    )
    kv_dtype = data.draw(st.sampled_from(sorted(TOLERANCE)))
    lengths = data.draw(st.lists(st.integers(1, 400), min_size=1, max_size=3))
    sequences = [sequence(shape, n, seed) for seed, n in enumerate(lengths)]
    left = list(lengths)
    steps: list[list[tuple[int, int]]] = []
    while any(left):
        chosen = data.draw(
            st.sets(st.sampled_from([i for i, n in enumerate(left) if n]), min_size=1)
        )
        chunks = [(i, data.draw(st.integers(1, left[i]))) for i in chosen]
        for i, n in chunks:
            left[i] -= n
        steps.append(chunks)
    expected = attend(shape, sequences, whole(sequences), kv_dtype=kv_dtype)
    num_threads = data.draw(st.integers(1, 3))
    got = attend(shape, sequences, steps, kv_dtype=kv_dtype, num_threads=num_threads, seed=1)
    for values, alone in zip(got, expected, strict=True):
        np.testing.assert_array_equal(values, alone)


@pytest.mark.parametrize("isa", ISAS[:1])
@each_cache
@pytest.mark.parametrize("group", range(1, 10))
@pytest.mark.parametrize(
    "shape",
    [
        Shape(k_dim=64, v_dim=64),
        Shape(k_dim=32, v_dim=96, window=37),
        Shape(k_dim=96, v_dim=32, block_size=32, cap=3.0, has_sinks=True),
    ],
)
def test_single_tokens_have_the_bits_of_a_prompt(
    isa: str, kv_dtype: str, group: int, shape: Shape
) -> None:
    # few query vectors may have kernels of their own; values that a product may flush to zero
    shape = replace(shape, heads=2 * group)
    seq = sequence(shape, 290, group)
    rng = np.random.default_rng(group)
    for values in (seq.q, seq.k, seq.v):
        tiny = rng.random(values.shape)
        values[tiny < 0.1] *= np.float32(1e-36)
        values[tiny < 0.05] = np.float32(1e-40)
    options = {"isa": isa, "kv_dtype": kv_dtype}
    (prompt,) = attend(shape, [seq], [[(0, 290)]], **options)
    decoded = [1, 2, 13, 15, 16, 17, 31, 32, 33, 255, 256, 257, 289]
    for num_threads in (1, 2):
        cache = Cache(shape, [seq] * len(decoded), num_threads=num_threads, **options)
        try:
            for request, length in enumerate(decoded):
                cache.write_all(request, length)
            got = cache.run([(request, 1) for request in range(len(decoded))])
        finally:
            cache.close()
        np.testing.assert_array_equal(np.concatenate(got), prompt[decoded])


@pytest.mark.parametrize("isa", ISAS[:1])
@each_cache
@pytest.mark.parametrize(
    "shape",
    [
        Shape(heads=8, kv_heads=1),
        Shape(heads=10, kv_heads=1, window=300, cap=5.0, has_sinks=True),
        Shape(heads=7, kv_heads=1, window=40),
        Shape(heads=5, kv_heads=1, k_dim=128, v_dim=32, window=600),
        Shape(heads=40, kv_heads=1, v_dim=32),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [0, 500])
def test_one_tile_of_rows_has_the_bits_of_many(
    isa: str, kv_dtype: str, shape: Shape, first: int
) -> None:
    # rows of up to eight tiles may share a task, over up to four partitions here
    seq = sequence(shape, 800, 3)
    options = {"isa": isa, "kv_dtype": kv_dtype}
    chunk = max(1, 32 // shape.heads)
    together, alone = (Cache(shape, [seq], **options) for _ in range(2))  # type: ignore[arg-type]
    try:
        for cache in (together, alone):
            cache.write_all(0, first)
        (rows,) = together.run([(0, 290)])
        alone.write_all(0, first + 290)
        for start in range(0, 290 - chunk, 7 * chunk):
            alone.num_computed[0] = first + start
            (some,) = alone.run([(0, chunk)])
            np.testing.assert_array_equal(some, rows[start : start + chunk])
    finally:
        together.close()
        alone.close()


@each_isa
@pytest.mark.parametrize("dtype", [ElementType.BF16, ElementType.A8])
@pytest.mark.parametrize("v_dim", [32, 40, 64, 96, 128])
def test_a_prepared_output_has_the_bits_of_a_separate_step(
    isa: str, dtype: ElementType, v_dim: int
) -> None:
    shape = Shape(k_dim=64, v_dim=v_dim)
    seq = sequence(shape, 40, 0)
    (plain,) = attend(shape, [seq], [[(0, 40)]], isa=isa)
    (fused,) = attend(shape, [seq], [[(0, 40)]], isa=isa, out_dtype=dtype)
    with plan_rig(isa) as rig:
        source = rig.buffer(plain.shape[1])
        out = rig.buffer(plain.shape[1], dtype=dtype)
        rig.emit(Op.PREPARE, [source], [out], i=[dtype])
        rig.build()
        (expected,) = rig.run([(source, plain)], out, num_generated=0)
    np.testing.assert_array_equal(fused, expected)


@each_isa
@each_cache
def test_large_scores_do_not_overflow(isa: str, kv_dtype: str) -> None:
    shape = Shape(heads=1, kv_heads=1, k_dim=16, v_dim=16)
    base = sequence(shape, 300, 0)
    seq = Tokens(base.q * 300, base.k * 300, base.v)
    (got,) = attend(shape, [seq], [[(0, 300)]], isa=isa, kv_dtype=kv_dtype)
    assert np.isfinite(got).all()
    assert np.abs(got).max() <= np.abs(seq.v).max() * 1.01


@each_isa
@each_cache
def test_nan_of_one_request_stays_with_it(isa: str, kv_dtype: str) -> None:
    shape = Shape()
    good, bad = sequence(shape, 50, 0), sequence(shape, 50, 1)
    bad.k[20], bad.v[20] = np.nan, np.nan
    got = attend(shape, [good, bad], [[(1, 50), (0, 50)]], isa=isa, kv_dtype=kv_dtype)
    (alone,) = attend(shape, [good], [[(0, 50)]], isa=isa, kv_dtype=kv_dtype)
    np.testing.assert_array_equal(got[0], alone)
    assert np.isnan(got[1][20:]).all()
