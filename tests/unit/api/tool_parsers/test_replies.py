"""Every tool parser: what replies say, whatever their cuts."""

from __future__ import annotations

import functools
import json
import random
import sys
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.api.parsing.definition import ToolFormat
from octavo.api.parsing.factory import ReplyParsers
from octavo.api.parsing.names import tool_parser
from tests.fakes.canned_replies import TOOLS, WRITERS, Canned, Said, canned, read

PARSERS = sorted(WRITERS)
CASES = [
    pytest.param(parser, reply, id=f"{parser}-{number}")
    for parser in PARSERS
    for number, reply in enumerate(canned(parser))
]


@functools.cache
def parsers(name: str) -> ReplyParsers:
    return ReplyParsers(tool_parser(name), None)


def reading(name: str, cuts: list[str]) -> Said:
    return read(parsers(name).make(TOOLS), cuts)


def cuts_of(text: str) -> Iterator[list[str]]:
    """One character at a time, every split in two, and random pieces of 1 to 8 characters."""
    yield list(text)
    for place in range(len(text) + 1):
        yield [text[:place], text[place:]]
    rng = random.Random(0)
    for _ in range(8):
        pieces, place = [], 0
        while place < len(text):
            length = rng.randint(1, 8)
            pieces.append(text[place : place + length])
            place += length
        yield pieces


@pytest.mark.parametrize(("parser", "reply"), CASES)
def test_a_reply_says_what_its_model_meant(parser: str, reply: Canned) -> None:
    said = reading(parser, [reply.text])
    assert [(name, json.loads(arguments)) for name, arguments in said.calls] == reply.calls
    assert said.content == reply.content


@pytest.mark.parametrize(("parser", "reply"), CASES)
def test_c71_any_cuts_of_a_reply_say_the_same(parser: str, reply: Canned) -> None:
    whole = reading(parser, [reply.text])
    for cuts in cuts_of(reply.text):
        assert reading(parser, cuts) == whole, cuts


@pytest.mark.parametrize("parser", PARSERS)
def test_a_reply_that_is_cut_off_anywhere_says_the_same_in_any_cuts(parser: str) -> None:
    rng = random.Random(1)
    for reply in canned(parser):
        for place in rng.sample(range(len(reply.text)), min(12, len(reply.text))):
            text = reply.text[:place]
            assert reading(parser, list(text)) == reading(parser, [text]), text


@pytest.mark.parametrize("parser", PARSERS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_no_text_makes_a_parser_fail_and_no_cut_changes_it(
    parser: str, data: st.DataObject
) -> None:
    form = tool_parser(parser)
    marks = [*form.marks, *(form.bare if isinstance(form, ToolFormat) else ())]
    parts = st.sampled_from(
        [*marks, '{"name": "now"', '"arguments": ', "now", "get_weather", *'{}[]()<>":,=\\ \n1ax']
    )
    text = "".join(data.draw(st.lists(parts | st.text(max_size=2), max_size=16)))
    assert reading(parser, list(text)) == reading(parser, [text])


@pytest.mark.parametrize("parser", PARSERS)
def test_c70_two_calls_have_two_indices_also_where_one_cut_ends_the_first(parser: str) -> None:
    for reply in canned(parser):
        if len(reply.calls) == 2:
            # `read` sees that the indices are 0 and 1 and that no call goes on after another
            assert len(reading(parser, [reply.text]).calls) == 2


@pytest.mark.parametrize("parser", PARSERS)
def test_c73_a_long_text_comes_in_many_pieces(parser: str) -> None:
    text = WRITERS[parser]("get_weather", {"city": "word " * 300})
    reader = parsers(parser).make(TOOLS)
    times = sum(bool(reader.feed(text[n : n + 5])) for n in range(0, len(text), 5))
    assert times > 250


def begin_of(parser: str) -> str:
    form = tool_parser(parser)
    return (form.begins + form.bare if isinstance(form, ToolFormat) else form.marks)[0]


@pytest.mark.parametrize("parser", PARSERS)
def test_a_megabyte_of_one_character_is_read_at_once(parser: str) -> None:
    for character in "{<":
        reading(parser, [character * 1_000_000])
        reading(parser, [begin_of(parser) + character * 1_000_000])


def num_calls(parser: str, cuts: list[str]) -> int:
    """Calls of functions, of Python and of C, that reading takes."""
    num = 0

    def count(frame: FrameType, event: str, what: object) -> None:
        nonlocal num
        num += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        reading(parser, cuts)
    finally:
        sys.setprofile(before)
    return num


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("in_characters", [False, True])
def test_four_times_the_text_takes_about_four_times_as_much_work(
    parser: str, in_characters: bool
) -> None:
    begin = begin_of(parser)
    for unit in ("{", "<", begin):
        text = unit * (600 // len(unit))
        short, long = ([*text], [*(text * 4)]) if in_characters else ([text], [text * 4])
        assert num_calls(parser, [begin, *long]) < 6 * num_calls(parser, [begin, *short]) + 100


@pytest.mark.parametrize("parser", ["hermes", "qwen3_coder", "deepseek_v31", "mistral"])
def test_without_tools_marks_are_text(parser: str) -> None:
    text = WRITERS[parser]("now", {})
    assert read(parsers(parser).make(), [text]) == Said(text, "", [])


def test_arguments_that_are_no_json_are_passed_on_as_they_are() -> None:
    said = reading("hermes", ['<tool_call>{"name": "now", "arguments": {"a": oh}}</tool_call>.'])
    assert said == Said(".", "", [("now", '{"a": oh}}')])


def test_a_call_that_is_cut_off_keeps_what_came() -> None:
    said = reading("hermes", ['<tool_call>{"name": "now", "arguments": {"a": "b'])
    assert said.calls == [("now", '{"a": "b')]


def test_an_id_of_the_format_is_the_calls() -> None:
    parser = parsers("kimi_k2").make(TOOLS)
    start = parser.feed(WRITERS["kimi_k2"]("now", {}))[0]
    assert getattr(start, "id", None) == "functions.now:0"


def test_mistrals_calls_have_ids_that_its_templates_accept() -> None:
    parser = parsers("mistral").make(TOOLS)
    call_id = getattr(parser.feed("[TOOL_CALLS]now[ARGS]{}")[0], "id", "")
    assert len(call_id) == 9
    assert call_id.isalnum()
    parser = parsers("mistral").make(TOOLS)
    start = parser.feed("[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}")[0]
    assert getattr(start, "id", "") == "abcdefghi"


def test_values_in_tags_become_what_the_schema_asks_for() -> None:
    text = (
        "<tool_call><function=get_weather><parameter=city>\n7\n</parameter>"
        "<parameter=days>7</parameter><parameter=metric>True</parameter>"
        "<parameter=note>null</parameter><parameter=filter>{'a': None}</parameter>"
        "<parameter=hours>no</parameter><parameter=other>1</parameter></function></tool_call>"
    )
    assert json.loads(reading("qwen3_coder", [text]).calls[0][1]) == {
        "city": "7", "days": 7, "metric": True, "note": None, "filter": {"a": None},
        "hours": "no", "other": "1",
    }  # fmt: skip


def test_an_object_that_names_no_tool_of_the_request_is_content_as_it_comes() -> None:
    parser = parsers("llama3_json").make(TOOLS)
    first = read_pieces = parser.feed('{"name": "Bob", "parameters": {"a"')
    assert first
    read_pieces += parser.feed(": 1}}") + parser.finish()
    assert "".join(getattr(piece, "text", "") for piece in read_pieces) == (
        '{"name": "Bob", "parameters": {"a": 1}}'
    )
