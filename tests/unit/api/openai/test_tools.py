"""What a right list of tools is; wrong ones are in `tests/api/test_tools.py`, too."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.api.openai.tool_protocol import ToolChoiceObject, ToolName
from octavo.api.openai.tools import MAX_TOOLS, NamedChoice, checked_choice, checked_tools
from octavo.errors import InvalidParameter


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def test_tools_keep_their_order_and_know_their_field() -> None:
    schema = {"type": "object"}
    first, second = checked_tools(
        [function("a", parameters=schema, strict=True), {"function": {"name": "b"}}]
    )
    assert (first.name, first.parameters, first.strict) == ("a", schema, True)
    assert (second.name, second.parameters, second.strict) == ("b", {}, None)
    assert second.field == "tools[1].function.parameters"


@pytest.mark.parametrize("name", ["get_weather", "a", "server.tool", "mcp__x__y", "a/b:c-d", "9"])
def test_names_that_clients_use_are_taken(name: str) -> None:
    assert checked_tools([function(name)])[0].name == name


@pytest.mark.parametrize("name", ["", "a b", "a\n", '"', "<a>", "caf\u00e9", "x" * 257, 5, None])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidParameter, match="letters, digits") as caught:
        checked_tools([function("ok"), function(name)])
    assert caught.value.param == "tools[1].function.name"


def test_there_may_be_many_but_not_any_number() -> None:
    assert len(checked_tools([function(f"f{i}") for i in range(MAX_TOOLS)])) == MAX_TOOLS
    with pytest.raises(InvalidParameter, match="at most"):
        checked_tools([function(f"f{i}") for i in range(MAX_TOOLS + 1)])


def test_no_tools_are_no_choice() -> None:
    for tools in (None, []):
        assert checked_choice(None, checked_tools(tools)) == "none"
    assert checked_choice("auto", []) == "none"
    with pytest.raises(InvalidParameter, match="`tools` must be set"):
        checked_choice("required", [])


def test_a_choice_is_the_models_unless_it_is_made() -> None:
    tools = checked_tools([function("a")])
    assert checked_choice(None, tools) == "auto"
    assert checked_choice("none", tools) == "none"
    assert checked_choice("required", tools) == "required"
    named = ToolChoiceObject(function=ToolName("a"))
    assert checked_choice(named, tools) == NamedChoice("a")
    with pytest.raises(InvalidParameter, match="does not match any") as caught:
        checked_choice(ToolChoiceObject(function=ToolName("b\n")), tools)
    assert caught.value.param == "tool_choice"
    assert "b?" in caught.value.message
