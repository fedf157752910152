from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.assembler import (
    ChoiceAssembler,
    ContentDelta,
    Event,
    Finish,
    Parsing,
    ReasoningDelta,
    ToolCallDelta,
    WholeChoice,
)
from octavo.outputs import CompletionOutput, Logprob
from tests.fakes.fake_parser import FakeParser

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


def parsing(first_id: str | None = None, **options: Any) -> Parsing:
    names = iter("abcdefghij" * 100)
    return Parsing(FakeParser(first_id=first_id), lambda: f"id-{next(names)}", **options)


def events_of(text: str, parsing: Parsing, reason: str = "stop") -> list[Event]:
    """Of the text as one output per character, each with its code as token id."""
    outputs = [CompletionOutput(0, c, [ord(c)]) for c in text]
    outputs.append(CompletionOutput(0, "", [], finish_reason=reason))
    assembler = ChoiceAssembler(parsing)
    return [event for output in outputs for event in assembler.push(output)]


def summed(events: list[Event]) -> dict[str, Any]:
    whole = WholeChoice()
    for event in events:
        whole.add(event)
    calls = [(call.name, call.id, call.arguments) for call in whole.tool_calls]
    names = ("text", "reasoning", "token_ids", "logprobs", "finish_reason", "stop_reason")
    return {"calls": calls, **{name: getattr(whole, name) for name in names}}


PARSED_PIECES = st.lists(
    st.tuples(st.text("ab[]{}:", max_size=6), st.lists(st.integers(0, 99), max_size=3))
)


@given(pieces=PARSED_PIECES, reason=st.sampled_from(["stop", "length"]))
def test_the_whole_is_the_sum_of_any_stream_that_is_parsed(
    pieces: list[tuple[str, list[int]]], reason: str
) -> None:
    outputs = outputs_of(pieces, reason)
    streamed, at_once = ChoiceAssembler(parsing()), ChoiceAssembler(parsing())
    events = [event for output in outputs for event in streamed.push(output)]
    assert summed(events) == summed(at_once.push(merged(outputs)))
    assert streamed.num_tokens == at_once.num_tokens == sum(len(ids) for _, ids in pieces)


def test_reasoning_content_and_calls_are_events_of_their_own() -> None:
    events = events_of("[r]c{f:x}", parsing("own"))
    assert events == [
        ContentDelta("", [ord("[")]),
        ReasoningDelta("r", [ord("r")]),
        ContentDelta("", [ord("]")]),
        ContentDelta("c", [ord("c")]),
        ContentDelta("", [ord("{")]),
        ContentDelta("", [ord("f")]),
        ToolCallDelta(0, "", "f", "own", [ord(":")]),
        ToolCallDelta(0, "x", None, None, [ord("x")]),
        ContentDelta("", [ord("}")]),
        Finish("tool_calls"),
    ]


def test_tokens_of_an_output_come_once() -> None:
    output = CompletionOutput(0, "[r]c{f:x}{g:y", [1, 2], finish_reason="length")
    events = ChoiceAssembler(parsing()).push(output)
    assert [e.token_ids for e in events if not isinstance(e, Finish)] == [[1, 2]] + [[]] * 5
    assert summed(events)["calls"] == [("f", "id-a", "x"), ("g", "id-b", "y")]
    assert events[-1] == Finish("length"), "a call that was cut off is not finished"


def test_what_a_parser_held_back_comes_before_the_finish() -> None:
    assert events_of("a{b", parsing())[-2:] == [ContentDelta("{b", []), Finish("stop")]


def test_calls_too_many_are_dropped() -> None:
    events = events_of("{f:x}{g:y}c", parsing(max_tool_calls=1))
    assert summed(events)["calls"] == [("f", "id-a", "x")]
    assert summed(events)["text"] == "c"
    assert events_of("{f:x}", parsing(max_tool_calls=0))[-1] == Finish("stop")


def test_a_call_ends_with_the_reason_it_is_given() -> None:
    assert events_of("{f:x}", parsing(tool_finish_reason="stop"))[-1] == Finish("stop")
    assert events_of("[f:x]", parsing())[-1] == Finish("stop"), "there was no call"
