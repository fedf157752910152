"""Token ids, texts and rendered chats equal transformers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    convert_gguf_tokenizer,
    get_gguf_tokenizer,
)

from octavo.envs import read_environ
from octavo.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from octavo.tokenizer.tokenizer import load_tokenizer
from octavo.weights.hub import hub_settings, locate
from tests.conformance.tokenizer_reference import REFERENCE, reference
from tests.fakes.gguf_writer import write_gguf
from tests.fakes.vocabularies import CORPUS, byte_level_metadata, sentencepiece_metadata

#: rules that both know; the others have no oracle here
SHARED = sorted(set(GGUF_PRE_TOKENIZER_SPLITS) & set(PRE_TOKENIZERS) | {"gpt-2"})


@pytest.fixture(autouse=True)
def _transformers_deprecations(recwarn: pytest.WarningsRecorder) -> None:
    """Keeps transformers' own warnings from being errors here."""


def test_the_committed_reference_is_what_transformers_makes() -> None:
    path = locate(None, hub_settings(read_environ()))
    fresh, committed = reference(path), json.loads(REFERENCE.read_text())
    assert {**fresh, "provenance": None} == {**committed, "provenance": None}


def oracle(path: str) -> Any:
    """transformers' conversion of a GGUF file's vocabulary, the library's tokenizer."""
    architecture, vocabulary, _ = get_gguf_tokenizer(path)
    return convert_gguf_tokenizer(architecture, vocabulary)[0]


@pytest.mark.parametrize("pre", SHARED)
def test_ids_of_every_shared_pre_tokenizer_are_equal(tmp_path: Path, pre: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", byte_level_metadata(pre, add_bos_token=False))
    ours, theirs = load_tokenizer(path), oracle(path)
    is_nfc = PRE_TOKENIZERS[pre].nfc  # as the original tokenizer.json; transformers leaves it out
    for text in CORPUS:
        if is_nfc:
            from unicodedata import normalize

            expected = theirs.encode(normalize("NFC", text), add_special_tokens=False).ids
        else:
            expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == expected, text


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_ids_and_texts_of_sentencepiece_vocabularies_are_equal(tmp_path: Path, family: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", sentencepiece_metadata(family))
    ours, theirs = load_tokenizer(path), oracle(path)
    for text in CORPUS:
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == theirs.encode(text, add_special_tokens=False).ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
