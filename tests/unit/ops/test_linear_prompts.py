"""Products for prompt tokens: in bf16 tiles, in rotated int8 or as generated ones, by level."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from octavo.errors import EngineError
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import Library, NativeWeight, ThreadPool, available_isas, load_library
from octavo.ops.plan import PlanOptions
from octavo.ops.program import ElementType, Op, Rows
from tests.fakes.bfloat16 import rounded_to_bfloat16
from tests.fakes.int8_activations import rounded_to_int8
from tests.fakes.memory_checkpoint import random_tensor
from tests.fakes.plan_rig import SEEN_APART, plan_rig
from tests.fakes.rotated_int8 import (
    POINTS,
    largest_of_groups,
    rotated,
    rotated_back,
    rotated_int8,
    spread,
    transformed,
)
from tests.unit.ops.test_linear import extreme_tensor

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
ISAS = available_isas()
KINDS = [kind for kind in GGMLType if kind != GGMLType.F16]
QUANTIZED = [kind for kind in KINDS if kind not in (GGMLType.F32, GGMLType.BF16)]
#: what quantised weights read prompts in; elsewhere as generated tokens
PROMPT_TYPES = {
    "avx512_vnni": ElementType.A8R,
    "avx512_bf16": ElementType.A8R,
    "amx": ElementType.BF16,
}
each_isa = pytest.mark.parametrize("isa", ISAS)
each_quantized_kind = pytest.mark.parametrize("kind", QUANTIZED)


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, list[ThreadPool]]]:
    """Of 1, 2 and 3 threads."""
    pools = {isa: [load_library(isa).create_pool(n) for n in (1, 2, 3)] for isa in ISAS}
    yield pools
    for of_isa in pools.values():
        for pool in of_isa:
            pool.close()


def normal(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def prompt_type(library: Library, kind: GGMLType = GGMLType.Q8_0) -> ElementType:
    return ElementType(library.input_type(kind, is_prompt=True))


def rotated_weight(library: Library, pool: ThreadPool, weight: NativeWeight) -> F64:
    """[n, K]: a weight as rotated activations find it, read by products with one of them each.

    The transform of a row of the Hadamard matrix is 64 at one place, which 127 stands for. Half a
    transform of values has each of its sums twice; a row finds the two together.
    """
    k, tail = weight.k, weight.k % POINTS
    assert tail in (0, POINTS // 2)
    rows = np.zeros((k, k), np.float32)
    rows[: k - tail, : k - tail] = np.kron(np.eye(k // POINTS), transformed(np.eye(POINTS)))
    if tail:
        rows[k - tail :, k - tail :] = transformed(np.eye(tail), tail)
    got = library.linear(pool, [weight], rows, is_prompt=True)[0].T.astype(np.float64)
    found: F64 = got * POINTS / (127 * np.float64(np.float32(POINTS) / np.float32(127)))
    last = got[:, k - tail :] * POINTS / (127 * np.float64(np.float32(tail) / np.float32(127))) / 2
    return np.hstack([found[:, : k - tail], last, last]) if tail else found


def assert_rounded(found: F64, values: F32) -> None:
    """Rotated values of a weight are whole steps, of about each 64's largest / 127, near them."""
    exact = rotated(values.astype(np.float64))
    largest = largest_of_groups(exact)
    least = spread(largest / 127, exact.shape[1])
    # sums of 16-bit lanes are rounded before, to at most a tenth of a step
    assert (np.abs(found - exact) <= 0.6 * least).all()
    # steps are up to 1 / 256 larger than that
    count = np.rint(largest_of_groups(found) / np.where(largest > 0, largest / 127, 1))
    assert count.max() <= 127
    step = spread(largest_of_groups(found) / np.maximum(count, 1), exact.shape[1])
    count_of_each = found / np.where(step > 0, step, 1)
    np.testing.assert_allclose(count_of_each, np.rint(count_of_each), rtol=0, atol=2e-3)


