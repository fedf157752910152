"""Sampling parameters that requests start from (case C55)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.config.rules.sampling_defaults import choose_sampling_defaults
from octavo.errors import ConfigError

FROM_MODEL = {
    "temperature": 0.2,
    "top_p": 0.9,
    "top_k": 50.0,
    "max_new_tokens": 64,
    "do_sample": True,
    "eos_token_id": 2,
    "min_p": None,
}


def test_c55_auto_takes_the_models_and_says_how_to_turn_them_off() -> None:
    values, reason = choose_sampling_defaults("auto", override={}, from_model=FROM_MODEL)
    assert values == {"temperature": 0.2, "top_p": 0.9, "top_k": 50, "max_tokens": 64}
    assert isinstance(values["top_k"], int)
    assert reason == (
        "sampling defaults from the model's generation_config.json: temperature=0.2, top_k=50, "
        "top_p=0.9, max_tokens=64 (--generation-config vllm turns them off)"
    )


def test_c55_vllm_takes_none() -> None:
    assert choose_sampling_defaults("vllm", override={}, from_model=FROM_MODEL) == ({}, "")


def test_an_override_goes_on_top() -> None:
    values, reason = choose_sampling_defaults(
        "auto", override={"temperature": 0.7}, from_model={"temperature": 0.2, "top_k": 5}
    )
    assert values == {"temperature": 0.7, "top_k": 5}
    assert "from --override-generation-config: temperature=0.7" in reason


def test_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"top_p": 0.5}))
    values, reason = choose_sampling_defaults(str(tmp_path), override={}, from_model=FROM_MODEL)
    assert values == {"top_p": 0.5}
    assert str(tmp_path) in reason


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "is not valid JSON"), ("[1]", "must hold a JSON object"), (None, "No such file")],
)
def test_a_folder_without_a_readable_file_is_refused(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        choose_sampling_defaults(str(tmp_path), override={}, from_model={})


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ({"temperature": 3.0}, r"--override-generation-config: temperature must be in \[0, 2\]"),
        ({"top_p": "x"}, "top_p must be a number, got 'x'"),
        ({"top_k": 1.5}, "top_k must be a whole number, got 1.5"),
        ({"top_k": float("inf")}, "top_k must be a whole number, got inf"),
        ({"top_k": 10**400}, "top_k must be a smaller number, got 1000"),
        ({"temperature": 10**400}, "temperature must be a smaller number"),
        ({"min_p": True}, "min_p must be a number, got True"),
    ],
)
def test_values_must_be_valid_parameters(override: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        choose_sampling_defaults("auto", override=override, from_model={})
