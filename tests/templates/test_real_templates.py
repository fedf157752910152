"""Chats are rendered exactly as transformers renders them, by the templates of real models.

`make test-templates` fetches the templates (`scripts/templates.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from octavo.api.openai.tool_history import ToolCallForm, tool_call_form
from tests.conformance.template_oracle import chat_template, compare_on_random_chats, fixed_clock

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from templates import FOLDER, TOKENIZERS

__all__ = ["fixed_clock"]

SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))}


def test_the_templates_of_the_packages_are_there() -> None:
    assert set(TOKENIZERS) <= set(SOURCES)
    assert len(SOURCES) >= len(TOKENIZERS) + 71


def test_random_chats_are_rendered_as_by_transformers() -> None:
    num_taken = compare_on_random_chats(SOURCES)
    assert [name for name, count in num_taken.items() if count < 15] == []


def test_past_tool_calls_are_shown_by_templates_that_can() -> None:
    forms = {name: tool_call_form(chat_template(source).render) for name, source in SOURCES.items()}
    assert forms["DeepSeek-V3"] == ToolCallForm(as_text=True, needs_null=True)
    assert forms["llama.cpp-meetkai-functionary-medium-v3.2"] == ToolCallForm(as_text=True)
    assert forms["Qwen3"] == ToolCallForm()