def assert_close(
    library: Library, pool: ThreadPool, weight: NativeWeight, got: F32, x: F32
) -> None:
    """|error| of f32 accumulation over k terms, relative to the sum of absolute products."""
    values, read_as = weight.dequantize(0, weight.n), prompt_type(library, weight.kind)
    if read_as == ElementType.BF16:
        left, right = rounded_to_bfloat16(x), rounded_to_bfloat16(values)
    elif read_as == ElementType.A8R:
        found = rotated_weight(library, pool, weight)
        assert_rounded(found, values)
        left, right = rotated_int8(x), found / POINTS
    else:
        left, right = rounded_to_int8(x), values.astype(np.float64)
    bound = np.abs(left) @ np.abs(right).T
    error = np.abs(got - left @ right.T)
    assert (error <= 4e-6 * bound + 1e-30).all(), (error / bound).max()


@each_isa
def test_a_level_says_how_it_reads_prompts(isa: str) -> None:
    library = load_library(isa)
    for kind in QUANTIZED:
        assert library.input_type(kind, is_prompt=False) == ElementType.A8
        assert prompt_type(library, kind) == PROMPT_TYPES.get(isa, ElementType.A8)
    for is_prompt in (False, True):
        assert library.input_type(GGMLType.F32, is_prompt=is_prompt) == ElementType.F32
        assert library.input_type(GGMLType.BF16, is_prompt=is_prompt) == ElementType.BF16


@each_isa
@each_quantized_kind
@pytest.mark.parametrize(("n", "k"), [(1, 256), (40, 512), (100, 1536), (576, 256)])
def test_products_are_those_of_the_rounded_values(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType, n: int, k: int
) -> None:
    library, pool = load_library(isa), pools[isa][1]
    weight = library.pack_weight(
        pool, random_tensor("w", (n, k), kind, np.random.default_rng(n + k)), kind
    )
    for rows in (1, 70, 600) if n == 40 else (70,):
        x = normal(rows, k, seed=rows)
        got = library.linear(pool, [weight], x, is_prompt=True)[0]
        assert_close(library, pool, weight, got, x)
    weight.close()


@each_isa
def test_a_weight_in_the_place_of_another_one_is_read_itself(
    pools: dict[str, list[ThreadPool]], isa: str
) -> None:
    """Threads make operands ahead, some for items that another one takes: these are never used."""
    library, n, k = load_library(isa), 384, 64
    x, kind = normal(40, k), GGMLType.Q4_1
    for seed in range(30):
        pool = pools[isa][seed % 3]
        tensor = random_tensor("w", (n, k), kind, np.random.default_rng(seed))
        weight = library.pack_weight(pool, tensor, kind)
        got = library.linear(pool, [weight], x, is_prompt=True)[0]
        assert_close(library, pool, weight, got, x)
        weight.close()


@each_isa
@pytest.mark.parametrize("kind", [kind for kind in QUANTIZED if not kind.name.endswith("K")])
@pytest.mark.parametrize("k", [32, 64, 96, 576])
def test_any_number_of_groups(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType, k: int
) -> None:
    library, pool = load_library(isa), pools[isa][0]
    weight = library.pack_weight(
        pool, random_tensor("w", (33, k), kind, np.random.default_rng(k)), kind
    )
    for rows in (1, 13, 47):
        x = normal(rows, k)
        got = library.linear(pool, [weight], x, is_prompt=True)[0]
        assert_close(library, pool, weight, got, x)
    weight.close()


@each_isa
@each_quantized_kind
def test_weights_are_rounded_to_nearest_even(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType
) -> None:
    """A row of the identity, which bf16 holds exactly, reads one column of the weight."""
    library, pool = load_library(isa), pools[isa][0]
    if prompt_type(library, kind) != ElementType.BF16:
        return  # nothing is rounded there, or other values
    n, k = 48, 256
    weight = library.pack_weight(
        pool, random_tensor("w", (n, k), kind, np.random.default_rng(3)), kind
    )
    got = library.linear(pool, [weight], np.eye(k, dtype=np.float32), is_prompt=True)[0]
    np.testing.assert_array_equal(got.T, rounded_to_bfloat16(weight.dequantize(0, n)))
    weight.close()


