"""What a chat template may do, and what it is told. Equality with transformers is tested in
`test_tokenizer.py`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from octavo.errors import ConfigError, InvalidParameter
from octavo.tokenizer.chat_template import MAX_TEMPLATE_CHARACTERS, ChatTemplate

USER = {"role": "user", "content": "hi"}


def test_the_templates_own_words_reach_the_client() -> None:
    template = ChatTemplate("{{ raise_exception('Roles must alternate!') }}")
    with pytest.raises(InvalidParameter, match="Roles must alternate!") as caught:
        template.render([USER])
    assert caught.value.param == "messages"


def test_the_clock_is_read_at_each_rendering() -> None:
    template = ChatTemplate("{{ strftime_now('%d %B %Y') }}", clock=lambda: datetime(2026, 2, 3))
    assert template.render([USER]) == "03 February 2026"


def test_tools_choose_the_template_of_that_name() -> None:
    template = ChatTemplate({"default": "plain", "tool_use": "tools"})
    assert template.render([USER]) == "plain"
    assert template.render([USER], tools=[{"type": "function"}]) == "tools"
    assert ChatTemplate("{{ tools | length }}").render([USER], tools=[{}, {}]) == "2"


def test_named_templates_without_a_default_are_one_sentence() -> None:
    with pytest.raises(InvalidParameter, match=r"named a, b but no default.*--chat-template"):
        ChatTemplate({"b": "", "a": ""}).render([USER])


def test_messages_are_not_changed() -> None:
    messages: list[dict[str, Any]] = [
        USER,
        {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning": "r"},
    ]
    before = repr(messages)
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    template.render(messages, add_generation_prompt=False, continue_final_message=True)
    assert repr(messages) == before


@pytest.mark.parametrize("name", ["self", "messages_", "template", "variables", "kwargs"])
def test_variables_may_have_any_name(name: str) -> None:
    template = ChatTemplate("{{ " + (name if name != "self" else "messages[0].role") + " }}")
    text = template.render([{"role": "7", "content": "x"}], **{name: 7})
    assert text == "7"


def test_a_template_too_long_to_compile_is_refused() -> None:
    template = ChatTemplate("{{ x }}" * (MAX_TEMPLATE_CHARACTERS // 7 + 1))
    with pytest.raises(InvalidParameter, match="are compiled"):
        template.render([{"role": "user", "content": "x"}])


def test_a_failure_inside_a_template_is_one_line() -> None:
    template = ChatTemplate("{{ raise_exception('one\\ntwo') }}")
    with pytest.raises(InvalidParameter, match=r"messages: one$"):
        template.render([{"role": "user", "content": "x"}])


def test_a_syntax_error_is_found_at_start_and_names_its_line() -> None:
    template = ChatTemplate("ok\n{% if %}")
    with pytest.raises(ConfigError, match="syntax error in line 2"):
        template.check()
    with pytest.raises(InvalidParameter, match="syntax error in line 2"):
        template.render([USER])


def test_exclusive_arguments_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="Cannot set both") as caught:
        ChatTemplate("").render([USER], continue_final_message=True)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{% for i in range(99999) %}{{ m() }}{% endfor %}{% endmacro %}{{ m() }}",
        "{{ range(10**9) | list }}",
    ],
)
def test_loops_end_soon(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(InvalidParameter):
        ChatTemplate(source).render([USER])
    assert time.monotonic() - start < 5


def test_the_loop_budget_is_per_rendering() -> None:
    template = ChatTemplate("{% for i in range(400000) %}{% endfor %}done")
    assert [template.render([USER]) for _ in range(4)] == ["done"] * 4


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.format.__globals__.os }}",
        "{{ dict.__class__.__mro__ }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% import 'os' as os %}",
        "{% include '/etc/passwd' %}",
        "{% set ns = namespace() %}{% set ns.__x__ = 1 %}{{ ns.__x__ }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(InvalidParameter):
        ChatTemplate(source).render([USER])
