"""`--chat-template`."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config.rules.chat_template import read_chat_template
from octavo.errors import ConfigError


def test_nothing_given_is_nothing() -> None:
    assert read_chat_template(None) is None


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text("{{ messages }}")
    assert read_chat_template(str(path)) == "{{ messages }}"


@pytest.mark.parametrize(
    "text", ["{{ messages[0].content }}", "{% for m in messages %}x{% endfor %}"]
)
def test_a_template_in_one_line_is_taken_as_it_is(text: str) -> None:
    assert read_chat_template(text) == text


@pytest.mark.parametrize("text", ["no/such/file.jinja", "chatml", ""])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a template nor a file"):
        read_chat_template(text)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="is an empty file"):
        read_chat_template(str(path))


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a UTF-8 text file"):
        read_chat_template(str(path))
