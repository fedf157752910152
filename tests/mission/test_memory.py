"""Rows of the mission: memory at start-up, of the real model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psutil
import pytest

from octavo.config.args import EngineArgs
from octavo.config.engine import DeviceConfig, SchedulerConfig
from octavo.envs import read_environ
from octavo.launch.engine_config import find_engine_config
from octavo.weights.facts import read_facts
from octavo.weights.hub import HubSettings, locate
from octavo.worker.worker import Worker
from tests.integration.server import Server, serving

MODEL = locate(None, HubSettings(cache_dir=""))
LAYERS, KV_HEADS, HEAD_DIM, HIDDEN, VOCAB = 30, 3, 64, 576, 49152
BF16_BYTES = 2
BLOCK_SIZE = 16
BYTES_PER_TOKEN = 2 * LAYERS * KV_HEADS * HEAD_DIM * BF16_BYTES  # keys and values
MIB = 2**20


def test_weights_take_what_the_file_stores(live: Server) -> None:
    stored = read_facts(MODEL).weight_bytes
    found = re.search(r"weights are .* \((\d+\.\d) MiB\)", live.log)
    assert found is not None
    assert float(found[1]) * MIB <= 1.02 * stored


def test_a_block_is_its_tokens_times_keys_and_values_of_all_layers(live: Server) -> None:
    assert f"{BLOCK_SIZE} tokens, {BYTES_PER_TOKEN:,} bytes/token" in live.log


def cache_info(server: Server) -> dict[str, str]:
    """Labels of `vllm:cache_config_info`."""
    page = server.request("GET", "/metrics")[2].decode()
    (line,) = [line for line in page.splitlines() if line.startswith("vllm:cache_config_info{")]
    return dict(re.findall(r'(\w+)="([^"]*)"', line))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose KV cache has a share of the memory."""
    log = tmp_path_factory.mktemp("shared") / "log"
    with serving(log, "--gpu-memory-utilization", "0.02") as server:
        yield server


def test_kv_total_is_available_times_utilization_and_blocks_are_that_by_a_blocks_bytes(
    shared: Server,
) -> None:
    num_blocks = int(cache_info(shared)["num_gpu_blocks"])
    found = re.search(r"KV cache: (\d+\.\d+) (GiB|MiB), ([\d,]+) blocks of 16 tokens", shared.log)
    assert found is not None
    total = float(found[1]) * (1024 if found[2] == "GiB" else 1) * MIB
    assert int(found[3].replace(",", "")) == num_blocks
    assert num_blocks == pytest.approx(total / (BLOCK_SIZE * BYTES_PER_TOKEN), rel=0.02)
    # what is available changes from moment to moment: the share of it now is near that of then
    assert total == pytest.approx(0.02 * psutil.virtual_memory().available, rel=0.5)


def test_the_scheduler_has_the_cache_that_was_planned(live: Server) -> None:
    info = cache_info(live)
    num_blocks = int(info["num_gpu_blocks"])
    assert int(info["kv_cache_size_tokens"]) == (num_blocks - 1) * BLOCK_SIZE  # block 0 is nobody's
    assert f"KV cache size: {int(info['kv_cache_size_tokens']):,} tokens" in live.log


def test_pages_of_the_cache_are_touched_as_it_is_used(live: Server) -> None:
    """1.4 GiB are reserved; the core, weights and all, holds a fraction of that after the tests
    that used this server. How much is ahead of its use: tests/integration/test_kv_prefault.py."""
    reserved = int(cache_info(live)["num_gpu_blocks"]) * BLOCK_SIZE * BYTES_PER_TOKEN
    assert live.core().memory_info().rss < 0.6 * reserved


def test_activations_follow_the_most_tokens_of_a_step() -> None:
    config = find_engine_config(EngineArgs(), read_environ({}))

    def activation_bytes(max_num_batched_tokens: int) -> int:
        worker = Worker(
            config.model,
            SchedulerConfig(max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=8),
            DeviceConfig(num_threads=1),
            shows_progress=False,
        )
        worker.load_model()
        report = worker.memory_report()
        worker.shutdown()
        return report.activation_bytes

    small, large = activation_bytes(64), activation_bytes(512)
    assert small < large
    # a row holds at least the residual, and at most what a layer makes of it
    per_token = (large - small) / (512 - 64)
    assert HIDDEN * 4 <= per_token <= 30 * HIDDEN * 4
