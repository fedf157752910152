"""Parsers by flags, on a model whose template tells its format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from octavo.api.parsing.pieces import ToolCallStart
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.launch.reply_parsers import make_reply_parsers
from tests.fakes.byte_tokenizer import ByteTokenizer
from tests.fakes.model_config import model_config

HERMES_TEMPLATE = '<tools></tools> <tool_call>\n{"name": "x", "arguments": {}}\n</tool_call>'
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def make(template: str | None = None, **flags: Any) -> Any:
    tokenizer: Any = ByteTokenizer()
    tokenizer.response_template = None
    model = msgspec.structs.replace(model_config(), chat_template=template)
    return make_reply_parsers(ServerConfig(**flags), model, tokenizer)


def test_without_flags_there_are_none_and_nothing_is_imported() -> None:
    assert make(HERMES_TEMPLATE) is None
    code = (
        "import sys, octavo.launch.application\n"
        "assert not [m for m in sys.modules if m.startswith('octavo.api.tool_parsers')]\n"
        "assert 'octavo.api.parsing.factory' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_auto_is_what_the_template_tells() -> None:
    parser = make(HERMES_TEMPLATE, tool_call_parser="auto").make({"f": {}})
    assert ToolCallStart(0, "f") in parser.feed(CALL)


def test_what_the_template_does_not_tell_must_be_named() -> None:
    with pytest.raises(ConfigError, match="--enable-auto-tool-choice requires --tool-call-parser"):
        make("{{ messages }}", tool_call_parser="auto", enable_auto_tool_choice=True)


def test_unknown_names_are_named() -> None:
    with pytest.raises(ConfigError, match="--tool-call-parser 'hermez' is not available"):
        make(tool_call_parser="hermez")
    with pytest.raises(ConfigError, match="--reasoning-parser 'x' is not available"):
        make(reasoning_parser="x")


def test_a_plug_in_adds_a_name(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from octavo.api.parsing.names import register_tool_parser\n"
        "from octavo.api.tool_parsers.hermes import HERMES\n"
        "register_tool_parser('of_a_test', HERMES)\n"
    )
    made = make(tool_call_parser="of_a_test", tool_parser_plugin=str(plugin))
    assert ToolCallStart(0, "f") in made.make({"f": {}}).feed(CALL)
    plugin.write_text("1 / 0")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        make(tool_call_parser="hermes", tool_parser_plugin=str(plugin))


def test_parsers_need_a_tokenizer() -> None:
    with pytest.raises(ConfigError, match="--skip-tokenizer-init"):
        make_reply_parsers(ServerConfig(reasoning_parser="qwen3"), model_config(), None)
