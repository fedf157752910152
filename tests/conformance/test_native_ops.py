"""Every native op against `ops/torch.py`: many shapes, every level, in plans without fusion.

Inputs are written into the plan, one op (or a short chain that shares the cache) is run, its output
is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch

from octavo.ops.backend import KVPlacement, KVPool, Network
from octavo.ops.dequantize import bfloat16_to_float32, float32_to_bfloat16
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import Activation, KVLayer, Ops, Tensor, Weight
from octavo.ops.library import available_isas
from octavo.ops.native import NativeBackend, NativeTensor
from octavo.ops.plan import Plan, PlanOptions
from octavo.ops.program import Rows
from octavo.ops.step import (
    Float32Array,
    LogitsHook,
    SampleOutputArrays,
    SamplingArrays,
    StepArrays,
)
from octavo.ops.torch import TorchOps
from octavo.sample.token_mask import allowed_token_mask
from octavo.worker.kv_cache import kv_cache_specs
from tests.fakes.memory_checkpoint import float_tensor, random_tensor
from tests.fakes.worker_rig import native_backend

MAX_TOKENS, MAX_REQUESTS, NUM_BLOCKS, BLOCK_SIZE = 96, 6, 64, 16
DEBUG = PlanOptions(is_fused=False, is_arena_shared=False)

Expression = Callable[..., Tensor]


def step_of(queries: list[tuple[int, int]], seed: int = 0) -> StepArrays:
    """A step of requests (tokens before, tokens now) with shuffled blocks."""
    step = StepArrays(max_tokens=MAX_TOKENS, max_requests=MAX_REQUESTS, num_groups=1, max_blocks=16)
    blocks = iter(np.random.default_rng(seed).permutation(NUM_BLOCKS).tolist())
    token = 0
    for request, (before, count) in enumerate(queries):
        length = before + count
        table = [next(blocks) for _ in range(-(-length // BLOCK_SIZE))]
        step.block_tables[0, request, : len(table)] = table
        step.seq_lens[request] = length
        for position in range(before, length):
            slot = table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
            step.positions[token], step.slot_mapping[0, token] = position, slot
            token += 1
        step.query_start[request + 1] = token
    step.num_tokens, step.num_requests = token, len(queries)
    return step


class Pair:
    """The same expression on both backends."""

    def __init__(self, isa: str, dtype: str = "float32", cache_dtype: str = "auto") -> None:
        self.isa = isa
        self.native: NativeBackend = native_backend(
            dtype, isa=isa, cache_dtype=cache_dtype, options=DEBUG
        )
        self.torch = TorchOps("cpu", "float32", self.native.kv_dtype)
        self._plans: list[Plan] = []

    def close(self) -> None:
        for plan in self._plans:
            plan.close()
        self.native.close()

    def run(
        self,
        expression: Expression,
        inputs: list[np.ndarray],
        steps: list[StepArrays],
        *,
        kv_layers: tuple[KVLayer, ...] = (),
        rows: Rows = Rows.T,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(native, torch) output of `expression(ops, *inputs)` in the last of the steps.

        Inputs have the rows of all steps one after the other.
        """
        handles: list[NativeTensor] = []
        outputs: list[NativeTensor] = []

        def forward() -> Tensor:
            for values in inputs:
                handle = self.native.ops.input(rows, values.shape[1])
                assert isinstance(handle, NativeTensor)
                handles.append(handle)
            output = expression(self.native.ops, *handles)
            assert isinstance(output, NativeTensor)
            outputs.append(output)
            return output

        network = Network(forward, lambda hidden: None, 96, kv_layers)
        plan = self.native.compile(network, max_tokens=MAX_TOKENS, max_requests=MAX_REQUESTS)
        self._plans.append(plan)
        pool = kv_pool(kv_layers, self.native.kv_dtype)
        plan.allocate_kv(pool)
        self.torch.allocate_kv(pool)
        first = 0
        for step in steps:
            last = first + step.num_tokens
            parts = [np.ascontiguousarray(values[first:last]) for values in inputs]
            for handle, part in zip(handles, parts, strict=True):
                plan.write(handle.buffer, part)
            assert plan.forward(step)
            self.torch.begin_step(step)
            expected = expression(self.torch, *(torch.from_numpy(part) for part in parts))
            first = last
        assert isinstance(expected, torch.Tensor)
        made = plan.read(outputs[0].buffer, len(expected))
        columns = slice(outputs[0].col, outputs[0].col + outputs[0].cols)
        return made[:, columns], expected.numpy()


