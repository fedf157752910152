"""Processors of a step, on the way through the real sample segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from octavo.ops.library import available_isas
from octavo.ops.step import Float32Array, SampleOutputArrays
from octavo.sample.logits_processor import LogitsProcessor, RequestLogitsProcessor
from octavo.sampling_params import SamplingParams
from tests.fakes.model_config import model_config
from tests.fakes.processors import Favour
from tests.fakes.sampling_bench import VOCAB, Case, sampling_bench
from tests.fakes.worker_rig import native_backend

FAVOUR = Favour(model_config())


def case(extra: dict[str, int] | None = None, **params: object) -> Case:
    given = {"temperature": 0.0, "extra_args": extra, **params}
    return Case(SamplingParams(**given), output=[5, 6])  # type: ignore[arg-type]


def drawn(
    cases: Sequence[Case], processors: Sequence[LogitsProcessor] = (FAVOUR,), isa: str | None = None
) -> SampleOutputArrays:
    logits = np.random.default_rng(0).normal(0, 3, (len(cases), VOCAB)).astype(np.float32)
    with sampling_bench(
        lambda: native_backend("float32", isa=isa), logits, processors=processors
    ) as bench:
        return bench.draw(cases)


@pytest.mark.parametrize("isa", available_isas())
def test_only_requests_that_ask_are_changed(isa: str) -> None:
    plain = drawn([case() for _ in range(70)], (), isa)
    cases = [case({"favoured_token": 9} if row % 3 == 0 else None) for row in range(70)]
    output = drawn(cases, isa=isa)
    for row in range(70):
        assert output.sampled[row] == (9 if row % 3 == 0 else plain.sampled[row])


def test_a_failure_is_that_of_its_request_alone() -> None:
    cases = [case({"favoured_token": 9}) for _ in range(40)]
    for row in (3, 35):
        cases[row] = case({"favoured_token": 9, "fails_after": 2})
    cases[4] = case()
    output = drawn(cases)
    assert np.flatnonzero(output.status).tolist() == [3, 35]
    assert set(output.status[[3, 35]]) == {SampleOutputArrays.HOOK_FAILED}
    assert {row: str(error) for row, error in output.hook_errors.items()} == {
        3: "as asked",
        35: "as asked",
    }
    others = [row for row in range(40) if row not in (3, 4, 35)]
    assert set(output.sampled[others]) == {9}


def test_foreign_code_may_even_exit() -> None:
    class Leave(LogitsProcessor):
        def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
            def process(output_token_ids: Sequence[int], logits: Float32Array) -> None:
                raise SystemExit(3)

            return None if params.extra_args is None else process

    output = drawn([case(), case({"leave": 1}), case()], [Leave(model_config())])
    assert output.status.tolist()[:3] == [
        SampleOutputArrays.OK,
        SampleOutputArrays.HOOK_FAILED,
        SampleOutputArrays.OK,
    ]


def test_processors_come_after_masks_and_before_bans_and_penalties() -> None:
    cases = [
        case({"favoured_token": 9}, allowed_token_ids=[3, 4]),  # -inf + 1000 stays -inf
        case({"favoured_token": 9}, bad_words_token_ids=[[9]]),
        case({"favoured_token": 9}, min_tokens=8, stop_token_ids=[9]),
        case({"favoured_token": 9}, logit_bias={8: 2000.0}),
    ]
    output = drawn(cases)
    assert output.sampled[0] in (3, 4)
    assert output.sampled[1] != 9
    assert output.sampled[2] != 9
    assert output.sampled[3] == 8


def test_raw_logprobs_are_those_of_the_model() -> None:
    output = drawn([case({"favoured_token": 9}, logprobs=1)])
    assert output.sampled[0] == 9
    assert output.logprob_values[0, 0] < -0.5
    assert output.logprob_ids[0, 1] != 9


def test_every_processor_has_its_say() -> None:
    class Shun(LogitsProcessor):
        def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
            def process(
                prompt: Sequence[int], output: Sequence[int], logits: Float32Array
            ) -> Float32Array:
                assert (list(prompt), list(output)) == ([1, 2], [5, 6])
                return np.where(np.arange(VOCAB) == 9, -np.inf, logits).astype(np.float32)

            return process

    output = drawn([case({"favoured_token": 9})], (FAVOUR, Shun(model_config())))
    assert output.status[0] == SampleOutputArrays.OK
    assert output.sampled[0] != 9
