from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.assembler import ChoiceAssembler, ContentDelta, Finish, WholeChoice
from octavo.outputs import CompletionOutput, Logprob

PIECES = st.lists(st.tuples(st.text(max_size=4), st.lists(st.integers(0, 99), max_size=3)))


def outputs_of(pieces: list[tuple[str, list[int]]], reason: str | None) -> list[CompletionOutput]:
    outputs = [
        CompletionOutput(0, text, ids, logprobs=[{i: Logprob(-1.0, 1, str(i))} for i in ids])
        for text, ids in pieces
    ]
    outputs.append(CompletionOutput(0, "", [], finish_reason=reason))
    return outputs


def merged(outputs: list[CompletionOutput]) -> CompletionOutput:
    return CompletionOutput(
        0,
        "".join(o.text for o in outputs),
        [i for o in outputs for i in o.token_ids],
        logprobs=[p for o in outputs for p in o.logprobs or ()],
        finish_reason=outputs[-1].finish_reason,
        stop_reason=outputs[-1].stop_reason,
    )


@given(pieces=PIECES)
def test_the_whole_is_the_sum_of_any_stream(pieces: list[tuple[str, list[int]]]) -> None:
    outputs = outputs_of(pieces, "stop")
    streamed, at_once = WholeChoice(), WholeChoice()
    assembler, other = ChoiceAssembler(), ChoiceAssembler()
    for output in outputs:
        for event in assembler.push(output):
            streamed.add(event)
    for event in other.push(merged(outputs)):
        at_once.add(event)
    for name in ("text", "token_ids", "logprobs", "finish_reason", "stop_reason"):
        assert getattr(streamed, name) == getattr(at_once, name)
    assert assembler.num_tokens == other.num_tokens == len(streamed.token_ids)


@given(pieces=PIECES)
def test_finish_is_the_last_event_exactly_once(pieces: list[tuple[str, list[int]]]) -> None:
    assembler = ChoiceAssembler()
    events = [e for output in outputs_of(pieces, "length") for e in assembler.push(output)]
    assert events[-1] == Finish("length", None)
    assert sum(isinstance(event, Finish) for event in events) == 1
    assert assembler.is_finished


def test_output_after_the_end_is_our_mistake() -> None:
    assembler = ChoiceAssembler()
    assembler.push(CompletionOutput(0, "", [], finish_reason="stop"))
    with pytest.raises(AssertionError):
        assembler.push(CompletionOutput(0, "more", [1]))


def test_text_and_finish_in_one_output_are_two_events() -> None:
    events = ChoiceAssembler().push(
        CompletionOutput(0, "a", [1], finish_reason="stop", stop_reason="b")
    )
    assert events == [ContentDelta("a", [1]), Finish("stop", "b")]
