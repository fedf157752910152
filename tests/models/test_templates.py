"""Chats are rendered exactly as transformers renders them, by the templates in real GGUF files."""

from __future__ import annotations

import sys
from pathlib import Path

from octavo.tokenizer.tokenizer import load_tokenizer
from tests.conformance.template_oracle import compare_on_random_chats, fixed_clock

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from models import MODELS, path_of

__all__ = ["fixed_clock"]


def test_random_chats_are_rendered_as_by_transformers() -> None:
    named = {name: load_tokenizer(str(path_of(name))).chat_templates for name in MODELS}
    sources = {name: templates for name, templates in named.items() if templates}
    assert set(sources) == {"qwen2.5-coder-0.5b"}  # the Gemma file is a base model
    num_taken = compare_on_random_chats(sources)
    assert min(num_taken.values()) > 50
