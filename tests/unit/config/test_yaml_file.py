"""Options from `--config file.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config.yaml_file import read_yaml
from octavo.errors import ConfigError


def write(folder: Path, text: str, name: str = "c.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
model: org/repo
port: 8001
max_model_len: 8k
enable-prefix-caching: false
no-enable-chunked-prefill: true
served-model-name: [a, b]
api-key: one
hf-overrides: {rope_scaling: {factor: 2}}
allowed-origins: ["*"]
host:
""",
    )
    assert read_yaml(path) == (
        {
            "model": "org/repo",
            "port": 8001,
            "max_model_len": 8000,
            "enable_prefix_caching": False,
            "enable_chunked_prefill": False,
            "served_model_name": ["a", "b"],
            "api_key": ["one"],
            "hf_overrides": {"rope_scaling": {"factor": 2}},
            "allowed_origins": ["*"],
        },
        [],
    )


@pytest.mark.parametrize("key", ["model", "model_tag", "model-tag"])
def test_the_model_may_be_in_the_file(tmp_path: Path, key: str) -> None:
    assert read_yaml(write(tmp_path, f"{key}: m"))[0] == {"model": "m"}


def test_an_empty_file_is_fine(tmp_path: Path) -> None:
    assert read_yaml(write(tmp_path, "# nothing\n", "c.yml")) == ({}, [])


def test_a_key_given_twice_warns(tmp_path: Path) -> None:
    options, warnings = read_yaml(write(tmp_path, "port: 1\nport: 2\n"))
    assert options == {"port": 2}
    assert len(warnings) == 1
    assert warnings[0].endswith("'port' is given twice; the last one counts")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prot: 1", "unknown key 'prot'; did you mean port"),
        ("no-port: true", "unknown key 'no-port'"),
        ("port: x", "--port must be an integer, got 'x'"),
        ("- 1", "must hold `flag: value` lines"),
        ("a: [", "while parsing"),
        ("model: 3", "model must be the name of a model, got 3"),
        ("config: other.yaml", "a file cannot name another file"),
        ("? {a: 1}\n: 2", "unhashable"),
    ],
)
def test_mistakes_name_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert caught.value.message.startswith(f"--config {path}")
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


def test_the_name_must_say_yaml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.yaml or \.yml"):
        read_yaml(write(tmp_path, "port: 1", "c.txt"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file or directory"):
        read_yaml(str(tmp_path / "none.yaml"))
