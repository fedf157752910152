"""One benchmark from flags to figures: model and tokenizer, prompts, a run, table and file.

Runs in: the shell's process. Owns: the order of the steps.
Knows nothing of: sockets, how anything is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from datetime import datetime

import uvloop

from octavo.cli.bench_serve.arrivals import RampUp, arrivals
from octavo.cli.bench_serve.datasets import Render, load_samples
from octavo.cli.bench_serve.flags import DEFAULT_METRICS, SAMPLING
from octavo.cli.bench_serve.http_pool import HttpPool
from octavo.cli.bench_serve.metrics import measure
from octavo.cli.bench_serve.report import describe_run, print_and_collect, save
from octavo.cli.bench_serve.requests import BODIES, Caller, Result, Sample
from octavo.cli.bench_serve.run import Plan, run
from octavo.cli.bench_serve.server_facts import ServerFacts
from octavo.cli.console import show
from octavo.envs import read_environ
from octavo.errors import ConfigError, StartupError
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from octavo.weights.hub import hub_settings, locate_tokenizer

_MAX_ERRORS_SHOWN = 10


def measure_server(options: argparse.Namespace, goodput_ms: dict[str, float]) -> int:
    """Measures the server that the flags name; returns the exit code.

    Args:
        options: of the command line, checked.
        goodput_ms: objective -> most milliseconds.

    Raises:
        ConfigError: a file is wrong, or there is no tokenizer.
        CommandFailed: the server cannot be reached, or results cannot be written.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(options, goodput_ms))


async def _measure(options: argparse.Namespace, goodput_ms: dict[str, float]) -> int:
    base_url = options.base_url or f"http://{_host(options.host)}:{options.port}"
    async with HttpPool(base_url, insecure=options.insecure) as pool:
        headers = _headers(options)
        facts = ServerFacts(pool, base_url, headers)
        name, model_id = await _model(options, facts)
        tokenizer_id = None if options.skip_tokenizer_init else options.tokenizer or model_id
        tokenizer = None if tokenizer_id is None else _tokenizer(tokenizer_id)
        samples = load_samples(options, tokenizer, _render(options, tokenizer))
        if options.dataset_name in ("random", "prefix_repetition"):
            samples = await facts.aligned(samples, name)
        caller = Caller(
            pool,
            options.endpoint,
            BODIES[options.backend],
            logprobs=options.logprobs,
            fields=_fields(options),
            headers=headers,
        )

        async def profile(action: str) -> None:
            if options.profile:
                await facts.profile(action)

        _say_traffic(options)
        plan = _plan(options, samples, name)
        outcome = await run(plan, caller, lambda: profile("start"), lambda: profile("stop"))
    _show_errors(outcome.results)
    figures = print_and_collect(
        measure(
            outcome.results, outcome.duration_s, options.metric_percentiles, goodput_ms, tokenizer
        ),
        outcome.results,
        outcome.probes,
        options,
        duration_s=outcome.duration_s,
        selected=(options.percentile_metrics or DEFAULT_METRICS).split(","),
        has_tokenizer=tokenizer is not None,
    )
    if outcome.rps_change_events:
        figures["rps_change_events"] = outcome.rps_change_events
    date = datetime.now().strftime("%Y%m%d-%H%M%S")
    described = describe_run(options, date=date, model_id=model_id, tokenizer_id=tokenizer_id)
    save({**described, **figures}, options, date=date, model_id=model_id)
    return 0


async def _model(options: argparse.Namespace, facts: ServerFacts) -> tuple[str, str]:
    """The name in requests, and the model's path or repository."""
    if options.model is not None:
        return options.served_model_name or options.model, options.model
    show("Model not specified, fetching first model from server...")
    name, model_id = await facts.first_model()
    show(f"First model name: {name}, first model id: {model_id}")
    return name, model_id


def _headers(options: argparse.Namespace) -> dict[str, str]:
    key = read_environ().openai_api_key
    own = {"Authorization": f"Bearer {key}"} if key else {}
    return {**own, **dict(options.header or ())}


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else str(host)


def _tokenizer(name: str) -> Tokenizer:
    try:
        return load_tokenizer(locate_tokenizer(name, hub_settings(read_environ())))
    except StartupError as error:
        raise ConfigError(
            f"the tokenizer {name} cannot be loaded: {error.message}; --tokenizer names another, "
            "--skip-tokenizer-init does without"
        ) from None


def _render(options: argparse.Namespace, tokenizer: Tokenizer | None) -> Render | None:
    """The chat template, unless the server applies it or nobody shall."""
    if (
        tokenizer is None
        or options.skip_chat_template
        or options.backend == "openai-chat"
        or not tokenizer.chat_templates
    ):
        return None
    template = ChatTemplate(tokenizer.chat_templates, tokenizer.special_tokens)
    variables = options.chat_template_kwargs or {}

    def render(text: str) -> str:
        messages = [{"role": "user", "content": text}]
        return template.render(messages, add_generation_prompt=True, **variables)

    return render


def _plan(options: argparse.Namespace, samples: list[Sample], model: str) -> Plan:
    ramp_up = None
    if options.ramp_up_strategy is not None:
        ramp_up = RampUp(
            options.ramp_up_strategy, options.ramp_up_start_rps, options.ramp_up_end_rps
        )
    return Plan(
        samples=samples,
        models=_models(options, model, len(samples)),
        arrivals=arrivals(
            len(samples),
            options.request_rate,
            options.burstiness,
            ramp_up=ramp_up,
            seed=options.seed,
        ),
        ramp_up=ramp_up,
        max_concurrency=options.max_concurrency,
        num_warmups=options.num_warmups,
        ready_check_timeout_s=options.ready_check_timeout_sec,
        probe_rate=options.probe_request_rate,
        has_bar=not options.disable_tqdm,
    )


def _models(options: argparse.Namespace, model: str, count: int) -> list[str]:
    """Which model answers each request."""
    if not options.lora_modules:
        return [model] * count
    names = options.lora_modules
    if options.lora_assignment == "round-robin":
        return [names[index % len(names)] for index in range(count)]
    return random.Random(options.seed).choices(names, k=count)


def _fields(options: argparse.Namespace) -> dict[str, object]:
    given = {name: getattr(options, name) for name, _ in SAMPLING}
    fields = {name: value for name, value in given.items() if value is not None}
    if options.ignore_eos:
        fields["ignore_eos"] = True
    return {**fields, **(options.extra_body or {})}


def _say_traffic(options: argparse.Namespace) -> None:
    if options.temperature is None:
        show(
            "WARNING: no --temperature is given: the server decides; --temperature 0 is greedy "
            "sampling."
        )
    if options.ramp_up_strategy is not None:
        show(f"Traffic ramp-up strategy: {options.ramp_up_strategy}.")
        show(
            f"Will increase RPS from {options.ramp_up_start_rps} to {options.ramp_up_end_rps} RPS "
            "over the duration of the benchmark."
        )
    else:
        show(f"Traffic request rate: {options.request_rate}")
    kind = "Poisson process" if options.burstiness == 1.0 else "Gamma distribution"
    show(f"Burstiness factor: {options.burstiness} ({kind})")
    show(f"Maximum request concurrency: {options.max_concurrency}")


def _show_errors(results: list[Result]) -> None:
    failed = [result.error for result in results if not result.success]
    if failed:
        show(f"Failed requests during benchmark run detected (capping to {_MAX_ERRORS_SHOWN}):")
    for number, error in enumerate(failed[:_MAX_ERRORS_SHOWN]):
        show(f"Error {number}: {error}")
