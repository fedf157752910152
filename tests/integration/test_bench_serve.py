"""`octavo bench serve` against a real server: its figures agree with the server's own counters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server import ROOT, Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("server") / "log") as running:
        yield running


def measure(server: Server, folder: Path, *flags: str) -> dict[str, Any]:
    path = folder / "figures.json"
    command = [sys.executable, "-m", "octavo", "bench", "serve", "--port", str(server.port)]
    command += ["--save-result", "--save-detailed", "--result-filename", str(path), *flags]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "============ Serving Benchmark Result ============" in done.stdout
    figures: dict[str, Any] = json.loads(path.read_text())
    return figures


@pytest.mark.parametrize(
    ("backend", "endpoint"),
    [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")],
)
def test_random_prompts_have_the_lengths_asked_for(
    backend: str, endpoint: str, server: Server, tmp_path: Path
) -> None:
    before = server.metric("vllm:generation_tokens_total")
    lengths = ["--random-input-len", "20", "--random-output-len", "8", "--num-prompts", "12"]
    traffic = ["--max-concurrency", "4", "--backend", backend, "--endpoint", endpoint]
    figures = measure(server, tmp_path, *lengths, *traffic)
    assert figures["completed"] == 12
    assert figures["failed"] == 0
    assert figures["output_lens"] == [8] * 12
    assert server.metric("vllm:generation_tokens_total") - before == 12 * 8
    if backend == "openai":
        assert figures["input_lens"] == [20] * 12
    for ttft, gaps, latency in zip(
        figures["ttfts"], figures["itls"], figures["latencies"], strict=True
    ):
        assert 0 < ttft <= latency
        assert ttft + sum(gaps) == pytest.approx(latency)
    assert figures["mean_tpot_ms"] < figures["duration"] * 1000
    assert figures["median_ttft_ms"] > 0


def test_every_request_that_is_refused_is_failed_with_the_servers_words(
    server: Server, tmp_path: Path
) -> None:
    flags = ["--random-input-len", "8", "--num-prompts", "3", "--random-output-len", "4"]
    figures = measure(server, tmp_path, *flags, "--extra-body", '{"top_k": -7}')
    assert figures["failed"] == 3
    assert all("400 Bad Request: top_k" in error for error in figures["errors"])
