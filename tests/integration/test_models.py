"""Which checkpoints are served, with which arithmetic, and what is said of the others."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.frontend.prompt import TextPrompt
from octavo.platforms.cpu import cpu_facts
from octavo.weights.hub import HubSettings, locate
from tests.fakes.hub_server import COMMIT, FakeHub, FakeRepo
from tests.fakes.tiny_folder import BOS, VOCAB_SIZE, write_tiny_folder
from tests.integration.server import Server, serving

DEFAULT_MODEL = locate(None, HubSettings(cache_dir=""))


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return write_tiny_folder(tmp_path / "tiny")


def last_line(log_path: Path, model: str, *flags: str, **env: str | None) -> str:
    """What a server that cannot start says last."""
    server = Server(log_path, *flags, model=model, env=env)
    try:
        assert server.wait_exit(10) != 0
    finally:
        server.stop()
    assert "Traceback" not in server.log
    return server.log.strip().splitlines()[-1]


def test_c109_truncated_safetensors(tmp_path: Path, tiny: str) -> None:
    file = Path(tiny, "model.safetensors")
    file.write_bytes(file.read_bytes()[:-1000])
    line = last_line(tmp_path / "log", tiny)
    assert "model.safetensors" in line
    assert "truncated" in line or "incomplete" in line or "bytes" in line


def test_c109_a_folder_without_config(tmp_path: Path, tiny: str) -> None:
    Path(tiny, "config.json").unlink()
    assert "config.json" in last_line(tmp_path / "log", tiny)


def test_c109_an_architecture_that_nobody_knows(tmp_path: Path, tiny: str) -> None:
    config = json.loads(Path(tiny, "config.json").read_text())
    config["architectures"] = ["MysteryForCausalLM"]
    Path(tiny, "config.json").write_text(json.dumps(config))
    assert "MysteryForCausalLM" in last_line(tmp_path / "log", tiny)


def test_c109_a_model_id_that_does_not_exist(tmp_path: Path) -> None:
    with FakeHub({}) as hub:
        env = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(tmp_path)}
        assert "no-such-org/no-such-model" in last_line(
            tmp_path / "log", "no-such-org/no-such-model", **env
        )


@pytest.fixture
def cached(tmp_path: Path) -> Iterator[tuple[FakeHub, dict[str, str | None]]]:
    """A hub, and the environment of a process that is told not to ask it. Its cache holds
    org/small."""
    snapshot = tmp_path / "hub" / "models--org--small" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.gguf").symlink_to(DEFAULT_MODEL)
    refs = tmp_path / "hub" / "models--org--small" / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    with FakeHub({"org/other": FakeRepo({"model.gguf": b"GGUF"})}) as hub:
        yield (
            hub,
            {
                "HF_HOME": str(tmp_path),
                "HF_HUB_CACHE": None,
                "HF_ENDPOINT": hub.endpoint,
                "HF_HUB_OFFLINE": "1",
            },
        )


@pytest.mark.parametrize("model", [DEFAULT_MODEL, "org/small"], ids=["path", "cached"])
def test_c110_offline_starts_without_a_request(
    tmp_path: Path, cached: tuple[FakeHub, dict[str, str | None]], model: str
) -> None:
    hub, env = cached
    with serving(tmp_path / "log", model=model, env=env) as server:
        server.is_alive()
    assert hub.requests == []


def test_c110_offline_what_is_not_cached_is_said_clearly(
    tmp_path: Path, cached: tuple[FakeHub, dict[str, str | None]]
) -> None:
    hub, env = cached
    line = last_line(tmp_path / "log", "org/other", **env)
    assert "org/other" in line
    assert "HF_HUB_OFFLINE" in line or "offline" in line
    assert hub.requests == []


def greedy(llm: LLM, prompt: str, max_tokens: int = 6) -> str:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    (output,) = llm.generate([prompt], params, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == max_tokens
    return output.outputs[0].text


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
def test_c124_a_bfloat16_checkpoint_works_as(
    tiny: str, dtype: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "octavo")
    with LLM(tiny, dtype=dtype) as llm:
        greedy(llm, "abc")
    if dtype == "auto":
        (line,) = [r.getMessage() for r in caplog.records if "dtype auto" in r.getMessage()]
        assert "bfloat16" in line
        assert "the fastest type for a bfloat16 checkpoint" in line


def test_c124_float32_and_bfloat16_of_a_bfloat16_checkpoint_agree(tiny: str) -> None:
    """Its weights are exact in both; only activations differ."""
    logprobs = {}
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    for dtype in ("float32", "bfloat16"):
        with LLM(tiny, dtype=dtype) as llm:
            (output,) = llm.generate(["The same text."], params, use_tqdm=False)
        assert output.prompt_logprobs is not None
        values = [next(iter(entry.values())).logprob for entry in output.prompt_logprobs if entry]
        logprobs[dtype] = values
    assert logprobs["float32"] == pytest.approx(logprobs["bfloat16"], abs=0.1)


@pytest.mark.parametrize("dtype", ["float16", "half"])
def test_c124_float16_is_refused_at_start_with_the_reason(
    tmp_path: Path, tiny: str, dtype: str
) -> None:
    line = last_line(tmp_path / "log", tiny, "--dtype", dtype)
    assert "float16" in line
    assert "accumulation" in line
    assert "bfloat16 or float32" in line


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
def test_c124_the_default_model_works_as(dtype: str) -> None:
    with LLM(dtype=dtype) as llm:
        assert greedy(llm, "One, two, three,").startswith(" four, five")


def test_c124_the_server_says_what_it_chose(live: Server) -> None:
    assert "dtype auto: " in live.log
    assert f"{cpu_facts().isa} kernels" in live.log


def test_c79_a_prompt_with_bos_in_its_text_has_two(
    tiny: str, caplog: pytest.LogCaptureFixture
) -> None:
    params = SamplingParams(temperature=0, max_tokens=1)

    def prompt_of(llm: LLM, prompt: Any) -> list[int]:
        (output,) = llm.generate([prompt], params, use_tqdm=False)
        assert output.prompt_token_ids is not None
        return list(output.prompt_token_ids)

    with LLM(tiny) as llm:
        assert prompt_of(llm, "ab").count(BOS) == 1
        assert "two BOS tokens" not in caplog.text
        assert prompt_of(llm, "<bos>ab")[:2] == [BOS, BOS]
        assert "two BOS tokens" in caplog.text
        assert prompt_of(llm, TextPrompt("<bos>ab", add_special_tokens=False)).count(BOS) == 1


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the tiny model whose operator allows any number of log-probabilities."""
    folder = tmp_path_factory.mktemp("served")
    model = write_tiny_folder(folder / "tiny")
    with serving(folder / "log", "--max-logprobs", "-1", model=model) as server:
        yield server


def test_c79_over_http(served: Server) -> None:
    def num_bos(prompt: str, **fields: Any) -> int:
        reply = served.complete(prompt, max_tokens=1, return_token_ids=True, **fields)
        ids: list[int] = reply["choices"][0]["prompt_token_ids"]
        return ids.count(BOS)

    assert num_bos("ab") == 1
    assert "two BOS tokens" not in served.log
    assert num_bos("<bos>ab") == 2
    assert "begins with two BOS tokens" in served.log
    assert num_bos("<bos>ab", add_special_tokens=False) == 1


def test_c10_all_prompt_logprobs_where_the_operator_allows_them(served: Server) -> None:
    reply = served.complete("xyz", max_tokens=1, prompt_logprobs=-1)
    first, *others = reply["choices"][0]["prompt_logprobs"]
    assert first is None
    assert len(others) == 3
    for entry in others:
        assert len(entry) == VOCAB_SIZE
        assert sum(math.exp(value["logprob"]) for value in entry.values()) == pytest.approx(1)
        assert sorted(value["rank"] for value in entry.values()) == list(range(1, VOCAB_SIZE + 1))
