"""A run: ready check, warm-up, the requests at their times, and probes beside them.

Runs in: the event loop of the benchmark. Owns: what is sent when.
Knows nothing of: flags, how results are summed up.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime

import msgspec
from tqdm import tqdm

from octavo.cli.bench_serve.arrivals import Arrival, RampUp
from octavo.cli.bench_serve.requests import Caller, Result, Sample, wait_ready
from octavo.cli.console import show
from octavo.errors import CommandFailed


class Plan(msgspec.Struct, frozen=True):
    """What is sent, when, and to which model: lists of the same length."""

    samples: Sequence[Sample]
    models: Sequence[str]
    arrivals: Sequence[Arrival]
    ramp_up: RampUp | None
    max_concurrency: int | None
    num_warmups: int
    ready_check_timeout_s: float
    probe_rate: float
    has_bar: bool


class Outcome(msgspec.Struct, frozen=True):
    """What came back."""

    results: list[Result]
    probes: list[Result]
    duration_s: float
    rps_change_events: list[dict[str, object]]


async def run(
    plan: Plan,
    caller: Caller,
    start_profile: Callable[[], Awaitable[None]],
    stop_profile: Callable[[], Awaitable[None]],
) -> Outcome:
    """Sends everything; prints what it is doing.

    Args:
        start_profile: called just before the measured requests.
        stop_profile: called after them.

    Raises:
        CommandFailed: the server is not ready in time.
    """
    await _check_ready(plan, caller)
    await _warm_up(plan, caller)
    show("Starting main benchmark run...")
    await start_profile()
    gc.collect()
    gc.freeze()  # a collection in the middle of the run would be measured as the server's
    stop_probes = asyncio.Event()
    probing = asyncio.create_task(_probe(plan, caller, stop_probes))
    events: list[dict[str, object]] = []
    start_s = time.perf_counter()
    results = await _send_all(plan, caller, events)
    duration_s = time.perf_counter() - start_s
    stop_probes.set()
    probes = await probing
    await stop_profile()
    return Outcome(results, probes, duration_s, events)


async def _check_ready(plan: Plan, caller: Caller) -> None:
    if plan.ready_check_timeout_s <= 0:
        show("Skipping endpoint ready check.")
        return
    show(f"Waiting for endpoint to become up in {plan.ready_check_timeout_s:g} seconds")
    sample, model = plan.samples[0], plan.models[0]
    result = await wait_ready(caller, sample, model, plan.ready_check_timeout_s)
    if not result.success:
        raise CommandFailed(
            f"the server did not answer the first request within "
            f"{plan.ready_check_timeout_s:g} s (--ready-check-timeout-sec): {result.error}"
        )
    show("Initial test run completed.")


async def _warm_up(plan: Plan, caller: Caller) -> None:
    if plan.num_warmups <= 0:
        return
    show(f"Warming up with {plan.num_warmups} requests...")
    limit = _limit(plan)
    with tqdm(total=plan.num_warmups, disable=None if plan.has_bar else True) as bar:

        async def send() -> None:
            async with limit:
                await caller.send(plan.samples[0], plan.models[0])
            bar.update()

        await asyncio.gather(*(send() for _ in range(plan.num_warmups)))
    show("Warmup run completed.")


async def _send_all(plan: Plan, caller: Caller, events: list[dict[str, object]]) -> list[Result]:
    limit = _limit(plan)
    last_rps = -1
    if plan.ramp_up is not None:
        last_rps = plan.ramp_up.start
        events.append({"rps": last_rps, "timestamp": datetime.now().isoformat()})
    with tqdm(total=len(plan.samples), disable=None if plan.has_bar else True) as bar:

        async def send(sample: Sample, model: str) -> Result:
            arrived_s = time.perf_counter()
            async with limit:
                result = await caller.send(sample, model)
            result.queue_time = result.start_time - arrived_s
            bar.update()
            return result

        tasks = []
        start_s = time.perf_counter()
        for sample, arrival, model in zip(plan.samples, plan.arrivals, plan.models, strict=True):
            if plan.ramp_up is not None:
                reached = range(last_rps + 1, int(arrival.rate) + 1)
                events += [{"rps": rps, "timestamp": datetime.now().isoformat()} for rps in reached]
                last_rps = max(last_rps, int(arrival.rate))
            if arrival.delay_s > 0:
                left_s = start_s + arrival.delay_s - time.perf_counter()
                if left_s > 0:
                    await asyncio.sleep(left_s)
            tasks.append(asyncio.create_task(send(sample, model)))
        return list(await asyncio.gather(*tasks))


async def _probe(plan: Plan, caller: Caller, stop: asyncio.Event) -> list[Result]:
    """Requests of one token beside the others, until told to stop."""
    probes: list[Result] = []
    while plan.probe_rate > 0 and not stop.is_set():
        probes.append(await caller.send(Sample("Hi", 1, 1), plan.models[0]))
        try:
            await asyncio.wait_for(stop.wait(), 1 / plan.probe_rate)
        except TimeoutError:
            continue
    return probes


def _limit(plan: Plan) -> AbstractAsyncContextManager[None]:
    return asyncio.Semaphore(plan.max_concurrency) if plan.max_concurrency else nullcontext()
