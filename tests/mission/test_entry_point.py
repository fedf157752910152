"""Rows of the mission: entry point and configuration."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from octavo.cli.main import main
from octavo.config.args import EngineArgs, ServerArgs, split_options
from octavo.config.engine import EngineConfig
from octavo.config.flags.table import BY_NAME
from octavo.config.parser import parse_serve
from octavo.config.resolve_server import resolve_server
from octavo.envs import read_environ
from tests.fakes.engine_config import engine_config
from tests.integration.server import Server

ROOT = Path(__file__).resolve().parents[2]
KEY_OPTIONS = {
    "model",
    "tensor-parallel-size",
    "max-model-len",
    "gpu-memory-utilization",
    "api-key",
    "host",
    "port",
}


def test_the_command_octavo_dispatches_serve_model_to_the_api_server(live: Server) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"octavo": f"{main.__module__}:{main.__name__}"}
    assert " serve " in " ".join(live.process.args)  # type: ignore[arg-type]
    assert live.request("GET", "/v1/models")[0] == 200


def test_more_than_a_hundred_options_and_the_key_ones_have_vllms_names() -> None:
    assert len(BY_NAME) > 100
    assert set(BY_NAME) >= KEY_OPTIONS


def parsed(*words: str) -> tuple[EngineArgs, ServerArgs]:
    return split_options(parse_serve([*words]).options)


@pytest.mark.parametrize(
    ("words", "environ", "keys"),
    [
        ([], {"VLLM_API_KEY": "of-vllm"}, ["of-vllm"]),
        ([], {"VLLM_API_KEY": "of-vllm", "OCTAVO_API_KEY": "ours"}, ["ours"]),
        (["--api-key", "flag"], {"VLLM_API_KEY": "of-vllm"}, ["flag"]),
    ],
)
def test_flags_are_merged_with_variables_of_the_environment(
    words: list[str], environ: dict[str, str], keys: list[str]
) -> None:
    _, server_args = parsed(*words)
    assert resolve_server(server_args, read_environ(environ)).api_keys == keys


def test_everything_is_assembled_into_one_frozen_configuration() -> None:
    config = engine_config()
    parts = {"model", "cache", "scheduler", "parallel", "device", "load", "observability"}
    assert parts <= set(EngineConfig.__struct_fields__)
    for part in (config, *(getattr(config, name) for name in parts)):
        with pytest.raises(AttributeError):
            setattr(part, part.__struct_fields__[0], None)


def test_both_processes_have_the_same_configuration(live: Server) -> None:
    """The window is said by the API process and by the core, which got it as a message."""
    model = json.loads(live.request("GET", "/v1/models")[2])["data"][0]
    assert f"max_model_len {model['max_model_len']}: " in live.log
    assert f"Maximum concurrency for {model['max_model_len']:,} tokens" in live.log
