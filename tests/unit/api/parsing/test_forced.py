"""Demanded calls: what the grammar allows is what the parser reads."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.api.parsing.factory import ReplyParsers
from octavo.api.parsing.forced import ForcedCalls
from octavo.api.parsing.names import tool_parser
from octavo.messages.grammar import Grammar
from octavo.structured_output.structural_tag import structural_tag
from tests.fakes.canned_replies import Said, read
from tests.fakes.grammar_match import matches

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: dict[str, Any] = {"get_weather": CITY, "now": None}
OWN_FORMAT = [
    "deepseek_v3", "deepseek_v31", "granite", "hermes", "internlm", "jamba", "kimi_k2",
    "llama3_json", "longcat", "mistral", "openai", "phi4_mini_json",
    "qwen2_5_coder",
]  # fmt: skip
JSON_LIST = ["pythonic", "qwen3_coder", "glm45", "minimax_m2"]
ONE_CALL = ["kimi_k2", "openai"]


def parsers(name: str) -> ReplyParsers:
    return ReplyParsers(tool_parser(name), None)


def allows(forced: ForcedCalls, text: str) -> bool:
    tag = structural_tag(
        forced.structural_tag, "tools", prepare=lambda schema: schema, is_special=lambda _: False
    )
    return matches(Grammar("lark", tag.text), text)


def calls_of(forced: ForcedCalls, *arguments: str) -> str:
    form = forced.structural_tag["format"]
    tags = zip(form["tags"], arguments, strict=False)
    return str(form["separator"]).join(f"{tag['begin']}{text}{tag['end']}" for tag, text in tags)


@pytest.mark.parametrize("name", OWN_FORMAT + JSON_LIST)
def test_what_is_demanded_is_what_is_read(name: str) -> None:
    made = parsers(name)
    forced = made.forced(TOOLS)
    assert forced.is_own_format is (name in OWN_FORMAT)
    text = calls_of(forced, '{"city":"Paris"}')
    assert allows(forced, text)
    assert not allows(forced, calls_of(forced, '{"town":"Paris"}'))
    assert not allows(forced, "")
    for cuts in ([text], list(text)):
        said = read(made.make(TOOLS, forced=forced), cuts)
        assert said == Said("", "", [("get_weather", '{"city":"Paris"}')])


@pytest.mark.parametrize("name", [n for n in OWN_FORMAT + JSON_LIST if n not in ONE_CALL])
def test_more_calls_follow_unless_the_request_forbids_it(name: str) -> None:
    made = parsers(name)
    forced = made.forced(TOOLS)
    text = calls_of(forced, '{"city":"Paris"}', "{}")
    assert allows(forced, text)
    assert read(made.make(TOOLS, forced=forced), [text]).calls == [
        ("get_weather", '{"city":"Paris"}'),
        ("now", "{}"),
    ]
    assert not allows(made.forced(TOOLS, parallel=False), text)


def test_a_named_tool_is_the_only_one_and_called_once() -> None:
    made = parsers("hermes")
    forced = made.forced(TOOLS, name="now")
    begins = [tag["begin"] for tag in forced.structural_tag["format"]["tags"]]
    assert begins == ['<tool_call>\n{"name": "now", "arguments": ']
    assert forced.structural_tag["format"]["stop_after_first"] is True


def test_arguments_are_an_object_where_the_schema_does_not_say_so() -> None:
    forced = parsers("hermes").forced({"f": {"properties": {"a": {"type": "integer"}}}, "g": {}})
    schemas = [tag["content"]["json_schema"] for tag in forced.structural_tag["format"]["tags"]]
    assert [schema["type"] for schema in schemas] == ["object", "object"]
    assert schemas[1]["additionalProperties"] is False
