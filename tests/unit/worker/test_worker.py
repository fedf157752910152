"""One device from bare to serving."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octavo.config.engine import DeviceConfig, ModelConfig, SchedulerConfig
from octavo.errors import ConfigError
from octavo.ops.native import NativeBackend
from octavo.sampling_params import SamplingParams
from octavo.worker.model_runner import StepAborted
from octavo.worker.worker import Worker
from tests.fakes.model_config import model_config
from tests.fakes.tiny_llama import TINY_LLAMA, tiny_llama_tensors
from tests.fakes.worker_rig import WorkerRig


@pytest.fixture
def rig() -> Iterator[WorkerRig]:
    rig = WorkerRig(TINY_LLAMA, tiny_llama_tensors(TINY_LLAMA))
    yield rig
    rig.close()


def test_weights_are_given_back_and_the_checkpoint_is_closed(rig: WorkerRig) -> None:
    assert rig.checkpoint.is_closed
    assert sorted(rig.checkpoint.released) == sorted(rig.checkpoint.tensor_names)


def test_memory_counts_weights_and_activations(rig: WorkerRig) -> None:
    report = rig.worker.memory_report()
    stored = sum(len(rig.checkpoint.get(name).data) for name in rig.checkpoint.tensor_names)
    assert stored <= report.weight_bytes <= stored * 1.02
    assert report.activation_bytes > 0
    assert report.available_bytes == 2**30


def test_cache_specs_follow_dtype(rig: WorkerRig) -> None:
    assert [spec.layer for spec in rig.worker.kv_cache_specs()] == [0, 1]
    assert {spec.dtype for spec in rig.worker.kv_cache_specs()} == {"float32"}
    automatic = WorkerRig(TINY_LLAMA, tiny_llama_tensors(TINY_LLAMA), dtype="auto")
    assert {spec.dtype for spec in automatic.worker.kv_cache_specs()} == {"bfloat16"}
    automatic.close()


def test_cache_specs_say_whether_the_backend_tells_prompts_apart(
    rig: WorkerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_apart in (True, False):
        monkeypatch.setattr(NativeBackend, "tells_prompts_apart", is_apart)
        specs = rig.worker.kv_cache_specs()
        assert {spec.tells_prompts_apart for spec in specs} == {is_apart}


def test_idle_moments_between_steps_change_no_token(rig: WorkerRig) -> None:
    rig.add("alone", [1, 2, 3])
    expected = rig.generate("alone", 12).token_ids
    rig.add("with idle moments", [1, 2, 3])
    for count in (3, *[1] * 11):
        rig.worker.idle()
        rig.step({"with idle moments": count})
    assert rig.generated("with idle moments").token_ids == expected


def test_warm_up_takes_time_and_leaves_no_trace(rig: WorkerRig) -> None:
    rig.add("before", [1, 2, 3])
    expected = rig.generate("before", 3).token_ids
    rig.finish("before")
    assert rig.worker.warm_up() > 0
    for n in range(8):  # every row is free again
        rig.add(f"{n}", [1, 2, 3])
        assert rig.generate(f"{n}", 3).token_ids == expected


def test_warm_up_fits_in_the_smallest_step_and_pool() -> None:
    rig = WorkerRig(
        TINY_LLAMA,
        tiny_llama_tensors(TINY_LLAMA),
        max_model_len=16,
        max_tokens=4,
        max_requests=1,
    )
    assert rig.worker.warm_up() > 0
    rig.close()


def test_an_aborted_worker_ends_its_steps(rig: WorkerRig) -> None:
    rig.add("a", [1, 2, 3])
    rig.worker.abort()
    with pytest.raises(StepAborted):
        rig.step({"a": 3})


def test_shutting_down_twice_is_fine(rig: WorkerRig) -> None:
    rig.worker.shutdown()
    rig.worker.shutdown()


def test_an_unknown_architecture_ends_the_start_before_the_weights_are_opened() -> None:
    def never(*args: object) -> object:
        raise AssertionError("must not be called")

    config: ModelConfig = model_config(architecture="SpiralForCausalLM")
    worker = Worker(
        config,
        SchedulerConfig(),
        DeviceConfig(),
        open_backend=never,  # type: ignore[arg-type]
        open_checkpoint=never,  # type: ignore[arg-type]
        available_memory_bytes=lambda: 0,
    )
    with pytest.raises(ConfigError, match="SpiralForCausalLM"):
        worker.load_model()


def test_processed_logprobs_are_those_after_biases() -> None:
    params = SamplingParams(temperature=0.0, logprobs=0, logit_bias={7: 100.0})
    values = {}
    for mode in ("raw_logprobs", "processed_logprobs"):
        rig = WorkerRig(TINY_LLAMA, tiny_llama_tensors(TINY_LLAMA), logprobs_mode=mode)
        rig.add("a", [1, 2, 3], params)
        got = rig.generate("a", 1)
        assert got.token_ids == [7]
        values[mode] = got.logprobs[0].logprobs[0]
        rig.close()
    assert values["processed_logprobs"] == pytest.approx(0.0, abs=1e-6)
    assert values["raw_logprobs"] < -1
