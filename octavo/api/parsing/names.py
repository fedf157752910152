"""The names of parsers: vLLM's, and those of plug-ins.

Runs in: API process. Owns: which name is which definition. Knows nothing of: requests, texts.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping
from typing import TypeVar

from octavo.api.parsing.definition import ReasoningFormat, ToolFormat, WholeReplyFormat
from octavo.api.reasoning_parsers.think_tags import DEEPSEEK_R1, QWEN3, THINK_TAGS
from octavo.api.tool_parsers.hermes import HERMES
from octavo.errors import ConfigError
from octavo.wording import first_line, shown

ToolDefinition = ToolFormat | WholeReplyFormat
ReasoningDefinition = ReasoningFormat | WholeReplyFormat
_Definition = TypeVar("_Definition")

_tool_parsers: dict[str, ToolDefinition] = {
    "hermes": HERMES,
}
_reasoning_parsers: dict[str, ReasoningDefinition] = {
    "deepseek_r1": DEEPSEEK_R1,
    "qwen3": QWEN3,
    "think": THINK_TAGS,
}


def register_tool_parser(name: str, definition: ToolDefinition) -> None:
    """For plug-ins: `--tool-call-parser NAME` means `definition` from now on."""
    _tool_parsers[name] = definition


def register_reasoning_parser(name: str, definition: ReasoningDefinition) -> None:
    """For plug-ins: `--reasoning-parser NAME` means `definition` from now on."""
    _reasoning_parsers[name] = definition


def tool_parser(name: str) -> ToolDefinition:
    """
    Raises:
        ConfigError: there is no such parser; the sentence says which there are.
    """
    return _found(name, _tool_parsers, "--tool-call-parser")


def reasoning_parser(name: str) -> ReasoningDefinition:
    """
    Raises:
        ConfigError: there is no such parser; the sentence says which there are.
    """
    return _found(name, _reasoning_parsers, "--reasoning-parser")


def _found(name: str, definitions: Mapping[str, _Definition], flag: str) -> _Definition:
    definition = definitions.get(name)
    if definition is not None:
        return definition
    near = difflib.get_close_matches(name, definitions, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ConfigError(
        f"{flag} {shown(name)} is not available; there are "
        f"{', '.join(sorted({*definitions, 'auto', 'hf'}))}.{hint}"
    )


def load_plugin(path: str, flag: str) -> None:
    """Runs a Python file, which registers parsers.

    Raises:
        ConfigError: it cannot be run; the sentence says why.
    """
    spec = importlib.util.spec_from_file_location("octavo_parser_plugin", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{flag} {path} is not a Python file; give the path of a .py file.")
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:
        raise ConfigError(
            f"{flag} {path} failed: {type(error).__name__}: {first_line(error)}"
        ) from error
