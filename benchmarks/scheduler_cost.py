"""What the engine costs beside the kernels, in microseconds per step.

1. The scheduler alone: `schedule`, `update_from_output` and `stats` with N requests that decode and
   a worker that answers at once. Minimum and median over the steps.
2. A real core process that decodes one request (or `--streams`): its own timers say how much of its
   busy loop is not spent in the backend, messages included (receive, decode, encode, send).

    python benchmarks/scheduler_cost.py [--requests 128] [--steps 500] [--model PATH]
        [--streams 1] [--tokens 300] [--runs 5] [--async-scheduling]

On a machine that is busy with other work only minima mean something.
"""

from __future__ import annotations

import argparse
import statistics
import time

import msgspec

from octavo.config.args import EngineArgs
from octavo.config.engine import SchedulerConfig
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.scheduler import Scheduler
from octavo.envs import read_environ
from octavo.frontend.core_manager import CoreEngineProcManager
from octavo.launch.engine_config import find_engine_config
from octavo.log import LogSettings
from octavo.messages.codec import FromCoreDecoder, MessageEncoder
from octavo.messages.engine import (
    EngineCoreOutputs,
    EngineCoreRequest,
    RequestKind,
    StepTimes,
    UtilityCall,
)
from octavo.messages.kv_cache import KVCacheConfig, KVCacheGroup
from octavo.messages.step import ModelRunnerOutput
from octavo.sampling_params import SamplingParams
from octavo.structured_output.manager import NoStructuredOutput
from octavo.transport.zmq_socket import ZmqChannel


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", help="default: the server's")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--async-scheduling", action="store_true")
    args = parser.parse_args()

    times_s = scheduler_step_times(args.requests, args.steps)
    print(
        f"scheduler, {args.requests} requests that decode: "
        f"min {min(times_s) * 1e6:.0f} us, median {statistics.median(times_s) * 1e6:.0f} us a step"
    )
    with RealCore(args.model, args.async_scheduling) as core:
        core.run(args.streams, 20)
        runs = [core.run(args.streams, args.tokens) for _ in range(args.runs)]
    for run in runs:
        print("core process: " + describe(run))
    best = min(runs, key=lambda run: overhead_s(run) / run.num_steps)
    print("least overhead: " + describe(best))


def scheduler_step_times(num_requests: int, num_steps: int) -> list[float]:
    """Seconds of each step of a scheduler whose requests all decode."""
    kv = KVCacheManager(
        KVCacheConfig(num_requests * (num_steps // 16 + 8), 16, 1, [KVCacheGroup([0])]),
        max_num_batched_tokens=64 * num_requests,
        enable_caching=True,
    )
    scheduler = Scheduler(
        SchedulerConfig(max_num_batched_tokens=64 * num_requests, max_num_seqs=num_requests),
        max_model_len=num_steps + 64,
        kv=kv,
        structured_output=NoStructuredOutput(),
    )
    params = SamplingParams(max_tokens=num_steps + 10, temperature=1.0)
    for number in range(num_requests):  # blocks fill in different steps
        prompt = [number] * (20 + number % 16)
        scheduler.add_request(EngineCoreRequest(f"request-{number}", prompt, params, 0.0))
    times_s = []
    for _ in range(num_steps):
        start_s = time.perf_counter()
        scheduled = scheduler.schedule(64 * num_requests)
        worker_s = time.perf_counter()
        assert scheduled is not None
        result = ModelRunnerOutput({name: [7] for name in scheduled.num_scheduled_tokens})
        worker_s = time.perf_counter() - worker_s
        scheduler.update_from_output(result)
        scheduler.stats()
        times_s.append(time.perf_counter() - start_s - worker_s)
    return times_s[1:]  # the first one has the prompts


class RealCore:
    """A core process with a model, and the front end's end of its channel."""

    def __init__(self, model: str | None, is_async: bool) -> None:
        args = EngineArgs(model, async_scheduling=is_async)
        config = find_engine_config(args, read_environ())
        log = msgspec.json.encode(LogSettings(level="WARNING")).decode()
        self._manager = CoreEngineProcManager("octavo.launch.core:main", options={"log": log})
        self._manager.configure(config)
        self._manager.ready.result()
        self._channel: ZmqChannel = self._manager.take_channel()
        self._encoder, self._decoder = MessageEncoder(), FromCoreDecoder()
        self._num_calls = 0

    def __enter__(self) -> RealCore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._channel.close()
        self._manager.close()

    def run(self, num_streams: int, num_tokens: int) -> StepTimes:
        """What the core's timers say of `num_streams` requests of `num_tokens` tokens each."""
        before = self._times()
        self._num_calls += 1
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True, temperature=0.0)
        for number in range(num_streams):
            request = EngineCoreRequest(
                f"{self._num_calls}-{number}", [self._num_calls, number, 5], params, 0.0
            )
            self._channel.send(self._encoder.encode(RequestKind.ADD, request))
        num_left = num_streams
        while num_left:
            for message in self._receive():
                num_left -= sum(output.finish_reason is not None for output in message.outputs)
        after = self._times()
        return StepTimes(
            *(getattr(after, name) - getattr(before, name) for name in StepTimes.__struct_fields__)
        )

    def _times(self) -> StepTimes:
        self._num_calls += 1
        call = UtilityCall(self._num_calls, "step_times")
        self._channel.send(self._encoder.encode(RequestKind.UTILITY, call))
        while True:
            for message in self._receive():
                if message.utility_result is not None:
                    return msgspec.convert(message.utility_result.result, StepTimes)

    def _receive(self) -> list[EngineCoreOutputs]:
        self._channel.wait(None)
        messages = [self._decoder.decode(frame) for frame in self._channel.receive()]
        return [message for message in messages if isinstance(message, EngineCoreOutputs)]


def overhead_s(run: StepTimes) -> float:
    """Seconds outside the backend."""
    return run.step_s + run.io_s - run.backend_s


def describe(run: StepTimes) -> str:
    """One line, per step."""
    total_s, n = run.step_s + run.io_s, run.num_steps
    return (
        f"{n} steps of {total_s / n * 1e3:.2f} ms: backend {run.backend_s / n * 1e3:.2f} ms, "
        f"else {overhead_s(run) / n * 1e6:.0f} us ({overhead_s(run) / total_s:.1%}), "
        f"of which messages {run.io_s / n * 1e6:.0f} us"
    )


if __name__ == "__main__":
    main()
