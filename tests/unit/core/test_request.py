from __future__ import annotations

import pytest

from octavo.core.request import Request, RequestStatus
from tests.fakes.requests import core_request


def make(max_model_len: int = 100, **fields: object) -> Request:
    message = core_request("a", [5, 6], eos_token_ids=[2], **fields)  # type: ignore[arg-type]
    return Request(message, max_model_len=max_model_len, index=3, queued_s=1.0)


def test_a_new_request_waits_and_has_computed_nothing() -> None:
    request = make()
    assert request.status is RequestStatus.WAITING
    assert not request.is_finished
    assert (request.num_tokens, request.num_output_tokens) == (2, 0)
    assert request.num_computed_tokens == 0


def test_its_tokens_are_its_own() -> None:
    message = core_request("a", [5, 6])
    request = Request(message, max_model_len=100, index=0, queued_s=0.0)
    request.all_token_ids.append(7)
    assert message.prompt_token_ids == [5, 6]
    assert request.num_output_tokens == 1


def test_it_ends_at_max_tokens_or_at_the_window() -> None:
    assert make(max_tokens=4).max_num_tokens == 6
    assert make(max_model_len=5, max_tokens=4).max_num_tokens == 5


def test_the_tokens_that_may_end_it() -> None:
    assert make(stop_token_ids=[7]).end_token_ids == {2, 7}
    assert make(stop_token_ids=[7], ignore_eos=True).end_token_ids == {7}


def test_a_request_for_prompt_logprobs_does_not_read_the_prefix_cache() -> None:
    assert make().reads_prefix_cache
    assert not make(prompt_logprobs=0).reads_prefix_cache
    assert not make(prompt_logprobs=0, skip_reading_prefix_cache=False).reads_prefix_cache
    assert not make(skip_reading_prefix_cache=True).reads_prefix_cache


def test_a_step_takes_tokens_of_the_prompt_or_generated_ones() -> None:
    request = make(max_tokens=6)
    assert [request.num_tokens_of_kind(computed) for computed in (0, 1)] == [2, 1]
    assert request.num_tokens_of_kind(2) >= 6


def test_max_tokens_is_the_front_ends_to_set() -> None:
    with pytest.raises(AssertionError, match="max_tokens"):
        make(max_tokens=None)
