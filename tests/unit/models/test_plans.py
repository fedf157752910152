"""The plan of every architecture: no bit depends on fusion, on shared memory, on batch mates or on
chunks, also where prompts are longer than the model's windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import numpy as np
import pytest

from octavo.models.registry import ARCHITECTURES
from octavo.ops.ggml_type import GGMLType
from octavo.ops.plan import Plan, PlanOptions
from octavo.ops.program import Op
from octavo.sampling_params import SamplingParams
from tests.fakes.tiny_models import TINY_MODELS, tiny_model_tensors
from tests.fakes.worker_rig import Generated, WorkerRig, native_backend

KINDS = [
    (GGMLType.F32, "float32"),
    (GGMLType.BF16, "auto"),
    (GGMLType.Q8_0, "auto"),
    (GGMLType.Q4_K, "auto"),
]
LENGTHS = [1, 19, 45, 70]  # tokens of prompts; windows are 20
SCORED = SamplingParams(temperature=1.0, seed=11, logprobs=2, prompt_logprobs=1)

MakeRig = Callable[..., WorkerRig]


@pytest.fixture
def make_rig() -> Iterator[MakeRig]:
    rigs: list[WorkerRig] = []

    def make(architecture: str, kind: GGMLType, dtype: str, **options: object) -> WorkerRig:
        rigs.append(
            WorkerRig(
                TINY_MODELS[architecture],
                tiny_model_tensors(architecture, kind),
                architecture=architecture,
                dtype=dtype,
                make_backend=partial(native_backend, **options),  # type: ignore[arg-type]
            )
        )
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def prompt(length: int) -> list[int]:
    return np.random.default_rng(length).integers(0, 96, length).tolist()


def alone(rig: WorkerRig, length: int) -> Generated:
    rig.add("alone", prompt(length), SCORED)
    got = rig.generate("alone", 4)
    rig.finish("alone")
    return got


def in_company(rig: WorkerRig, schedule: Random) -> list[Generated]:
    """All prompts at once, in random chunks and random steps."""
    names = [f"{length}" for length in LENGTHS]
    for name, length in zip(names, LENGTHS, strict=True):
        rig.add(name, prompt(length), SCORED)
    while unfinished := [name for name in names if len(rig.generated(name).token_ids) < 4]:
        schedule.shuffle(unfinished)
        taking_part = unfinished[: schedule.randint(1, len(unfinished))]
        rig.step({n: min(schedule.randint(1, 30), rig.num_left(n)) for n in taking_part})
    return [rig.generated(name) for name in names]


def test_there_is_a_tiny_model_of_every_architecture() -> None:
    assert set(TINY_MODELS) == set(ARCHITECTURES)


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
@pytest.mark.parametrize("architecture", TINY_MODELS)
def test_a_row_has_the_same_bits_alone_and_in_company(
    make_rig: MakeRig, architecture: str, kind: GGMLType, dtype: str
) -> None:
    rig = make_rig(architecture, kind, dtype)
    expected = [alone(rig, length) for length in LENGTHS]
    assert expected[0].logprobs != expected[1].logprobs
    assert in_company(rig, Random(int(kind))) == expected


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
@pytest.mark.parametrize("architecture", TINY_MODELS)
def test_fusion_and_shared_memory_change_no_bit(
    make_rig: MakeRig, architecture: str, kind: GGMLType, dtype: str
) -> None:
    expected = alone(make_rig(architecture, kind, dtype), 45)
    for is_fused, is_arena_shared in ((False, True), (True, False), (False, False)):
        options = PlanOptions(is_fused=is_fused, is_arena_shared=is_arena_shared)
        assert alone(make_rig(architecture, kind, dtype, options=options), 45) == expected


def test_head_norms_leave_rotation_and_cache_write_one_instruction(make_rig: MakeRig) -> None:
    ops = operations(make_rig("Qwen3ForCausalLM", GGMLType.Q8_0, "auto"))
    layer = [Op.RMS_NORM, Op.LINEAR, Op.RMS_NORM, Op.RMS_NORM, Op.ROPE_KV, Op.ATTENTION, Op.LINEAR]
    assert ops[1:11] == [*layer, Op.RMS_NORM, Op.LINEAR_ACT_MUL, Op.LINEAR]


def test_a_norm_after_attention_is_followed_by_one_that_adds_and_prepares(
    make_rig: MakeRig,
) -> None:
    ops = operations(make_rig("Gemma3ForCausalLM", GGMLType.Q8_0, "auto"))
    attention = [Op.LINEAR, Op.RMS_NORM, Op.RMS_NORM, Op.ROPE_KV, Op.ATTENTION, Op.LINEAR]
    mlp = [Op.LINEAR_ACT_MUL, Op.LINEAR]
    # the second of each pair of norms adds the first one's output to the residual
    pair = [Op.RMS_NORM, Op.RMS_NORM]
    assert ops[1:14] == [Op.RMS_NORM, *attention, *pair, *mlp, *pair]


def operations(rig: WorkerRig) -> list[Op]:
    network = rig.worker.network
    assert isinstance(network, Plan)
    return [instruction.op for instruction in network.program.forward]
