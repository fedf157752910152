"""Vocabularies of GGUF files become tokenizers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError, OctavoError, StartupError
from octavo.tokenizer.gguf_tokenizer import split_merges
from octavo.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.gguf_writer import I32, Typed, gguf_bytes, write_gguf
from tests.fakes.vocabularies import CORPUS, byte_level_metadata, sentencepiece_metadata


def load(folder: Path, metadata: dict[str, object]) -> Tokenizer:
    return load_tokenizer(write_gguf(folder / "m.gguf", metadata))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in ids]


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_loses_nothing(tmp_path: Path, pre: str) -> None:
    tokenizer = load(tmp_path, byte_level_metadata(pre))
    for text in CORPUS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        assert decoded == text or PRE_TOKENIZERS[pre].nfc


def test_digits_are_cut_as_the_name_says(tmp_path: Path) -> None:
    merges = ["1 2", "12 3", "123 4"]
    tokens = [*"abcdefghijklmnopqrstuvwxyz0123456789", "12", "123", "1234"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
    }
    cut = {
        pre: pieces(load(tmp_path, {**metadata, "tokenizer.ggml.pre": pre}), "1234")
        for pre in ("gpt-2", "smollm", "llama-bpe", "qwen2")
    }
    assert cut == {
        "gpt-2": ["1234"],
        "smollm": ["1", "2", "3", "4"],
        "llama-bpe": ["123", "4"],
        "qwen2": ["1", "2", "3", "4"],
    }


@pytest.mark.parametrize("pre", ["of-tomorrow", None])
def test_an_unknown_pre_tokenizer_is_a_warning_and_gpt2(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pre: str | None
) -> None:
    with caplog.at_level(logging.WARNING):
        tokenizer = load(tmp_path, byte_level_metadata(pre))
    assert f"names the pre-tokenizer {pre}, which is not known" in caplog.text
    expected = load(tmp_path, byte_level_metadata("gpt-2"))
    assert all(tokenizer.encode(text) == expected.encode(text) for text in CORPUS)


@pytest.mark.parametrize(
    ("metadata", "has_bos", "has_eos"),
    [
        (byte_level_metadata("gpt-2"), False, False),
        (byte_level_metadata("gpt-2", add_bos_token=True), True, False),
        (byte_level_metadata("gpt-2", add_eos_token=True), False, True),
        (byte_level_metadata("llama-bpe"), True, False),
        (byte_level_metadata("llama-bpe", add_bos_token=False), False, False),
        (byte_level_metadata("llama-bpe", bos_token_id=None), False, False),
        (sentencepiece_metadata(), True, False),
        (sentencepiece_metadata(add_bos_token=False, add_eos_token=True), False, True),
        (sentencepiece_metadata("gemma3"), True, False),
    ],
)
def test_bos_and_eos_are_added_as_the_file_says(
    tmp_path: Path, metadata: dict[str, object], has_bos: bool, has_eos: bool
) -> None:
    tokenizer = load(tmp_path, metadata)
    plain = tokenizer.encode("hi", add_special_tokens=False)
    bos = [tokenizer.bos_token_id] if has_bos else []
    eos = [tokenizer.eos_token_id] if has_eos else []
    assert tokenizer.encode("hi") == [*bos, *plain, *eos]
    assert tokenizer.encode("") == [*bos, *eos]


def test_control_tokens_are_special_and_user_defined_ones_are_not(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, byte_level_metadata())
    assert tokenizer.encode("<|bos|>x<think>")[:1] == [0]
    assert tokenizer.encode("<|bos|>x<think>")[-1:] == [2]
    assert tokenizer.special_ids == {0, 1}
    assert tokenizer.decode([0, 2, 1]) == "<think>"


def test_bos_text_in_a_prompt_gives_a_second_bos(tmp_path: Path) -> None:
    """C79: the text is taken as written; `add_special_tokens: false` leaves one."""
    tokenizer = load(tmp_path, byte_level_metadata("llama-bpe"))
    assert tokenizer.encode("<|bos|>")[:2] == [0, 0]
    assert tokenizer.encode("<|bos|>", add_special_tokens=False) == [0]


def test_sentencepiece_marks_spaces_and_falls_back_to_bytes(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, sentencepiece_metadata())
    first = tokenizer.encode("the", add_special_tokens=False)[0]
    assert (tokenizer.id_to_token(first) or "").startswith("\u2581")
    ids = tokenizer.encode("\U0001fae0", add_special_tokens=False)
    assert "<0xF0>" in [tokenizer.id_to_token(token_id) for token_id in ids]
    assert tokenizer.decode(ids) == "\U0001fae0"


def test_gemma_has_no_prefix_space_and_keeps_runs_of_spaces(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, sentencepiece_metadata("gemma3"))
    assert tokenizer.decode(tokenizer.encode("    a  b")) == "    a  b"
    first = tokenizer.encode("the", add_special_tokens=False)[0]
    assert not (tokenizer.id_to_token(first) or "").startswith("\u2581")


def test_named_chat_templates_are_found(tmp_path: Path) -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.chat_template"] = "main"
    metadata["tokenizer.chat_templates"] = ["tool_use", "absent"]
    metadata["tokenizer.chat_template.tool_use"] = "tools"
    tokenizer = load(tmp_path, metadata)
    assert tokenizer.chat_templates == {"default": "main", "tool_use": "tools"}
    assert tokenizer.chat_template == "main"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokens": None}, "has no vocabulary"),
        ({"model": "rwkv"}, "has a vocabulary of kind 'rwkv'"),
        ({"model": None}, "has a vocabulary of kind None"),
        ({"tokens": "text"}, "tokenizer.ggml.tokens is not a list"),
        ({"merges": ["a"]}, "its vocabulary does not fit together"),
        ({"merges": ["not there"]}, "its vocabulary does not fit together"),
        ({"token_type": Typed(I32, [1, 2], is_array=True)}, "tokens but 2 types"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_one_sentence(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(StartupError, match=expected) as caught:
        load(tmp_path, byte_level_metadata(**changes))
    assert str(tmp_path / "m.gguf") in caught.value.message


def test_scores_must_match_the_tokens(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="tokens but 0 scores"):
        load(tmp_path, sentencepiece_metadata(scores=None))


def test_a_special_id_outside_the_vocabulary_means_none(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, byte_level_metadata("llama-bpe", bos_token_id=2**32 - 1))
    assert tokenizer.bos_token is None
    assert tokenizer.encode("a") == tokenizer.encode("a", add_special_tokens=False)


def test_an_absurdly_long_piece_is_refused_before_it_is_cut_in_all_ways(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"][:-1], "a" * 10**6]  # type: ignore[index]
    with pytest.raises(StartupError, match="a token has 1000000 characters"):
        load(tmp_path, metadata)


def test_tokens_listed_twice_make_a_tokenizer(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata("gemma3")
    tokens = list(metadata["tokenizer.ggml.tokens"])  # type: ignore[call-overload]
    metadata["tokenizer.ggml.tokens"] = [*tokens[:-1], tokens[-2]]
    assert load(tmp_path, metadata).encode("hello")


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_changed_bytes_never_end_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    metadata = byte_level_metadata() if kind == "byte-level" else sentencepiece_metadata()
    content = bytearray(gguf_bytes(metadata))
    place = st.one_of(st.integers(0, 400), st.integers(0, len(content)))
    for start, change in data.draw(
        st.lists(st.tuples(place, st.binary(min_size=1, max_size=4)), min_size=1, max_size=3)
    ):
        content[start : start + len(change)] = change
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    path.write_bytes(content)
    try:
        tokenizer = load_tokenizer(str(path))
        tokenizer.decode(tokenizer.encode("hello 123 \u20ac"))
    except OctavoError:
        pass  # the one kind of error there may be
    finally:
        path.unlink()


def test_a_file_without_a_vocabulary_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tokenizer"):
        load(tmp_path, {"general.architecture": "llama"})


def test_merges_are_split_at_their_space() -> None:
    assert split_merges(["a b", "\u0120 t"]) == [("a", "b"), ("\u0120", "t")]
    assert split_merges([]) == []
