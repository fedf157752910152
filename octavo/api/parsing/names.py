"""The names of parsers: vLLM's, and those of plug-ins.

Runs in: API process. Owns: which name is which definition. Knows nothing of: requests, texts.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping
from typing import TypeVar

from octavo.api.parsing.definition import ReasoningFormat, ToolFormat, WholeReplyFormat
from octavo.api.reasoning_parsers import tags
from octavo.api.tool_parsers import pythonic
from octavo.api.tool_parsers.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from octavo.api.tool_parsers.glm import GLM
from octavo.api.tool_parsers.harmony import HARMONY
from octavo.api.tool_parsers.hermes import HERMES, LONGCAT
from octavo.api.tool_parsers.json_lists import FUNCTOOLS, GRANITE, INTERNLM, TOOL_CALLS_TAGS
from octavo.api.tool_parsers.kimi_k2 import KIMI_K2
from octavo.api.tool_parsers.llama3_json import LLAMA3_JSON
from octavo.api.tool_parsers.minimax_m2 import MINIMAX_M2
from octavo.api.tool_parsers.mistral import MISTRAL
from octavo.api.tool_parsers.qwen2_5_coder import QWEN2_5_CODER
from octavo.api.tool_parsers.qwen3_coder import QWEN3_CODER, SEED_OSS
from octavo.errors import ConfigError
from octavo.wording import first_line, shown

ToolDefinition = ToolFormat | WholeReplyFormat
ReasoningDefinition = ReasoningFormat | WholeReplyFormat
_Definition = TypeVar("_Definition")

_tool_parsers: dict[str, ToolDefinition] = {
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "glm45": GLM,
    "glm47": GLM,
    "granite": GRANITE,
    "granite4": HERMES,
    "hermes": HERMES,
    "hunyuan_a13b": TOOL_CALLS_TAGS,
    "internlm": INTERNLM,
    "jamba": TOOL_CALLS_TAGS,
    "kimi_k2": KIMI_K2,
    "lfm2": pythonic.LFM2,
    "llama3_json": LLAMA3_JSON,
    "llama4_json": LLAMA3_JSON,
    "llama4_pythonic": pythonic.LLAMA4_PYTHONIC,
    "longcat": LONGCAT,
    "minimax_m2": MINIMAX_M2,
    "mistral": MISTRAL,
    "olmo3": pythonic.OLMO3,
    "openai": HARMONY,
    "phi4_mini_json": FUNCTOOLS,
    "pythonic": pythonic.PYTHONIC,
    "qwen2_5_coder": QWEN2_5_CODER,
    "qwen3_coder": QWEN3_CODER,
    "qwen3_json": HERMES,
    "qwen3_xml": QWEN3_CODER,
    "seed_oss": SEED_OSS,
    "step3p5": QWEN3_CODER,
}
_reasoning_parsers: dict[str, ReasoningDefinition] = {
    "deepseek_r1": tags.DEEPSEEK_R1,
    "deepseek_v3": tags.DEEPSEEK_V3,
    "glm45": tags.QWEN3,
    "glm47": tags.QWEN3,
    "granite": tags.GRANITE,
    "kimi_k2": tags.QWEN3,
    "mimo": tags.QWEN3,
    "minimax_m2": tags.ALWAYS_THINK,
    "mistral": tags.MISTRAL,
    "nemotron_v3": tags.QWEN3,
    "olmo3": tags.DEEPSEEK_R1,
    "openai_gptoss": HARMONY,
    "qwen3": tags.QWEN3,
    "seed_oss": tags.SEED_OSS,
    "step3p5": tags.ALWAYS_THINK,
    "think": tags.THINK_TAGS,
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
