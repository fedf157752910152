"""Grammars are checked in front of the core."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.engine import StructuredOutputsConfig
from octavo.errors import InvalidParameter
from octavo.frontend.grammar_checker import GrammarChecker
from octavo.messages.grammar import Vocabulary
from octavo.sampling_params import StructuredOutputsParams
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer
from tests.fakes.fake_grammars import FakeBackend


def checker(**options: Any) -> tuple[GrammarChecker, list[FakeBackend]]:
    opened: list[FakeBackend] = []

    def open_backend(vocabulary: Vocabulary) -> FakeBackend:
        opened.append(FakeBackend(vocabulary))
        return opened[-1]

    settings: dict[str, Any] = {"tokenizer": ByteTokenizer(), "eos_token_ids": [EOS], **options}
    made = GrammarChecker(
        StructuredOutputsConfig(),
        settings["tokenizer"],
        vocab_size=VOCAB_SIZE,
        eos_token_ids=settings["eos_token_ids"],
        open_backend=open_backend,
    )
    return made, opened


def regex(text: str) -> StructuredOutputsParams:
    return StructuredOutputsParams(regex=text)


def test_nothing_is_opened_before_the_first_grammar() -> None:
    made, opened = checker()
    assert opened == []
    made.check(regex("a"))
    made.check(regex("b"))
    assert len(opened) == 1
    assert opened[0].vocabulary is not None
    assert b"\xff<bos>" in opened[0].vocabulary.token_bytes


def test_a_grammar_is_checked_once() -> None:
    made, opened = checker()
    assert made.check(regex("a")) == made.check(regex("a"))
    assert opened[0].checked == ["a"]


def test_a_wrong_one_is_refused_each_time() -> None:
    made, opened = checker()
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="it is bad"):
            made.check(regex("bad"))
    assert len(opened[0].checked) == 2


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.frontend.grammar_checker.MAX_REMEMBERED_CHARACTERS", 10)
    made, opened = checker()
    for text in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb"):
        made.check(regex(text))
    assert opened[0].checked == ["aaaa", "bbbb", "cccc", "bbbb"]


def test_the_vocabulary_is_the_models() -> None:
    assert checker()[0].vocabulary().vocab_size == VOCAB_SIZE


@pytest.mark.parametrize(
    ("options", "words"),
    [({"tokenizer": None}, "needs a tokenizer"), ({"eos_token_ids": []}, "names none")],
)
def test_without_tokenizer_or_end_there_are_no_grammars(options: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words) as caught:
        checker(**options)[0].check(regex("a"))
    assert caught.value.param == "structured_outputs"