@each_isa
@each_quantized_kind
@pytest.mark.parametrize(("n", "k"), [(48, 512), (33, 96)])
def test_rotated_weights_have_8_bits_per_64_values(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType, n: int, k: int
) -> None:
    library, pool = load_library(isa), pools[isa][0]
    if prompt_type(library, kind) != ElementType.A8R or k % BLOCK_SHAPE[kind][0] != 0:
        return  # nothing is rotated there, or there is no such weight
    weight = library.pack_weight(
        pool, random_tensor("w", (n, k), kind, np.random.default_rng(3)), kind
    )
    found, values = rotated_weight(library, pool, weight), weight.dequantize(0, n)
    assert_rounded(found, values)
    # in all, no worse than rounding to the nearest step is on the average
    exact = rotated(values.astype(np.float64))
    step = spread(largest_of_groups(exact) / 127, exact.shape[1])
    error = rotated_back(found, k) - values
    variance = step[:, :k] ** 2 / 12 / POINTS
    variance[:, k - k % POINTS :] *= 2  # of half a transform, whose values are rounded alike
    expected = np.sqrt(variance.mean())
    assert np.sqrt((error**2).mean()) < 1.1 * expected
    weight.close()


@each_isa
@each_quantized_kind
@pytest.mark.parametrize("code_byte", [0x00, 0xFF, 0x80, 0x7F, 0x88])
def test_equal_codes_and_rows_that_rotation_gathers_in_one_value(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType, code_byte: int
) -> None:
    """The largest sums of codes there are, and groups of zeros among rows and weights."""
    library, pool, k = load_library(isa), pools[isa][0], 256
    weight = library.pack_weight(pool, extreme_tensor(kind, code_byte, 16, k), kind)
    x = np.tile(transformed(np.eye(POINTS)), (1, k // POINTS)).astype(np.float32) * 127
    x[:, 64:128] = 0
    x[3] = 0
    x[4] = 1e-39
    for rows in (1, 8, 32):
        got = library.linear(pool, [weight], x[:rows], is_prompt=True)[0]
        assert np.isfinite(got).all()
        assert_close(library, pool, weight, got, x[:rows])
    weight.close()


@each_isa
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_whatever_it_is_computed_with(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType
) -> None:
    """Number of rows, place among them, threads, segments of the call, pace of the tiles."""
    library = load_library(isa)
    k = 800 if kind in (GGMLType.BF16, GGMLType.F32) else 768
    rng = np.random.default_rng(int(kind))
    # another kind with the same input beside it, and widths that are no multiple of a tile
    other = GGMLType.Q6_K if kind in QUANTIZED else kind
    weights = [
        library.pack_weight(pools[isa][1], random_tensor("w", (n, k), stored, rng), stored)
        for n, stored in ((200, kind), (48, other), (7, kind))
    ]
    x = normal(600, k)
    try:
        library.ov_force_tile_pace(0)
        whole = library.linear(pools[isa][1], weights, x, is_prompt=True)
        for rows in (*range(1, 7), 16, 17, 31, 33, 121, 250, 600):
            library.ov_force_tile_pace(int(rows > 20))
            first = (37 * rows) % (601 - rows)
            chosen = [weights, weights[:1], weights[1:], weights[::-1]][rows % 4]
            parts = library.linear(
                pools[isa][rows % 3], chosen, x[first : first + rows], is_prompt=True
            )
            for weight, part in zip(chosen, parts, strict=True):
                expected = whole[weights.index(weight)][first : first + rows]
                np.testing.assert_array_equal(part.view(np.int32), expected.view(np.int32))
    finally:
        library.ov_force_tile_pace(-1)
    for weight in weights:
        weight.close()


@each_isa
@pytest.mark.parametrize("kind", [GGMLType.Q4_1, GGMLType.Q6_K, GGMLType.BF16])
@pytest.mark.parametrize("n", [32, 40, 100])
def test_threads_without_items_of_their_own_take_rows(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType, n: int
) -> None:
    """One to four items for three threads: each part of the rows is computed once, whoever does."""
    library, k = load_library(isa), 768
    weight = library.pack_weight(
        pools[isa][0], random_tensor("w", (n, k), kind, np.random.default_rng(n)), kind
    )
    for rows in (65, 96, 300, 520):
        x = normal(rows, k, seed=rows)
        alone = library.linear(pools[isa][0], [weight], x, is_prompt=True)[0]
        for _ in range(8):
            got = library.linear(pools[isa][2], [weight], x, is_prompt=True)[0]
            np.testing.assert_array_equal(got.view(np.int32), alone.view(np.int32))
    weight.close()


@each_isa
@each_quantized_kind
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_reaches_the_output_of_its_row_only(
    pools: dict[str, list[ThreadPool]], isa: str, kind: GGMLType, bad: float
) -> None:
    library, pool = load_library(isa), pools[isa][0]
    k = 256
    weight = library.pack_weight(
        pool, random_tensor("w", (16, k), kind, np.random.default_rng(5)), kind
    )
    x = normal(40, k)
    clean = library.linear(pool, [weight], x, is_prompt=True)[0]
    x[4, 77] = bad
    got = library.linear(pool, [weight], x, is_prompt=True)[0]
    assert not np.isfinite(got[4]).any()
    others = [row for row in range(40) if row != 4]
    np.testing.assert_array_equal(got[others], clean[others])
    weight.close()


class MixedStep:
    """A norm, products with bias and residual of two kinds, and a gated activation, on one plan."""

    def __init__(self, isa: str, threads: int, *, options: PlanOptions = SEEN_APART) -> None:
        self.isa, self.threads, self.options = isa, threads, options

    def run(self, x: F32, num_generated: int) -> list[F32]:
        """x [rows, 256], of which the first rows are generated tokens; all values made of it."""
        k, n, rows = 256, 53, len(x)
        with plan_rig(self.isa, self.threads, max_tokens=700, options=self.options) as rig:
            rng = np.random.default_rng(0)
            for shape, kind in (
                ((n, k), GGMLType.Q4_1),
                ((k, k), GGMLType.Q6_K),
                ((k, k), GGMLType.Q8_0),
            ):
                tensor: StoredTensor = random_tensor("w", shape, kind, rng)
                rig.weights.append(rig.library.pack_weight(rig.pool, tensor, kind))
            source, added = rig.buffer(k), rig.buffer(n)
            normed = rig.buffer(k, dtype=ElementType.A8)
            narrow, gate, up = rig.buffer(n), rig.buffer(k), rig.buffer(k)
            gated = rig.buffer(k, dtype=ElementType.A8)
            prepared, result, direct = rig.buffer(k, dtype=ElementType.A8), *map(rig.buffer, (n, n))
            rig.emit(
                Op.RMS_NORM,
                [source],
                [normed],
                vectors=[None],
                i=[k, 1, ElementType.A8],
                f=[1e-5, 0],
            )
            rig.emit(
                Op.LINEAR,
                [normed, added],
                [narrow],
                weights=[0],
                vectors=[rig.vector(normal(n, seed=7))],
                i=[1],
            )
            rig.emit(Op.LINEAR, [normed], [gate, up], weights=[1, 2])
            rig.emit(Op.ACT_MUL, [gate, up], [gated], i=[0, 0, ElementType.A8])
            rig.emit(Op.LINEAR, [gated], [result], weights=[0])
            rig.emit(Op.PREPARE, [source], [prepared], i=[ElementType.A8])
            rig.emit(Op.LINEAR, [prepared], [direct], weights=[0])
            rig.build()
            return rig.run(
                [(source, x), (added, normal(rows, n, seed=2))],
                *(normed, narrow, gate, up, gated, result, prepared, direct),
                num_generated=num_generated,
            )


@each_isa
def test_rows_of_a_step_are_computed_as_what_they_are(isa: str) -> None:
    """Generated rows have the bits of a step of such rows, and so have rows of prompts."""
    rows = 90
    x = normal(rows, 256)
    generated, prompts = (MixedStep(isa, 2).run(x, count) for count in (rows, 0))
    differs = any(not np.array_equal(a, b) for a, b in zip(generated, prompts, strict=True))
    assert differs == (prompt_type(load_library(isa)) != ElementType.A8)
    for count in (1, 17, 33, 89):
        mixed = MixedStep(isa, 1 + count % 3).run(x, count)
        for got, first, rest in zip(mixed, generated, prompts, strict=True):
            np.testing.assert_array_equal(got[:count], first[:count])
            np.testing.assert_array_equal(got[count:], rest[count:])


@each_isa
def test_selected_rows_have_the_bits_of_the_tokens_they_are(isa: str) -> None:
    k, n, rows = 256, 53, 60
    with plan_rig(isa, 2, max_tokens=rows, options=SEEN_APART) as rig:
        tensor = random_tensor("w", (n, k), GGMLType.Q4_1, np.random.default_rng(0))
        rig.weights.append(rig.library.pack_weight(rig.pool, tensor, GGMLType.Q4_1))
        source, product = rig.buffer(k), rig.buffer(n)
        selected, of_selected = rig.buffer(k, Rows.S), rig.buffer(n, Rows.S)
        logits = rig.buffer(n, Rows.L)
        for x, y, among in ((source, product, Rows.T), (selected, of_selected, Rows.S)):
            if among == Rows.S:
                rig.emit(Op.GATHER, [source], [selected], rows=Rows.S)
            prepared = rig.buffer(k, among, ElementType.A8)
            rig.emit(Op.PREPARE, [x], [prepared], rows=among, i=[ElementType.A8])
            rig.emit(Op.LINEAR, [prepared], [y], rows=among, weights=[0])
        rig.emit(Op.GATHER, [of_selected], [logits], rows=Rows.L)
        plan = rig.build()
        plan.write(source.buffer, normal(rows, k))
        for num_generated, chosen in ((0, [59]), (60, range(60)), (7, [0, 3, 6, 7, 20]), (7, [])):
            step = rig.step(rows, num_generated=num_generated, num_logits=len(chosen))
            step.logit_rows[: len(chosen)] = chosen
            assert plan.forward(step)
            expected = plan.read(product.buffer, rows)[list(chosen)]
            for got in (of_selected, logits):
                np.testing.assert_array_equal(plan.read(got.buffer, len(chosen)), expected)
        step = rig.step(rows, num_generated=7, num_logits=2)
        step.logit_rows[:2] = [7, 6]
        with pytest.raises(EngineError, match="a prompt's token before a generated one"):
            plan.forward(step)


@each_isa
def test_a_plan_computes_prompts_as_generated_tokens_on_request(isa: str) -> None:
    x = normal(40, 256)
    options = PlanOptions(is_fused=False, is_arena_shared=False, prompts_as_generated=True)
    expected = MixedStep(isa, 2).run(x, 40)
    for got, want in zip(MixedStep(isa, 2, options=options).run(x, 10), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@each_isa
def test_prepared_rows_are_read_back_in_their_form(isa: str) -> None:
    x = normal(20, 256)
    *_, prepared, _ = MixedStep(isa, 1).run(x, 8)
    np.testing.assert_array_equal(prepared[:8], rounded_to_int8(x[:8]).astype(np.float32))
    read_as = prompt_type(load_library(isa))
    if read_as == ElementType.BF16:
        np.testing.assert_array_equal(prepared[8:], rounded_to_bfloat16(x[8:]))
    elif read_as == ElementType.A8R:
        expected = rotated_back(rotated_int8(x[8:]), 256)
        np.testing.assert_allclose(prepared[8:], expected, rtol=0, atol=1e-5)
    else:
        np.testing.assert_array_equal(prepared[8:], rounded_to_int8(x[8:]).astype(np.float32))
