from __future__ import annotations

from octavo.core.request import Request
from octavo.core.stop_check import check_stop
from octavo.messages.engine import REPETITION_DETECTED, FinishReason
from octavo.sampling_params import RepetitionDetectionParams
from tests.fakes.requests import core_request

EOS, STOP_ID, PLAIN = 2, 7, 50


def stop_of(output: list[int], *, max_model_len: int = 100, **fields: object) -> object:
    message = core_request(
        prompt=[1, 1],
        eos_token_ids=[EOS],
        **{"max_tokens": 4, "stop_token_ids": [STOP_ID], **fields},  # type: ignore[arg-type]
    )
    request = Request(message, max_model_len=max_model_len, index=0, queued_s=0.0)
    request.all_token_ids += output
    return check_stop(request)


def test_an_ordinary_token_goes_on() -> None:
    assert stop_of([PLAIN]) is None


def test_end_of_sequence_stops_without_a_stop_reason() -> None:
    assert stop_of([PLAIN, EOS]) == (FinishReason.STOP, None)


def test_a_stop_token_stops_and_is_named() -> None:
    assert stop_of([STOP_ID]) == (FinishReason.STOP, STOP_ID)


def test_end_of_sequence_comes_before_a_stop_token_of_the_same_id() -> None:
    assert stop_of([EOS], stop_token_ids=[EOS]) == (FinishReason.STOP, None)


def test_end_of_sequence_comes_before_length() -> None:
    assert stop_of([PLAIN, PLAIN, PLAIN, EOS]) == (FinishReason.STOP, None)


def test_ignore_eos_goes_on_but_a_stop_token_still_stops() -> None:
    assert stop_of([EOS], ignore_eos=True) is None
    assert stop_of([STOP_ID], ignore_eos=True) == (FinishReason.STOP, STOP_ID)


def test_ignore_eos_lets_a_user_name_that_token_himself() -> None:
    stop = stop_of([EOS], ignore_eos=True, stop_token_ids=[EOS])
    assert stop == (FinishReason.STOP, EOS)


def test_max_tokens_is_length() -> None:
    assert stop_of([PLAIN] * 3) is None
    assert stop_of([PLAIN] * 4) == (FinishReason.LENGTH, None)


def test_the_window_is_length() -> None:
    assert stop_of([PLAIN, PLAIN], max_model_len=4) == (FinishReason.LENGTH, None)


def test_fewer_than_min_tokens_are_not_stopped_by_tokens() -> None:
    assert stop_of([EOS], min_tokens=2) is None
    assert stop_of([STOP_ID], min_tokens=2) is None
    assert stop_of([PLAIN, EOS], min_tokens=2) == (FinishReason.STOP, None)


def test_the_window_ends_even_a_request_below_min_tokens() -> None:
    assert stop_of([PLAIN], min_tokens=3, max_model_len=3) == (FinishReason.LENGTH, None)


TWICE = RepetitionDetectionParams(max_pattern_size=2, min_count=2)


def test_a_repetition_stops_and_is_named() -> None:
    stop = stop_of([PLAIN, PLAIN], repetition_detection=TWICE)
    assert stop == (FinishReason.REPETITION, REPETITION_DETECTED)
    assert stop_of([PLAIN, 51], repetition_detection=TWICE) is None


def test_the_prompt_is_no_part_of_a_repetition() -> None:
    assert stop_of([1], repetition_detection=TWICE) is None


def test_length_comes_before_repetition_and_min_tokens_before_both() -> None:
    stop = stop_of([PLAIN] * 4, repetition_detection=TWICE)
    assert stop == (FinishReason.LENGTH, None)
    assert stop_of([PLAIN] * 2, repetition_detection=TWICE, min_tokens=3) is None
