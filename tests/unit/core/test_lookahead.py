from __future__ import annotations

import pytest

from octavo.core.lookahead import looks_back
from octavo.sampling_params import SamplingParams
from tests.fakes.core_run import engine, scheduled
from tests.fakes.fake_executor import solo_output
from tests.fakes.requests import core_request


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"bad_words_token_ids": [[1], [2, 3]]},
        {"min_tokens": 1},
    ],
)
def test_sampling_that_depends_on_earlier_tokens_looks_back(params: dict[str, object]) -> None:
    assert looks_back(SamplingParams(**params))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0, "seed": 3, "top_p": 0.5},
        {"stop_token_ids": [1, 2]},
        {"bad_words_token_ids": [[1], [2]]},
        {"logit_bias": {1: 2.0}},
        {"logprobs": 3, "prompt_logprobs": 1},
    ],
)
def test_anything_else_does_not(params: dict[str, object]) -> None:
    assert not looks_back(SamplingParams(**params))  # type: ignore[arg-type]


def test_who_looks_back_sits_out_until_its_token_is_known() -> None:
    run = engine(depth=2)
    run.add(core_request("back", repetition_penalty=1.5), core_request("ahead"))
    run.step()
    assert [list(step.num_scheduled_tokens) for step in run.executor.steps] == [
        ["back", "ahead"],
        ["ahead"],
    ]
    assert list(scheduled(run.step())) == ["back", "ahead"]
    run.finish()
    assert run.tokens("back") == run.tokens("ahead") == solo_output([1, 2, 3], 5)
