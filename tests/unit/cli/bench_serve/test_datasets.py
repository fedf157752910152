"""Prompts: random ones of a given length, and those of files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.bench_serve.command import _check
from octavo.cli.bench_serve.datasets import load_samples
from octavo.cli.bench_serve.flags import make_parser
from octavo.cli.bench_serve.requests import Sample
from octavo.envs import read_environ
from octavo.errors import ConfigError
from octavo.tokenizer.tokenizer import load_tokenizer
from octavo.weights.hub import hub_settings, locate
from tests.fakes.byte_tokenizer import ByteTokenizer


class AsciiTokenizer(ByteTokenizer):
    """Without its upper half, so that random ids make texts of the same ids."""

    def __init__(self) -> None:
        super().__init__()
        self.base_vocab_size = 128
        self.special_tokens = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}

    def token_to_id(self, token: str) -> int | None:
        return {"<bos>": 0, "<eos>": 9, "<pad>": 10}.get(token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return ([1] if add_special_tokens else []) + list(text.encode())

    def decode(self, token_ids: Any, skip_special_tokens: bool = True) -> str:
        return bytes(token_ids).decode()


def options(*words: str) -> argparse.Namespace:
    made = make_parser().read([*words, "--request-id-prefix", "r-"])
    _check(made)
    return made


def load(*words: str, tokenizer: Any = None, render: Any = None) -> list[Sample]:
    return load_samples(options(*words), tokenizer or AsciiTokenizer(), render)


def test_random_prompts_have_the_length_asked_for() -> None:
    samples = load("--num-prompts", "5", "--input-len", "20", "--output-len", "7")
    assert [sample.prompt_len for sample in samples] == [19] * 5  # the tokenizer adds one
    assert [len(sample.prompt) for sample in samples] == [19] * 5
    assert {sample.output_len for sample in samples} == {7}
    assert [sample.request_id for sample in samples] == [f"r-{i}" for i in range(5)]
    assert not {"\0", "\t", "\n"} & set("".join(sample.prompt for sample in samples))


def test_random_prompts_are_vllms() -> None:
    """vLLM 0.32 makes this of seed 1, of this length, with the tokenizer of this model."""
    path = locate(None, hub_settings(read_environ({})))
    words = ("--num-prompts", "2", "--random-input-len", "48", "--seed", "1")
    first, second = load(*words, tokenizer=load_tokenizer(path))
    assert first.prompt.startswith(" imprisonment prepares nicely torque Cambodialasses")
    assert (first.prompt_len, second.prompt_len) == (48, 48)


def test_random_prompts_depend_on_the_seed_alone() -> None:
    words = ("--num-prompts", "3", "--input-len", "9")
    assert load(*words, "--seed", "1") == load(*words, "--seed", "1")
    assert load(*words, "--seed", "1") != load(*words, "--seed", "2")


def test_a_random_prefix_is_common_to_all() -> None:
    samples = load("--num-prompts", "4", "--input-len", "6", "--random-prefix-len", "8")
    assert len({sample.prompt[:8] for sample in samples}) == 1
    assert len({sample.prompt[8:] for sample in samples}) == 4
    assert {sample.prompt_len for sample in samples} == {13}


def test_lengths_vary_by_the_ratio() -> None:
    words = ("--num-prompts", "300", "--input-len", "11", "--output-len", "100")
    both = load(*words, "--random-range-ratio", "0.5")
    assert {s.prompt_len for s in both} == set(range(5, 16))
    assert 50 <= min(s.output_len for s in both) < 60 < 140 < max(s.output_len for s in both) <= 150
    apart = load(*words, "--random-range-ratio", '{"input": 0, "output": 0.1}')
    assert {s.prompt_len for s in apart} == {10}


def test_a_length_that_leaves_nothing_is_told() -> None:
    with pytest.raises(ConfigError, match="--random-input-len 1 leaves prompts without a token"):
        load("--input-len", "1")


def test_repeated_prefixes() -> None:
    lens = ("--prefix-repetition-prefix-len", "6", "--prefix-repetition-suffix-len", "4")
    words = ("--dataset-name", "prefix_repetition", "--num-prompts", "7", *lens)
    samples = load(*words, "--prefix-repetition-num-prefixes", "3", "--output-len", "2")
    assert len(samples) == 6
    assert len({sample.prompt[:6] for sample in samples}) == 3
    assert {(sample.prompt_len, sample.output_len) for sample in samples} == {(10, 2)}
    with pytest.raises(ConfigError, match="between 1 and --num-prompts"):
        load(*words, "--prefix-repetition-num-prefixes", "8")


def write(path: Path, content: Any, *, lines: bool = False) -> str:
    text = "\n".join(map(json.dumps, content)) if lines else json.dumps(content)
    path.write_text(text)
    return str(path)


def turn(prompt: str, answer: str) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": prompt}, {"from": "g", "value": answer}]}


def test_sharegpt_leaves_out_what_is_too_short_or_too_long(tmp_path: Path) -> None:
    data = [
        {"conversations": [{"value": "alone"}]},
        {},
        turn("good prompt", "good answer"),
        turn("ab", "too short a prompt"),
        turn("a good prompt", "ab"),
        turn("x" * 1100, "too long a prompt"),
        turn("x" * 1000, "y" * 1100),
    ]
    path = write(tmp_path / "share.json", data)
    words = ("--dataset-name", "sharegpt", "--dataset-path", path, "--num-prompts", "9")
    samples = load(*words, "--no-oversample")
    assert [(s.prompt, s.prompt_len, s.output_len) for s in samples] == [("good prompt", 12, 12)]
    fixed = load(*words, "--no-oversample", "--output-len", "2")
    assert {s.prompt[:6] for s in fixed} == {"good p", "a good", "x" * 6}
    assert len(load(*words)) == 9


def test_custom_prompts_in_order_or_shuffled(tmp_path: Path) -> None:
    rows = [{"prompt": str(index) * 3, "output_tokens": index} for index in range(1, 9)]
    path = write(tmp_path / "own.jsonl", rows, lines=True)
    words = ("--dataset-name", "custom", "--dataset-path", path, "--num-prompts", "8")
    ordered = load(*words, "--disable-shuffle", "--custom-output-len", "-1")
    assert [(s.prompt, s.output_len) for s in ordered] == [(str(i) * 3, i) for i in range(1, 9)]
    shuffled = load(*words)
    assert [s.prompt for s in shuffled] != [s.prompt for s in ordered]
    assert {s.output_len for s in shuffled} == {256}
    rendered = load(*words, "--disable-shuffle", render=lambda text: f"<user>{text}")
    assert rendered[0].prompt == "<user>111"


def test_spec_bench_takes_the_first_turn_of_a_category(tmp_path: Path) -> None:
    rows = [{"category": "a", "turns": ["one", "x"]}, {"category": "b", "turns": ["two"]}]
    path = write(tmp_path / "q.jsonl", rows, lines=True)
    words = ("--dataset-name", "spec_bench", "--dataset-path", path, "--no-oversample")
    assert [s.prompt for s in load(*words, "--spec-bench-category", "b")] == ["two"]
    assert {s.prompt for s in load(*words)} == {"one", "two"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("custom", '{"text": "a"}', 'with the key "prompt"'),
        ("custom", "{", 'with the key "prompt"'),
        ("custom", "", "holds no prompt"),
        ("sharegpt", "{}", "holds no prompt"),
        ("sharegpt", '[{"conversations": [1, 2]}]', "a JSON list of conversations"),
        ("spec_bench", '{"prompt": "a"}', 'with the key "turns"'),
    ],
)
def test_a_wrong_file_is_told(name: str, text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        load("--dataset-name", name, "--dataset-path", str(path))
    assert str(path) in caught.value.message


def test_files_and_names_must_fit() -> None:
    with pytest.raises(ConfigError, match="--dataset-name sharegpt needs --dataset-path"):
        load("--dataset-name", "sharegpt")
    with pytest.raises(ConfigError, match="--dataset-path x is not used by --dataset-name random"):
        load("--dataset-path", "x")
    with pytest.raises(ConfigError, match="--dataset-name random needs a tokenizer"):
        load_samples(options(), None, None)
    with pytest.raises(ConfigError, match="No such file"):
        load("--dataset-name", "custom", "--dataset-path", "/nowhere")
