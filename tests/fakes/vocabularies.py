"""Small real vocabularies for tests, trained on the corpus of tests/data/tokenizer."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.fakes.gguf_writer import F32, I32, Typed

CORPUS: list[str] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "tokenizer" / "corpus.json").read_text()
)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@cache
def _byte_level_model() -> tuple[list[str], list[str]]:
    """Tokens in order of their ids, and merges, of a byte-level BPE of 900 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [" ".join(merge) for merge in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].get), merges


def byte_level_metadata(pre: str | None = "smollm", **changes: object) -> dict[str, object]:
    """tokenizer.ggml.* of a byte-level vocabulary with two control tokens and a user-defined one;
    `changes` are further keys without the prefix, None removes."""
    tokens, merges = _byte_level_model()
    marked = ["<|bos|>", "<|endoftext|>", "<think>"]
    types = [CONTROL, CONTROL, USER_DEFINED] + [NORMAL] * len(tokens)
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*marked, *tokens],
        "tokenizer.ggml.token_type": Typed(I32, types, is_array=True),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        **{f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    }
    return {key: value for key, value in metadata.items() if value is not None}


@cache
def _sentencepiece_tokens() -> list[str]:
    """Pieces of a SentencePiece-like BPE, most frequent merge first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", behavior="merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=700, limit_alphabet=300, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    ordered: list[str] = sorted(vocab, key=vocab.get)
    return sorted(ordered, key=lambda token: len(token) == 1)  # merged pieces first, then letters


def sentencepiece_metadata(family: str = "llama", **changes: object) -> dict[str, object]:
    """tokenizer.ggml.* of a SentencePiece vocabulary with byte fallback."""
    pieces = [token for token in _sentencepiece_tokens() if token.isprintable()]
    tokens = ["<unk>", "<s>", "</s>", "<turn>"]
    types = [UNKNOWN, CONTROL, CONTROL, USER_DEFINED]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types += [BYTE] * 256
    if family.startswith("gemma"):  # stores runs of spaces as spaces
        tokens += [" " * count for count in range(2, 9)]
        types += [USER_DEFINED] * 7
        pieces = [piece for piece in pieces if piece.strip("\u2581") or len(piece) == 1]
    pieces = [piece for piece in pieces if piece not in tokens]
    tokens += pieces
    types += [NORMAL] * len(pieces)
    scores = [0.0] * (len(tokens) - len(pieces)) + [-float(rank) for rank in range(len(pieces))]
    metadata = {
        "general.architecture": family,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": Typed(F32, scores, is_array=True),
        "tokenizer.ggml.token_type": Typed(I32, types, is_array=True),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": not family.startswith("gemma"),
        **{f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    }
    return {key: value for key, value in metadata.items() if value is not None}
