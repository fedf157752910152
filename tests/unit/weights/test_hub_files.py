"""The files of a repository that make up a model."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.weights.hub_files import choose_files

CHECKPOINT = [
    ".gitattributes", "README.md", "config.json", "generation_config.json", "model.safetensors",
    "pytorch_model.bin", "onnx/model.onnx", "original/consolidated.00.pth", "tokenizer.json",
    "tokenizer.model", "tokenizer_config.json", "chat_template.jinja", "consolidated.safetensors",
    "onnx/config.json",
]  # fmt: skip
QUANTS = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "m-UD-Q4_K_M.gguf", "mmproj-F16.gguf"]


def test_a_checkpoint_is_its_weights_and_side_files_only() -> None:
    files = choose_files(CHECKPOINT, source="o/r")
    assert files.entry == ""
    assert sorted(files.names) == [
        "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip


def test_ignored_patterns_are_left_out() -> None:
    files = choose_files(CHECKPOINT, source="o/r", ignore_patterns=["generation*"])
    assert "generation_config.json" not in files.names


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ("Q8_0", "m-Q8_0.gguf"),
        ("q4_k_s", "m-Q4_K_S.gguf"),
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("UD-Q4_K_M", "m-UD-Q4_K_M.gguf"),
    ],
)
def test_a_quantisation_names_one_file(quantization: str, expected: str) -> None:
    files = choose_files(QUANTS, source="o/r", quantization=quantization)
    assert (files.names, files.entry) == ((expected,), expected)


@pytest.mark.parametrize("quantization", ["Q4_K", "Q4", "K_M", "8_0", "gguf", "m"])
def test_a_part_of_a_name_is_no_quantisation(quantization: str) -> None:
    names = ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]
    if quantization == "m":  # it stands alone in both
        with pytest.raises(ConfigError, match="has several files for m"):
            choose_files(names, source="o/r", quantization=quantization)
        return
    with pytest.raises(ConfigError, match=r"nothing quantised as .*it has o/r:Q4_K_M, o/r:Q8_0\."):
        choose_files(names, source="o/r", quantization=quantization)


def test_all_shards_of_a_file_belong_to_it() -> None:
    names = [f"Q8_0/m-Q8_0-{i:05d}-of-00003.gguf" for i in (2, 3, 1)] + ["m-Q4_0.gguf"]
    files = choose_files(names, source="o/r", quantization="Q8_0")
    assert files.entry == "Q8_0/m-Q8_0-00001-of-00003.gguf"
    assert len(files.names) == 3
    by_name = choose_files(names, source="o/r", file="Q8_0/m-Q8_0-00002-of-00003.gguf")
    assert by_name == files


def test_one_gguf_file_needs_no_name_and_several_do() -> None:
    assert choose_files(["a.gguf", "README.md"], source="o/r").entry == "a.gguf"
    with pytest.raises(ConfigError, match=r"several models; name one: o/r:Q4_K_M, .*o/r:Q8_0"):
        choose_files(QUANTS, source="o/r")
    with pytest.raises(ConfigError, match=r"name one: o/r/one\.gguf, o/r/two\.gguf\."):
        choose_files(["one.gguf", "two.gguf"], source="o/r")


@pytest.mark.parametrize("names", [[], ["README.md"], ["config.json"], ["model.safetensors"]])
def test_nothing_to_serve_is_one_sentence(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="o/r has neither a GGUF file nor config"):
        choose_files(names, source="o/r")


def test_a_file_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"o/r has no file x\.gguf; it has o/r:Q4_0\."):
        choose_files(["m-Q4_0.gguf"], source="o/r", file="x.gguf")
    with pytest.raises(ConfigError, match="o/r has no GGUF files, so :Q4_0 names nothing"):
        choose_files(CHECKPOINT, source="o/r", quantization="Q4_0")
