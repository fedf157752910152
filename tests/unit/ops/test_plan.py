"""Plans on the native library, through a whole tiny model.

The property that matters most: a row's bits do not depend on its company, on how its prompt is cut
into steps, on threads or on fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import numpy as np
import pytest

from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import available_isas, load_library
from octavo.ops.plan import Plan, PlanOptions
from octavo.sampling_params import SamplingParams
from tests.fakes.memory_checkpoint import float_tensor
from tests.fakes.tiny_llama import TINY_LLAMA, tiny_llama_tensors
from tests.fakes.worker_rig import Generated, WorkerRig, native_backend

#: every way a matrix can be stored and computed with
KINDS = [
    (GGMLType.F32, "float32"),
    (GGMLType.BF16, "auto"),
    (GGMLType.F16, "auto"),
    (GGMLType.Q4_0, "auto"),
    (GGMLType.Q4_1, "auto"),
    (GGMLType.Q5_0, "auto"),
    (GGMLType.Q5_1, "auto"),
    (GGMLType.Q8_0, "auto"),
    (GGMLType.Q4_K, "auto"),
    (GGMLType.Q5_K, "auto"),
    (GGMLType.Q6_K, "auto"),
    (GGMLType.Q4_1, "bfloat16"),
]
SCORED = SamplingParams(temperature=1.0, seed=11, logprobs=3, prompt_logprobs=2)


@pytest.fixture
def make_rig() -> Iterator[Callable[..., WorkerRig]]:
    rigs: list[WorkerRig] = []

    def make(kind: GGMLType = GGMLType.F32, dtype: str = "float32", **options: object) -> WorkerRig:
        backend = partial(native_backend, **options)  # type: ignore[arg-type]
        tensors = tiny_llama_tensors(TINY_LLAMA, kind)
        rigs.append(WorkerRig(TINY_LLAMA, tensors, dtype=dtype, make_backend=backend))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def prompt(length: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, 96, length).tolist()


def alone(rig: WorkerRig, name: str, length: int, num_tokens: int) -> Generated:
    rig.add(name, prompt(length, seed=length), SCORED)
    got = rig.generate(name, num_tokens)
    rig.finish(name)
    return got


def in_company(rig: WorkerRig, lengths: list[int], num_tokens: int, schedule: Random) -> list:
    """All prompts at once, in random chunks and random steps."""
    for length in lengths:
        rig.add(f"{length}", prompt(length, seed=length), SCORED)
    while True:
        unfinished = [n for n in lengths if len(rig.generated(f"{n}").token_ids) < num_tokens]
        if not unfinished:
            return [rig.generated(f"{length}") for length in lengths]
        schedule.shuffle(unfinished)
        step, budget = {}, 100
        for length in unfinished:
            count = min(schedule.randint(1, 40), rig.num_left(f"{length}"), budget)
            if count and (not step or schedule.random() < 0.8):
                step[f"{length}"] = count
                budget -= count
        rig.step(step)


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_a_row_has_the_same_bits_alone_and_in_company(
    make_rig: Callable[..., WorkerRig], kind: GGMLType, dtype: str
) -> None:
    rig = make_rig(kind, dtype)
    lengths = [1, 5, 17, 33, 70]
    expected = [alone(rig, f"alone {length}", length, 4) for length in lengths]
    assert in_company(rig, lengths, 4, Random(int(kind))) == expected


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize(("kind", "dtype"), [KINDS[0], KINDS[1], KINDS[4], KINDS[10]])
def test_threads_and_company_change_no_bit_on_any_level(
    make_rig: Callable[..., WorkerRig], isa: str, kind: GGMLType, dtype: str
) -> None:
    one = make_rig(kind, dtype, isa=isa, num_threads=1)
    three = make_rig(kind, dtype, isa=isa, num_threads=3)
    lengths = [3, 40]
    expected = [alone(one, f"alone {length}", length, 3) for length in lengths]
    assert in_company(three, lengths, 3, Random(7)) == expected


@pytest.mark.parametrize(("kind", "dtype"), [KINDS[0], KINDS[1], KINDS[4]])
@pytest.mark.parametrize(
    "options",
    [
        PlanOptions(is_fused=False),
        PlanOptions(is_arena_shared=False),
        PlanOptions(is_fused=False, is_arena_shared=False),
    ],
)
def test_fusion_and_shared_memory_change_no_bit(
    make_rig: Callable[..., WorkerRig], kind: GGMLType, dtype: str, options: PlanOptions
) -> None:
    expected = alone(make_rig(kind, dtype), "a", 30, 4)
    assert alone(make_rig(kind, dtype, options=options), "a", 30, 4) == expected


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize(("kind", "dtype"), [KINDS[0], KINDS[1], KINDS[4], KINDS[10]])
def test_prompts_have_an_arithmetic_of_their_own_where_the_level_has_one_and_may_be_denied_it(
    make_rig: Callable[..., WorkerRig], isa: str, kind: GGMLType, dtype: str
) -> None:
    """Log-probabilities tell: of a prompt, and of a token after one that was generated."""
    library = load_library(isa)
    is_apart = (
        len({library.input_type(kind, is_prompt=is_prompt) for is_prompt in (False, True)}) > 1
    )
    found = []
    for denied in (False, True):
        options = PlanOptions(prompts_as_generated=denied)
        rig = make_rig(kind, dtype, isa=isa, options=options)
        assert {spec.tells_prompts_apart for spec in rig.worker.kv_cache_specs()} == {
            is_apart and not denied
        }
        got = alone(rig, "a", 20, 3)
        # the same tokens, but the model has generated none of them
        rig.add("all prompt", prompt(20, seed=20) + got.token_ids[:2], SCORED)
        read = rig.generate("all prompt", 1)
        found.append((got.prompt_logprobs, got.logprobs[1], read.prompt_logprobs[:20], read))
    (own, after, own_again, read), (as_generated, after_too, _, read_too) = found
    assert own_again == own
    assert (own != as_generated) is is_apart
    assert (read.logprobs != read_too.logprobs) is is_apart
    assert (after != after_too) is is_apart  # its context is of the prompt


def test_a_layer_is_eight_instructions_when_fused_and_twenty_when_not(
    make_rig: Callable[..., WorkerRig],
) -> None:
    plain = make_rig(GGMLType.Q4_1, "auto", options=PlanOptions(is_fused=False))
    fused = make_rig(GGMLType.Q4_1, "auto")
    layers = 2
    # the last layer picks rows of its input and of what was attended, which is then prepared apart
    assert len(plan_of(fused).program.forward) == 1 + layers * 8 + 3 + 2
    assert len(plan_of(plain).program.forward) == 1 + layers * 20 + 2 + 3


def test_shared_memory_is_a_fraction_of_what_unshared_needs(
    make_rig: Callable[..., WorkerRig],
) -> None:
    shared = plan_of(make_rig()).activation_bytes
    apart = plan_of(make_rig(options=PlanOptions(is_arena_shared=False))).activation_bytes
    assert shared < apart / 2


def test_values_that_are_not_numbers_fail_their_own_request_only() -> None:
    tensors = tiny_llama_tensors(TINY_LLAMA)
    values = np.frombuffer(tensors["model.embed_tokens.weight"].data, np.float32)
    values = values.reshape(96, 256).copy()
    values[50] = np.nan
    tensors["model.embed_tokens.weight"] = float_tensor("model.embed_tokens.weight", values)
    rig = WorkerRig(TINY_LLAMA, tensors)
    rig.add("healthy", [1, 2, 3])
    expected = rig.generate("healthy", 3).token_ids
    rig.finish("healthy")
    rig.add("healthy", [1, 2, 3])
    rig.add("sick", [4, 50, 6])
    rig.step({"sick": 3, "healthy": 3})
    failure = rig.generated("sick").failure
    assert failure is not None
    assert "not numbers" in failure
    assert rig.generate("healthy", 3).token_ids == expected
    rig.close()


def test_the_same_seed_draws_the_same_tokens(make_rig: Callable[..., WorkerRig]) -> None:
    rig = make_rig()
    outputs = []
    for seed in (5, 5, 6):
        name = f"{len(outputs)}"
        rig.add(name, prompt(9), SamplingParams(temperature=1.5, seed=seed))
        outputs.append(rig.generate(name, 12).token_ids)
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]


def test_timers_cover_every_instruction(make_rig: Callable[..., WorkerRig]) -> None:
    rig = make_rig()
    plan = plan_of(rig)
    plan.enable_timers(True)
    alone(rig, "a", 20, 2)
    timers = plan.timers()
    assert len(timers) == len(plan.program.forward) + len(plan.program.sample)
    assert sum(elapsed for _, elapsed in timers) > 0


def plan_of(rig: WorkerRig) -> Plan:
    network = rig.worker.network
    assert isinstance(network, Plan)
    return network
