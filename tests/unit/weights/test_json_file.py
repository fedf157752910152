"""JSON files of checkpoints: objects, with whatever numbers people write."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import ConfigError, StartupError
from octavo.weights.json_file import read_json_object


def read(folder: Path, text: str) -> dict[str, object]:
    path = folder / "c.json"
    path.write_text(text)
    return read_json_object(str(path))


def test_numbers_keep_their_kind(tmp_path: Path) -> None:
    assert read(tmp_path, '{"a": -3, "b": 9007199254740993, "c": 0.5}') == {
        "a": -3,
        "b": 9007199254740993,
        "c": 0.5,
    }


@pytest.mark.parametrize("digits", ["1000000000000000019884624838656", "-" + "9" * 40, "1" * 5000])
def test_a_number_beyond_64_bits_is_a_float(tmp_path: Path, digits: str) -> None:
    # transformers writes the first one into tokenizer_config.json for "no limit"
    value = read(tmp_path, f'{{"model_max_length": {digits}}}')["model_max_length"]
    assert value == float(digits)
    assert isinstance(value, float)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1,}', '{"a": ' * 100_000, "\x00"])
def test_what_is_no_object_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError, match=r"c\.json is not .*; download c\.json again\."):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        read_json_object(str(tmp_path / "none.json"))
