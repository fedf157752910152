"""Names, choosing by the model's files, and what goes together."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.api.parsing.factory import ModelTexts, ReplyParsers, reply_parsers
from octavo.api.parsing.names import load_plugin, reasoning_parser, tool_parser
from octavo.errors import ConfigError
from tests.fakes.canned_replies import TOOLS, Said, read

HERMES_TEMPLATE = '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}'
HERMES_CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
RESPONSE_TEMPLATE = {
    "start_anchor": "<s>",
    "fields": {
        "tool_calls": {
            "open": "<c>",
            "close": "</c>",
            "content": "json",
            "repeats": True,
            "transform": {"function": {"name": "{content.n}", "arguments": "{content.a}"}},
        }
    },
}


def made(
    tool: str | None = None, reasoning: str | None = None, model: ModelTexts | None = None
) -> ReplyParsers:
    return reply_parsers(tool_name=tool, reasoning_name=reasoning, model=model or ModelTexts())


def test_names_give_parsers() -> None:
    said = read(made("hermes", "qwen3").make(TOOLS), [f"a</think>{HERMES_CALL}"])
    assert said == Said("", "a", [("now", "{}")])


def test_an_unknown_name_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"--tool-call-parser 'xlam' is not available.*hermes"):
        made("xlam")
    with pytest.raises(ConfigError, match="Did you mean hermes"):
        made("hermse")
    with pytest.raises(ConfigError, match="--reasoning-parser 'inkling' is not available"):
        made(None, "inkling")


def test_auto_is_what_the_chat_template_tells() -> None:
    model = ModelTexts(chat_template=HERMES_TEMPLATE)
    assert read(made("auto", "auto", model).make(TOOLS), [HERMES_CALL]).calls == [("now", "{}")]
    with pytest.raises(ConfigError, match="chat template does not tell"):
        made("auto")
    assert read(made(None, "auto").make(), ["a"]) == Said("a", "", [])


def test_a_response_template_comes_before_the_chat_template() -> None:
    model = ModelTexts(chat_template=HERMES_TEMPLATE, response_template=RESPONSE_TEMPLATE)
    for name in ("auto", "hf"):
        said = read(made(name, None, model).make(TOOLS), ['<c>{"n": "now", "a": {}}</c>'])
        assert said.calls == [("now", "{}")]
    with pytest.raises(ConfigError, match=r"--reasoning-parser hf.*no response_template with such"):
        made("hf", "hf", model)
    with pytest.raises(ConfigError, match="--tool-call-parser hf"):
        made("hf")


def test_a_format_for_both_goes_with_itself_only() -> None:
    assert made("openai", "openai_gptoss")
    assert made("openai")
    assert made(None, "openai_gptoss")
    with pytest.raises(ConfigError, match="openai reads tool calls and reasoning in one"):
        made("openai", "qwen3")


def test_a_plugin_registers_parsers_by_name(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from octavo.api.parsing.call_parts import Envelope\n"
        "from octavo.api.parsing.definition import ReasoningFormat, ToolFormat\n"
        "from octavo.api.parsing.names import register_reasoning_parser, register_tool_parser\n"
        "register_tool_parser('mine', ToolFormat(begins=('@',), call=(Envelope(),)))\n"
        "register_reasoning_parser('mine', ReasoningFormat(begin=('((',), end=('))',)))\n"
    )
    load_plugin(str(plugin), "--tool-parser-plugin")
    said = read(made("mine", "mine").make(TOOLS), ['((a))b@{"name": "now", "arguments": {}}'])
    assert said == Said("b", "a", [("now", "{}")])


def test_a_plugin_that_fails_is_named(tmp_path: Path) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"--tool-parser-plugin .*broken.py failed: ZeroDivision"):
        load_plugin(str(plugin), "--tool-parser-plugin")
    with pytest.raises(ConfigError, match="failed: FileNotFoundError"):
        load_plugin(str(tmp_path / "none.py"), "--tool-parser-plugin")
    with pytest.raises(ConfigError, match="is not a Python file"):
        load_plugin(str(tmp_path / "none.txt"), "--tool-parser-plugin")


def test_every_name_of_a_template_is_a_parser() -> None:
    from octavo.api.parsing import detection

    for name, _ in detection._TOOL_SIGNS:
        assert tool_parser(name)
    for name, _ in detection._REASONING_SIGNS:
        assert reasoning_parser(name)
