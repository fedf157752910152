"""tokenizer.json and the files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from octavo.errors import ConfigError, StartupError
from octavo.tokenizer.tokenizer import load_tokenizer


def write_folder(folder: Path, decoder: Any = None, **files: object) -> str:
    """A tiny byte-level tokenizer.json that truncates and pads; further files by their stem."""
    vocab = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoder or decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>", special=True)])
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    backend.save(str(folder / "tokenizer.json"))
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return str(folder)


def test_neither_truncation_nor_padding_of_the_file_is_applied(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path))
    assert len(tokenizer.encode("abcdefgh")) == 8
    assert len(tokenizer.encode("ab")) == 2


def test_special_tokens_are_texts_or_objects_and_the_configuration_wins(tmp_path: Path) -> None:
    path = write_folder(
        tmp_path,
        special_tokens_map={"bos_token": {"content": "<s>"}, "eos_token": "<old>", "pad_token": 3},
        tokenizer_config={"eos_token": {"content": "<s>", "lstrip": False}},
    )
    tokenizer = load_tokenizer(path)
    assert tokenizer.special_tokens == {"bos_token": "<s>", "eos_token": "<s>"}
    assert tokenizer.bos_token_id == 256
    assert tokenizer.special_ids == {256}


def test_the_response_template_is_read_if_it_is_an_object(tmp_path: Path) -> None:
    path = write_folder(tmp_path, tokenizer_config={"response_template": {"fields": {}}})
    assert load_tokenizer(path).response_template == {"fields": {}}
    path = write_folder(tmp_path, tokenizer_config={"response_template": "no"})
    assert load_tokenizer(path).response_template is None


def test_chat_templates_of_all_places_with_the_newest_first(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    path = write_folder(tmp_path, tokenizer_config={"chat_template": named})
    assert load_tokenizer(path).chat_templates == {"default": "a", "tool_use": "b"}
    (tmp_path / "chat_template.json").write_text('{"chat_template": "c"}')
    assert load_tokenizer(path).chat_template == "c"
    (tmp_path / "chat_template.jinja").write_text("d \u00e9", encoding="utf-8")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("e")
    templates = load_tokenizer(path).chat_templates
    assert templates == {"default": "d \u00e9", "tool_use": "b", "rag": "e"}


def test_no_template_is_none(tmp_path: Path) -> None:
    assert load_tokenizer(write_folder(tmp_path)).chat_template is None


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("tokenizer.json", b"{", "is not a usable tokenizer"),
        ("tokenizer.json", b'{"model": {"type": "NoSuch"}}', "is not a usable tokenizer"),
        ("tokenizer_config.json", b"[", "is not valid JSON"),
        ("tokenizer_config.json", b'{"chat_template": [1]}', "without name and template"),
        ("chat_template.jinja", b"\xff", "cannot be read"),
    ],
)
def test_a_damaged_file_is_one_sentence(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    path = write_folder(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StartupError, match=expected) as caught:
        load_tokenizer(path)
    assert "\n" not in caught.value.message


def test_parts_that_do_not_work_together_are_found_at_start(tmp_path: Path) -> None:
    path = write_folder(tmp_path)
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    described["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<nope>", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(StartupError, match="failed: no entry found"):  # the library panics
        load_tokenizer(path)


def test_a_decoder_without_bytes_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="decodes tokens with WordPiece"):
        load_tokenizer(write_folder(tmp_path, decoders.WordPiece()))


def test_metaspace_decoders_are_understood(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, decoders.Metaspace(replacement="\u0120")))
    assert tokenizer.token_bytes(tokenizer.token_to_id("\u0120") or 0) == b" "