def kv_pool(layers: tuple[KVLayer, ...], dtype: str) -> KVPool:
    offset, placements = 0, []
    for layer, spec in zip(layers, kv_cache_specs(layers, dtype), strict=True):
        placements.append(KVPlacement(layer, 0, offset))
        offset += BLOCK_SIZE * spec.bytes_per_token()
    return KVPool(NUM_BLOCKS, BLOCK_SIZE, max(offset, 64), placements)


@pytest.fixture(params=available_isas())
def make_pair(request: pytest.FixtureRequest) -> Iterator[Callable[..., Pair]]:
    pairs: list[Pair] = []

    def make(dtype: str = "float32", cache_dtype: str = "auto") -> Pair:
        pairs.append(Pair(request.param, dtype, cache_dtype))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.close()


def normal(rows: int, cols: int, seed: int = 1, scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(0, scale, (rows, cols))
    return values.astype(np.float32)


def vector(ops: Ops, n: int, seed: int = 5, mean: float = 1.0) -> Weight:
    values = np.random.default_rng(seed).normal(mean, 0.3, n).astype(np.float32)
    return ops.pack_vector(float_tensor("v", values))


def check(pair: tuple[np.ndarray, np.ndarray], bound: float) -> None:
    """Largest difference relative to the largest expected value."""
    made, expected = pair
    assert made.shape == expected.shape
    maximum = float(np.abs(made - expected).max() / np.abs(expected).max())
    print(f"largest relative difference {maximum:.2e} (bound {bound:.0e})")
    assert maximum <= bound


ELEMENTWISE: dict[str, tuple[int, Expression]] = {
    "add": (2, lambda ops, x, y: ops.add(x, y)),
    "mul": (2, lambda ops, x, y: ops.mul(x, y)),
    "scale": (1, lambda ops, x: ops.scale(x, 0.37)),
    "soft_cap": (1, lambda ops, x: ops.soft_cap(x, 2.5)),
    "split": (1, lambda ops, x: ops.add(*ops.split(x, [48, 48]))),
    **{f"act {kind.name}": (1, lambda ops, x, k=kind: ops.act(x, k)) for kind in Activation},
    **{
        f"act_mul {kind.name}": (2, lambda ops, x, y, k=kind: ops.act_mul(x, y, k))
        for kind in Activation
    },
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("num_tokens", [1, 33])
def test_elementwise(make_pair: Callable[..., Pair], name: str, num_tokens: int) -> None:
    count, expression = ELEMENTWISE[name]
    inputs = [normal(num_tokens, 96, seed, scale=3.0) for seed in range(count)]
    check(make_pair().run(expression, inputs, [step_of([(0, num_tokens)])]), 3e-7)


@pytest.mark.parametrize("num_tokens", [1, 33])
@pytest.mark.parametrize(("cols", "num_heads"), [(576, 1), (96, 1), (192, 3), (40, 1)])
def test_rms_norm(
    make_pair: Callable[..., Pair], num_tokens: int, cols: int, num_heads: int
) -> None:
    def expression(ops: Ops, x: Tensor) -> Tensor:
        weight = vector(ops, cols // num_heads)
        return ops.rms_norm(x, weight, eps=1e-5, offset=0.5, num_heads=num_heads)

    inputs = [normal(num_tokens, cols, scale=4.0)]
    check(make_pair().run(expression, inputs, [step_of([(0, num_tokens)])]), 1e-6)


@pytest.mark.parametrize("has_weight", [True, False])
def test_layer_norm(make_pair: Callable[..., Pair], has_weight: bool) -> None:
    def expression(ops: Ops, x: Tensor) -> Tensor:
        weight = vector(ops, 96) if has_weight else None
        bias = vector(ops, 96, seed=6, mean=0.0) if has_weight else None
        return ops.layer_norm(x, weight, bias, eps=1e-5)

    inputs = [normal(20, 96, scale=4.0) + 2]
    check(make_pair().run(expression, inputs, [step_of([(0, 20)])]), 1e-6)


@pytest.mark.parametrize(
    ("num_heads", "head_dim", "rotary_dim", "scaling"),
    [(9, 64, 64, 1.0), (3, 64, 32, 1.0), (2, 128, 128, 1.2), (1, 80, 80, 1.0), (4, 8, 8, 1.0)],
)
def test_rope(
    make_pair: Callable[..., Pair], num_heads: int, head_dim: int, rotary_dim: int, scaling: float
) -> None:
    def expression(ops: Ops, x: Tensor) -> Tensor:
        frequencies = (10000.0 ** -np.linspace(0, 1, rotary_dim // 2)).astype(np.float32)
        return ops.rope(
            x,
            ops.constant(frequencies),
            num_heads=num_heads,
            head_dim=head_dim,
            rotary_dim=rotary_dim,
            scaling=scaling,
        )

    inputs = [normal(40, num_heads * head_dim)]
    check(make_pair().run(expression, inputs, [step_of([(200, 40)])]), 1e-6)


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16])
@pytest.mark.parametrize("num_tokens", [1, 7, 40])
@pytest.mark.parametrize(("n", "k", "has_bias"), [(576, 192, True), (33, 576, False)])
def test_float_linear(
    make_pair: Callable[..., Pair],
    kind: GGMLType,
    num_tokens: int,
    n: int,
    k: int,
    has_bias: bool,
) -> None:
    stored = random_tensor("w", (n, k), kind, np.random.default_rng(2))

    def expression(ops: Ops, x: Tensor) -> Tensor:
        bias = vector(ops, n) if has_bias else None
        return ops.linear(x, ops.pack_linear(stored), bias)

    inputs = [normal(num_tokens, k)]
    if kind == GGMLType.BF16:  # the product itself is exact in f32: round the input for both
        inputs = [bfloat16_to_float32(float32_to_bfloat16(inputs[0]))]
    check(make_pair("auto").run(expression, inputs, [step_of([(0, num_tokens)])]), 2e-6)


QUANTISED = [kind for kind in GGMLType if kind not in (GGMLType.F32, GGMLType.F16, GGMLType.BF16)]


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize("num_tokens", [1, 7, 40])
def test_quantised_linear_on_int8_activations(
    make_pair: Callable[..., Pair], kind: GGMLType, num_tokens: int
) -> None:
    """Inputs that int8 groups hold exactly: what is left is the order of f32 additions."""
    stored = random_tensor("w", (144, 512), kind, np.random.default_rng(2))
    rng = np.random.default_rng(9)
    groups = rng.integers(-127, 128, (num_tokens, 16, 32)).astype(np.float32)
    groups[:, :, 0] = 127
    scales = 2.0 ** rng.integers(-9, -3, (num_tokens, 16, 1))
    inputs = [(groups * scales).reshape(num_tokens, 512).astype(np.float32)]

    def expression(ops: Ops, x: Tensor) -> Tensor:
        return ops.linear(x, ops.pack_linear(stored))

    step = step_of([(0, num_tokens)])
    step.num_generated = num_tokens
    check(make_pair("auto").run(expression, inputs, [step]), 3e-6)


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.Q8_0, GGMLType.Q4_1, GGMLType.Q6_K])
def test_embed_and_gather(make_pair: Callable[..., Pair], kind: GGMLType) -> None:
    stored = random_tensor("w", (50, 256), kind, np.random.default_rng(2))
    step = step_of([(0, 9), (3, 20)])
    step.input_ids[:29] = np.random.default_rng(0).integers(0, 50, 29)
    step.logit_rows[:3] = [8, 28, 10]
    step.num_logits = 3

    def expression(ops: Ops) -> Tensor:
        return ops.logit_rows(ops.select_rows(ops.embed(ops.pack_linear(stored), scale=2.5)))

    check(make_pair("auto").run(expression, [], [step]), 1e-6)


#: (tokens before, tokens now) of each request of the second step; the first computes `before`
MIXES = {
    "one decode": [(17, 1)],
    "prefill": [(0, 40)],
    "chunk": [(20, 30)],
    "mixed": [(5, 1), (31, 1), (0, 17), (16, 20), (32, 1)],
}


@pytest.mark.parametrize("cache_dtype", ["float32", "bfloat16", "int8", "fp8"])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sliding_window": 12},
        {"soft_cap": 3.0},
        {"sinks": True},
        {"num_heads": 2, "num_kv_heads": 2},
        {"num_heads": 8, "num_kv_heads": 1, "k_head_dim": 48, "v_head_dim": 32},
        {"k_head_dim": 80, "v_head_dim": 80, "sliding_window": 16},
    ],
    ids=str,
)
def test_attention(
    make_pair: Callable[..., Pair], mix: str, cache_dtype: str, options: dict[str, object]
) -> None:
    sizes = {"num_heads": 6, "num_kv_heads": 2, "k_head_dim": 64, "v_head_dim": 64} | options
    num_heads, num_kv_heads = sizes["num_heads"], sizes["num_kv_heads"]
    k_dim, v_dim = sizes["k_head_dim"], sizes["v_head_dim"]
    layer = KVLayer(0, num_kv_heads, k_dim, v_dim, options.get("sliding_window"))

    def expression(ops: Ops, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ops.kv_write(k, v, layer)
        return ops.attention(
            q,
            layer,
            num_heads=num_heads,
            scale=k_dim**-0.5,
            soft_cap=options.get("soft_cap", 0.0),
            sinks=vector(ops, num_heads) if options.get("sinks") else None,
        )

    before = step_of([(0, max(n, 1)) for n, _ in MIXES[mix]])
    now = step_of(MIXES[mix])
    # both steps must use the same blocks: the longer tables are those of the second
    before.block_tables[:] = now.block_tables
    relocate(before)
    total = before.num_tokens + now.num_tokens
    inputs = [
        normal(total, num_heads * k_dim, 1, scale=2.0),
        normal(total, num_kv_heads * k_dim, 2, scale=2.0),
        normal(total, num_kv_heads * v_dim, 3),
    ]
    if cache_dtype == "bfloat16":  # what the cache rounds is rounded in all inputs
        inputs = [bfloat16_to_float32(float32_to_bfloat16(values)) for values in inputs]
    elif cache_dtype != "float32":  # codes are equal; tile registers take queries in bf16
        inputs[0] = bfloat16_to_float32(float32_to_bfloat16(inputs[0]))
    pair = make_pair("float32", cache_dtype)
    # bf16 keys and values are exact here; what is rounded is the probabilities, or their products
    # with scales of V.
    if cache_dtype == "bfloat16":
        bound = 4e-3
    else:
        bound = 1e-2 if pair.isa in ("amx", "avx512_bf16") and cache_dtype != "float32" else 3e-6
    check(pair.run(expression, inputs, [before, now], kv_layers=(layer,)), bound)


def relocate(step: StepArrays) -> None:
    """Slots of all tokens from the block tables."""
    for request in range(step.num_requests):
        tokens = slice(step.query_start[request], step.query_start[request + 1])
        positions = step.positions[tokens]
        blocks = step.block_tables[0, request][positions // BLOCK_SIZE]
        step.slot_mapping[0, tokens] = blocks * BLOCK_SIZE + positions % BLOCK_SIZE


class SamplingPair:
    """The sampling ops on the same logits, through a head that is the identity."""

    def __init__(self, isa: str, vocab_size: int, reports_processed: bool) -> None:
        self.backend = native_backend("float32", isa=isa)
        self.torch = TorchOps("cpu", "float32", "float32")
        identity = float_tensor("head", np.eye(vocab_size, dtype=np.float32))
        heads = {id(ops): ops.pack_linear(identity) for ops in (self.backend.ops, self.torch)}
        self.inputs: list[NativeTensor] = []

        def sample(ops: Ops, hidden: Tensor) -> None:
            logits = ops.lm_head(hidden, heads[id(ops)])
            if not reports_processed:
                ops.logprobs(logits, processed=False)
            logits = ops.penalize(ops.logits_hook(ops.mask(logits)))
            if reports_processed:
                ops.logprobs(logits, processed=True)
            ops.sample(logits)

        def forward() -> Tensor:
            handle = self.backend.ops.input(Rows.L, vocab_size)
            assert isinstance(handle, NativeTensor)
            self.inputs.append(handle)
            return handle

        self.sample_ops = sample
        network = Network(forward, partial(sample, self.backend.ops), vocab_size, ())
        self.plan = self.backend.compile(network, max_tokens=MAX_TOKENS, max_requests=MAX_TOKENS)
        self.plan.allocate_kv(kv_pool((), "float32"))

    def run(
        self, logits: np.ndarray, sampling: SamplingArrays, max_logprobs: int
    ) -> tuple[SampleOutputArrays, SampleOutputArrays]:
        outputs = []
        for is_native in (True, False):
            step = StepArrays(
                max_tokens=MAX_TOKENS, max_requests=MAX_TOKENS, num_groups=1, max_blocks=1
            )
            step.num_logits = step.num_tokens = len(logits)
            output = SampleOutputArrays(MAX_TOKENS)
            output.reserve_logprobs(len(logits), max_logprobs)
            if is_native:
                self.plan.write(self.inputs[0].buffer, logits)
                assert self.plan.sample(step, sampling, output)
            else:
                self.torch.begin_step(step)
                self.torch.begin_sample(sampling, output)
                self.sample_ops(self.torch, torch.from_numpy(logits))
                self.torch.end_sample()
            outputs.append(output)
        return outputs[0], outputs[1]

    def close(self) -> None:
        self.plan.close()
        self.backend.close()


def lower_one_id_per_row(first_row: int, logits: Float32Array) -> None:
    rows = np.arange(len(logits))
    logits[rows, (first_row + rows) * 3 % logits.shape[1]] -= 2


@pytest.mark.parametrize("hook", [None, lower_one_id_per_row])
@pytest.mark.parametrize("reports_processed", [False, True])
@pytest.mark.parametrize("isa", available_isas())
def test_sampling_draws_and_reports_the_same(
    isa: str, reports_processed: bool, hook: LogitsHook | None
) -> None:
    """Random parameters in every row, in more rows than one chunk holds."""
    vocab_size, rows = 203, 80
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 2.5, (rows, vocab_size)).astype(np.float32)
    sampling = SamplingArrays(MAX_TOKENS)
    sampling.temperature[:rows] = rng.choice([0, 0.3, 1, 2], rows)
    sampling.top_p[:rows] = rng.choice([1, 0.9, 0.3], rows)
    sampling.min_p[:rows] = rng.choice([0, 0.05, 0.4], rows)
    sampling.top_k[:rows] = rng.choice([0, 1, 5, 50], rows)
    sampling.seed[:rows] = rng.integers(0, 2**63, rows)
    sampling.output_index[:rows] = rng.integers(0, 1000, rows)
    sampling.num_logprobs[:rows] = rng.choice([-1, 0, 4], rows)
    sampling.target[:rows] = np.where(rng.random(rows) < 0.2, rng.integers(0, 203, rows), -1)
    sampling.uses_penalties = sampling.uses_bias = sampling.uses_masks = True
    sampling.repetition_penalty[:rows] = rng.choice([1, 1.3, 0.8], rows)
    sampling.presence_penalty[:rows] = rng.choice([0, 1.5], rows)
    sampling.frequency_penalty[:rows] = rng.choice([0, -0.5, 0.7], rows)
    seen = [rng.permutation(vocab_size)[: rng.integers(0, 20)] for _ in range(rows)]
    sampling.seen_offsets[1 : rows + 1] = np.cumsum([len(ids) for ids in seen])
    sampling.seen_ids = np.concatenate(seen).astype(np.int32)
    sampling.seen_counts = rng.integers(0, 4, len(sampling.seen_ids)).astype(np.int32)
    biased = [rng.permutation(vocab_size)[: rng.integers(0, 4)] for _ in range(rows)]
    sampling.bias_offsets[1 : rows + 1] = np.cumsum([len(ids) for ids in biased])
    sampling.bias_ids = np.concatenate(biased).astype(np.int32)
    sampling.bias_values = rng.choice([-np.inf, 2.0], len(sampling.bias_ids)).astype(np.float32)
    sampling.mask_row[:rows] = rng.choice([-1, 0, 1], rows)
    sampling.masks = np.stack(
        [allowed_token_mask(rng.permutation(vocab_size)[:n].tolist(), vocab_size) for n in (60, 9)]
    )
    sampling.logits_hook = hook
    pair = SamplingPair(isa, vocab_size, reports_processed)
    native, expected = pair.run(logits, sampling, max_logprobs=4)
    pair.close()
    assert native.status[:rows].tolist() == expected.status[:rows].tolist()
    assert native.sampled[:rows].tolist() == expected.sampled[:rows].tolist()
    for row in np.flatnonzero(sampling.num_logprobs[:rows] >= 0):
        columns = slice(0, sampling.num_logprobs[row] + 1)
        finite = np.isfinite(expected.logprob_values[row, columns])
        np.testing.assert_allclose(
            native.logprob_values[row, columns][finite],
            expected.logprob_values[row, columns][finite],
            atol=2e-5,
        )
        ids = native.logprob_ids[row, columns][finite]
        assert ids.tolist() == expected.logprob_ids[row, columns][finite].tolist()
        ranks = native.logprob_ranks[row, columns][finite]
        assert ranks.tolist() == expected.logprob_ranks[row, columns][finite].tolist()


EDGES: dict[str, dict[str, float]] = {
    "half of equals": {"top_p": 0.5},
    "the least share": {"top_p": 1e-9},
    "nearly all": {"top_p": 1 - 2**-24},
    "ties at the last place": {"top_k": 10},
    "more than there are": {"top_k": 10_000},
    "the best and its equals": {"min_p": 1.0},
    "one of the best and its equals": {"min_p": 1.0, "top_k": 1},
    "half of the ties at the last place": {"top_k": 10, "top_p": 0.5},
    "least temperature": {"temperature": 0.01},
    "least temperature and ties": {"temperature": 0.01, "top_p": 0.5},
    "largest temperature": {"temperature": 2.0, "min_p": 0.9, "top_k": 3},
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("isa", available_isas())
def test_what_is_left_to_draw_from_is_the_same_at_the_edges(isa: str, edge: str) -> None:
    """Equal logits, one best, two levels, banned ids; many draws of each, with what they came from
    reported."""
    vocab_size, per_kind = 64, 20
    rng = np.random.default_rng(1)
    one_best, levels = np.zeros((2, per_kind, vocab_size), np.float32)
    one_best[:, 17] = 30
    levels[:] = rng.permutation(np.repeat([0.0, -1.0], vocab_size // 2))
    equal = np.full((per_kind, vocab_size), -3, np.float32)
    logits = np.concatenate([equal, one_best, levels, equal])
    rows = len(logits)
    sampling = SamplingArrays(MAX_TOKENS)
    options = {"temperature": 1.0} | EDGES[edge]
    for name, value in options.items():
        getattr(sampling, name)[:rows] = value
    sampling.seed[:rows] = rng.integers(0, 2**63, rows)
    sampling.num_logprobs[:rows] = 12
    sampling.uses_bias = True  # the last rows may draw from eight ids
    banned = np.setdiff1d(np.arange(vocab_size), np.arange(3, 64, 8)).astype(np.int32)
    counts = np.where(np.arange(rows) < 3 * per_kind, 0, len(banned))
    sampling.bias_offsets[1 : rows + 1] = np.cumsum(counts)
    sampling.bias_ids = np.tile(banned, per_kind)
    sampling.bias_values = np.full(len(sampling.bias_ids), -np.inf, np.float32)
    pair = SamplingPair(isa, vocab_size, reports_processed=True)
    native, expected = pair.run(logits, sampling, max_logprobs=12)
    pair.close()
    assert native.status[:rows].tolist() == [0] * rows
    assert native.sampled[:rows].tolist() == expected.sampled[:rows].tolist()
    np.testing.assert_allclose(native.logprob_values, expected.logprob_values, atol=2e-6)
    is_left = np.isfinite(expected.logprob_values)
    assert native.logprob_ids[is_left].tolist() == expected.logprob_ids[is_left].tolist()


@pytest.mark.parametrize("isa", available_isas())
def test_rows_that_cannot_be_sampled_are_marked(isa: str) -> None:
    pair = SamplingPair(isa, 64, reports_processed=False)
    sampling = SamplingArrays(MAX_TOKENS)
    # the identity head would spread what is not a number: banned through biases instead
    sampling.uses_bias = True
    sampling.bias_offsets[1:5] = [0, 1, 65, 66]
    sampling.bias_ids = np.array([7, *range(64), 9], np.int32)
    sampling.bias_values = np.array([np.nan, *[-np.inf] * 64, np.inf], np.float32)
    native, expected = pair.run(normal(4, 64), sampling, max_logprobs=-1)
    pair.close()
    assert native.status[:4].tolist() == expected.status[:4].tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize("isa", available_isas())
def test_rows_whose_hook_raises_fail_and_the_step_goes_on(isa: str) -> None:
    def hook(first_row: int, logits: Float32Array) -> None:
        raise ValueError("no")

    pair = SamplingPair(isa, 64, reports_processed=False)
    sampling = SamplingArrays(MAX_TOKENS)
    sampling.logits_hook = hook
    for output in pair.run(normal(40, 64), sampling, max_logprobs=-1):
        assert set(output.status[:40]) == {SampleOutputArrays.HOOK_FAILED}
        assert all(isinstance(e, ValueError) for e in output.hook_errors.values())
        assert output.hook_errors
    pair.close()
