"""Which chat template serves a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.launch.chat_template import chat_template_of
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.model_config import model_config
from tests.fakes.tiny_folder import write_tiny_folder

MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def tokenizer(folder: Path, **files: str) -> Tokenizer:
    """The tiny folder's tokenizer; `files` are chat templates by name."""
    path = write_tiny_folder(folder)
    templates = [{"name": name, "template": text} for name, text in files.items()]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": templates}))
    return load_tokenizer(path)


def test_the_tokenizers_own_templates_serve(tmp_path: Path) -> None:
    own = tokenizer(tmp_path, default="{{ eos_token }}own", tool_use="tools")
    template = chat_template_of(model_config(), own)
    assert template is not None
    assert template.render(MESSAGES) == "<eos>own"
    assert template.render(MESSAGES, tools=[TOOL]) == "tools"


def test_a_given_template_comes_first_and_sees_the_special_tokens(tmp_path: Path) -> None:
    own = tokenizer(tmp_path, default="own", tool_use="tools")
    template = chat_template_of(model_config(chat_template="{{ bos_token }}given"), own)
    assert template is not None
    assert template.render(MESSAGES) == "<bos>given"
    assert template.render(MESSAGES, tools=[TOOL]) == "<bos>given"


def test_a_given_template_with_a_mistake_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chat template has a syntax error in line 1"):
        chat_template_of(model_config(chat_template="{% if %}"), tokenizer(tmp_path))


def test_a_models_own_broken_template_ends_no_start(tmp_path: Path) -> None:
    assert chat_template_of(model_config(), tokenizer(tmp_path, default="{% if %}")) is not None


def test_there_may_be_none(tmp_path: Path) -> None:
    assert chat_template_of(model_config(), tokenizer(tmp_path)) is None
    assert chat_template_of(model_config(chat_template="x"), None) is None
