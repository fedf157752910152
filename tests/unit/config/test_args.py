"""Options from Python and from the parser."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from octavo.config.args import EngineArgs, ServerArgs, non_default_args, split_options
from octavo.config.flags.table import BY_FIELD
from octavo.errors import ConfigError


@pytest.mark.parametrize("options", [EngineArgs(), ServerArgs()], ids=["engine", "server"])
def test_defaults_of_the_classes_are_those_of_the_table(options: Any) -> None:
    for field in dataclasses.fields(options):
        if field.name in ("warnings", "ignored"):
            continue
        assert getattr(options, field.name) == BY_FIELD[field.name].default, field.name


def test_mutable_defaults_are_not_shared() -> None:
    first, second = EngineArgs(), EngineArgs()
    first.hf_overrides["a"] = 1
    first.ignore_patterns.append("x")
    first.warnings.append("x")
    assert second.hf_overrides == {}
    assert second.ignore_patterns == ["original/**/*"]
    assert second.warnings == []
    assert BY_FIELD["hf_overrides"].default == {}


def test_values_are_converted_as_on_the_command_line() -> None:
    args: Any = EngineArgs(model="m.gguf", max_model_len="8k", max_num_seqs="4", dtype="Float32")
    assert (args.max_model_len, args.max_num_seqs, args.dtype) == (8000, 4, "float32")


def test_the_model_may_be_the_first_argument() -> None:
    assert EngineArgs("m.gguf").model == "m.gguf"


def test_a_misspelt_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match="EngineArgs has no option 'max_modle_len'; did you mean max_model_len"
    ):
        EngineArgs(max_modle_len=5)


def test_an_option_of_the_server_is_not_one_of_the_engine() -> None:
    with pytest.raises(ConfigError, match="EngineArgs has no option 'port': it is one of the serv"):
        EngineArgs(port=1)


def test_options_without_effect_leave_a_warning_and_their_value() -> None:
    args: Any = EngineArgs(enforce_eager=True)
    assert args.warnings == ["--enforce-eager has no effect here: there is nothing to compile"]
    assert args.ignored == {"enforce_eager": True}


def test_options_that_cannot_be_honoured_are_refused() -> None:
    with pytest.raises(ConfigError, match="--tensor-parallel-size is not supported"):
        EngineArgs(tensor_parallel_size=2)
    EngineArgs(tensor_parallel_size=1)


def test_the_parsers_options_find_their_class() -> None:
    engine, server = split_options(
        {"model": "m", "port": 1, "enforce_eager": True, "fingerprint_mode": "none"}
    )
    assert engine.model == "m"
    assert server.port == 1
    assert list(engine.ignored) == ["enforce_eager"]
    assert list(server.ignored) == ["fingerprint_mode"]


def test_the_log_shows_what_differs_from_the_defaults() -> None:
    engine, server = split_options({"model": "m", "port": 8000, "seed": 3, "enforce_eager": True})
    assert non_default_args(engine, server) == {"model": "m", "seed": 3, "enforce_eager": True}


def test_keys_and_tokens_are_hidden_in_log_and_repr() -> None:
    engine, server = split_options({"api_key": ["sk-secret"], "hf_token": "hf_secret"})
    assert non_default_args(engine, server) == {"hf_token": "***", "api_key": "***"}
    assert repr(engine) == "EngineArgs(hf_token='***')"
    assert repr(server) == "ServerArgs(api_key='***')"
