"""Rows of the mission about the engine core: what it does at start, its memory, its step loop."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.core.engine_core import EngineCore
from octavo.messages.engine import EngineCoreOutputs, EngineCoreRequest
from octavo.messages.kv_cache import KVCacheSpec
from octavo.structured_output.manager import NoStructuredOutput
from tests.fakes.core_process import CoreProcess
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor, solo_output
from tests.fakes.requests import core_request
from tests.integration.server import Server

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
NUM_LAYERS, NUM_KV_HEADS, HEAD_DIM, BF16_BYTES, BLOCK_SIZE = 30, 3, 64, 2, 16
SPECS = [
    KVCacheSpec(layer, NUM_KV_HEADS, HEAD_DIM, HEAD_DIM, "bfloat16") for layer in range(NUM_LAYERS)
]
BYTES_PER_BLOCK = BLOCK_SIZE * 2 * NUM_LAYERS * HEAD_DIM * NUM_KV_HEADS * BF16_BYTES


def test_initialize_kv_caches_weights_then_memory_then_blocks_then_the_cache() -> None:
    executor = FakeExecutor(specs=SPECS)
    core = EngineCore(engine_config(), executor)
    assert executor.calls == ["load", "memory_report", "initialize_kv_cache", "warm_up"]
    assert executor.kv_config is not None
    assert executor.kv_config.num_blocks == core.ready.num_blocks


class RecordingGrammars(NoStructuredOutput):
    """No request has a grammar; notes who was asked about."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def add(self, request: EngineCoreRequest) -> None:
        self.seen.append(("add", request.request_id))

    def forget(self, request_id: str) -> None:
        self.seen.append(("forget", request_id))


def test_the_core_asks_its_structured_output_manager_about_every_request() -> None:
    grammars = RecordingGrammars()
    core = EngineCore(engine_config(), FakeExecutor(), structured_output=grammars)
    core.add_request(core_request("a", max_tokens=2))
    while core.has_work:
        core.step()
    assert grammars.seen == [("add", "a"), ("forget", "a")]


def test_the_core_warms_up_before_it_is_ready(live: Server) -> None:
    """With the real model: the plan is recorded, run once, and its speed sets the step size."""
    phases = re.findall(r"\]   EngineCore +(\S.*?)  +\d+\.\d+ - ", live.log)
    order = ["load weights", "plan memory", "allocate KV cache", "warm up", "scheduler"]
    assert [phase for phase in phases if phase in order] == order
    assert live.log.index("EngineCore pid=") < live.log.index("Application startup complete")


def test_a_block_holds_block_size_tokens_of_keys_and_values_of_all_layers() -> None:
    executor = FakeExecutor(specs=SPECS)
    EngineCore(engine_config(cache=CacheConfig(block_size=BLOCK_SIZE)), executor)
    assert executor.kv_config is not None
    assert executor.kv_config.bytes_per_block == BYTES_PER_BLOCK


def test_kv_memory_is_available_times_utilization_and_blocks_are_that_by_bytes_per_block() -> None:
    executor = FakeExecutor(specs=SPECS, available_bytes=3 * GIB)
    core = EngineCore(engine_config(cache=CacheConfig(gpu_memory_utilization=0.5)), executor)
    assert core.ready.num_blocks == int(3 * GIB * 0.5) // BYTES_PER_BLOCK


def test_the_scheduler_lives_within_the_kv_cache_config() -> None:
    core = EngineCore(
        engine_config(cache=CacheConfig(num_gpu_blocks_override=5)), FakeExecutor(specs=SPECS)
    )
    core.add_request(core_request("a", [1] * 40, max_tokens=100))
    total = 0
    while core.has_work:
        said = core.step()
        total += sum(len(output.new_token_ids) for output in said.outputs) if said else 0
    assert 40 + total == core.ready.kv_cache_size_tokens == 64


def test_the_step_loop_can_have_a_queue_of_batches() -> None:
    """vLLM's `step_with_batch_queue`: a step is on its way before the last one's tokens are
    known."""
    executor = FakeExecutor()
    core = EngineCore(engine_config(scheduler=SchedulerConfig(depth=2)), executor)
    core.add_request(core_request("a", max_tokens=6))
    core.step()
    assert len(executor.steps) == 2
    while core.has_work:
        core.step()
    assert executor.rows["a"].token_ids[3:9] == solo_output([1, 2, 3], 6)


def test_the_engine_core_is_a_named_process_with_named_threads_that_talks_over_zmq() -> None:
    with CoreProcess() as core:
        core.start()
        proc = Path(f"/proc/{core.child.pid}")
        assert proc.joinpath("cmdline").read_bytes().rstrip(b"\0") == b"Octavo::EngineCore"
        names = {task.joinpath("comm").read_text().strip() for task in proc.glob("task/*")}
        assert "Octavo::EngineC" in names
        assert "octavo-life" in names
        core.add("a")
        message = core.next()
        assert isinstance(message, EngineCoreOutputs)


def test_uniproc_everything_is_in_one_process_and_nothing_talks() -> None:
    """The core is usable without its process; then neither sockets nor processes are loaded."""
    code = (
        "import sys; import octavo.core.engine_core;"
        "loaded = {'zmq', 'subprocess', 'multiprocessing', 'asyncio', 'torch', 'fastapi',"
        " 'tokenizers', 'prometheus_client', 'numpy'} & set(sys.modules); print(sorted(loaded))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_step_is_limited_by_max_num_batched_tokens_and_max_num_seqs() -> None:
    scheduler = SchedulerConfig(max_num_batched_tokens=64, max_num_seqs=3)
    executor = FakeExecutor()
    core = EngineCore(engine_config(scheduler=scheduler), executor)
    for name in "abcdef":
        core.add_request(core_request(name, [ord(name)] * 50))
    while core.has_work:
        core.step()
    assert max(step.total_num_scheduled_tokens for step in executor.steps) == 64
    assert max(len(step.num_scheduled_tokens) for step in executor.steps) == 3


def test_the_configuration_goes_to_the_process_as_one_frozen_object() -> None:
    config = engine_config()
    packed = msgspec.msgpack.encode(config)
    assert msgspec.msgpack.decode(packed, type=type(config)) == config
