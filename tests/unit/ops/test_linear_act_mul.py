"""A gate, what it is for and their product in one instruction: the bits of the two apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from octavo.errors import StartupError
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import Activation
from octavo.ops.library import available_isas
from octavo.ops.program import ElementType, Op, Operand
from tests.fakes.memory_checkpoint import random_tensor
from tests.fakes.plan_rig import PlanRig, plan_rig

F32 = npt.NDArray[np.float32]
each_isa = pytest.mark.parametrize("isa", available_isas())
READ = {GGMLType.F32: ElementType.F32, GGMLType.BF16: ElementType.BF16}
#: kinds of gate and up, and what reads their product
MIXES = [
    (GGMLType.Q4_1, GGMLType.Q4_1, ElementType.A8),
    (GGMLType.Q6_K, GGMLType.Q8_0, ElementType.A8),
    (GGMLType.Q5_0, GGMLType.Q5_K, ElementType.BF16),
    (GGMLType.BF16, GGMLType.BF16, ElementType.BF16),
    (GGMLType.BF16, GGMLType.BF16, ElementType.A8),
    (GGMLType.F32, GGMLType.F32, ElementType.A8),
    (GGMLType.Q4_0, GGMLType.Q4_0, ElementType.F32),
]


def normal(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pack(rig: PlanRig, n: int, k: int, kind: GGMLType) -> int:
    tensor = random_tensor("w", (n, k), kind, np.random.default_rng(int(kind) + n))
    rig.weights.append(rig.library.pack_weight(rig.pool, tensor, kind))
    return len(rig.weights) - 1


class Both:
    """One instruction beside the two that it stands for, on one input."""

    def __init__(
        self,
        rig: PlanRig,
        n: int,
        mix: tuple[GGMLType, GGMLType, ElementType],
        act: Activation,
        *,
        has_bias: bool,
    ) -> None:
        k, (first, second, dtype) = 256, mix
        self.rig = rig
        self.source, prepared = rig.buffer(k), rig.buffer(k, dtype=READ.get(first, ElementType.A8))
        weights = [pack(rig, n, k, first), pack(rig, n, k, second)]
        vectors = [rig.vector(normal(n, seed=s)) if has_bias else None for s in (1, 2)]
        gate, up, scratch = rig.buffer(n), rig.buffer(n), (rig.buffer(n), rig.buffer(n))
        self.apart, self.together = (rig.buffer(n, dtype=dtype) for _ in range(2))
        read: Operand = prepared
        if first == GGMLType.F32:
            read = self.source
        else:
            rig.emit(Op.PREPARE, [self.source], [prepared], i=[READ.get(first, ElementType.A8)])
        rig.emit(Op.LINEAR, [read], [gate, up], weights=weights, vectors=vectors)
        rig.emit(Op.ACT_MUL, [gate, up], [self.apart], i=[act, 0, dtype])
        rig.emit(
            Op.LINEAR_ACT_MUL,
            [read],
            [self.together, *scratch],
            weights=weights,
            vectors=vectors,
            i=[act, 0, dtype],
        )
        rig.build()

    def check(self, x: F32, num_generated: int) -> None:
        apart, together = self.rig.run(
            [(self.source, x)], self.apart, self.together, num_generated=num_generated
        )
        assert np.abs(apart[np.isfinite(apart)]).max() > 0
        np.testing.assert_array_equal(together.view(np.int32), apart.view(np.int32))


@each_isa
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("n", [32, 53, 96, 192, 288])
def test_one_instruction_has_the_bits_of_two(
    isa: str, mix: tuple[GGMLType, GGMLType, ElementType], n: int
) -> None:
    with plan_rig(isa, 2, max_tokens=150) as rig:
        both = Both(rig, n, mix, Activation.SILU, has_bias=n == 96)
        for rows, num_generated in ((1, 0), (1, 1), (20, 3), (63, 0), (150, 40), (150, 150)):
            both.check(normal(rows, 256, seed=rows), num_generated)


@each_isa
@pytest.mark.parametrize("n", [32, 64, 96])
def test_threads_without_items_of_their_own_take_rows(isa: str, n: int) -> None:
    with plan_rig(isa, 3, max_tokens=520) as rig:
        both = Both(rig, n, MIXES[0], Activation.SILU, has_bias=True)
        for rows in (65, 300, 520) * 5:
            both.check(normal(rows, 256, seed=rows), num_generated=0)


@each_isa
@pytest.mark.parametrize("act", list(Activation))
def test_every_function_gates(isa: str, act: Activation) -> None:
    with plan_rig(isa, 1) as rig:
        both = Both(rig, 64, MIXES[0], act, has_bias=True)
        both.check(normal(50, 256), 7)


@each_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_none_reaches_its_row_only(isa: str, bad: float) -> None:
    with plan_rig(isa, 1) as rig:
        both = Both(rig, 64, MIXES[0], Activation.SILU, has_bias=False)
        x = normal(40, 256)
        x[21, 3] = bad
        (got,) = rig.run([(both.source, x)], both.together, num_generated=10)
    assert not np.isfinite(got[21]).all()
    assert np.isfinite(np.delete(got, 21, axis=0)).all()


def test_other_shapes_are_refused() -> None:
    with plan_rig() as rig:
        source, out = rig.buffer(256, dtype=ElementType.A8), rig.buffer(64, dtype=ElementType.A8)
        factors = [rig.buffer(64), rig.buffer(96), rig.buffer(64)]
        weights = [pack(rig, n, 256, GGMLType.Q8_0) for n in (64, 96, 64)]
        for chosen, message in (
            ([0, 1], "weights have 64 and 96 outputs"),
            ([0, 1, 2], "has two weights"),
        ):
            rig.program.forward.clear()
            rig.emit(
                Op.LINEAR_ACT_MUL,
                [source],
                [out, *factors],
                weights=[weights[index] for index in chosen],
                i=[0, 0, ElementType.A8],
            )
            with pytest.raises(StartupError, match=rf"LINEAR_ACT_MUL\): {message}"):
                rig.build()
