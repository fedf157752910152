"""`octavo bench latency`: the time of one batch of equal requests.

Flags, printed lines and JSON keys are those of `vllm bench latency`; beside the time of the whole
batch it says how fast prompts were read and tokens were generated, as llama-bench does.

Runs in: the user's process. Knows nothing of: the command line's engine flags.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from tqdm import tqdm

from octavo.cli.console import show
from octavo.cli.profile_table import profile_table
from octavo.errors import ConfigError
from octavo.frontend.prompt import TokensPrompt
from octavo.llm import LLM
from octavo.sampling_params import BeamSearchParams, SamplingParams

PERCENTAGES = (10, 25, 50, 75, 90, 99)


def add_latency_flags(parser: argparse.ArgumentParser) -> None:
    """vLLM's flags of this benchmark."""
    parser.add_argument("--input-len", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--output-len", type=int, default=128, help="tokens each generates")
    parser.add_argument("--batch-size", type=int, default=8, help="requests of the batch")
    parser.add_argument("--n", type=int, default=1, help="outputs of each request")
    parser.add_argument("--use-beam-search", action="store_true", help="with n beams")
    parser.add_argument("--num-iters-warmup", type=int, default=10)
    parser.add_argument("--num-iters", type=int, default=30)
    parser.add_argument(
        "--profile", action="store_true", help="clock operations; print time and share of the limit"
    )
    parser.add_argument("--disable-detokenize", action="store_true", help="leave the text out")


def run_latency(llm: LLM, options: argparse.Namespace) -> Mapping[str, object]:
    """Measures and prints.

    Returns:
        avg_latency, latencies and percentiles in seconds; prefill and decode in tokens per second.
    """
    num_tokens = options.input_len + options.output_len
    if num_tokens > llm.max_model_len:
        raise ConfigError(
            f"--input-len and --output-len are {num_tokens} tokens together; the model's window "
            f"has {llm.max_model_len}"
        )
    if options.profile:
        llm.start_profile()
    rounds = range(options.num_iters_warmup + options.num_iters)
    seconds, first_seconds = [], []
    for number in tqdm(rounds, desc="Bench iterations", disable=None):
        prompts = random_prompts(llm, options.batch_size, options.input_len, seed=number)
        elapsed, first = _run_once(llm, prompts, options)
        if number >= options.num_iters_warmup:
            seconds.append(elapsed)
            first_seconds.append(first)
    figures = dict(_report(options, seconds, first_seconds))
    if options.profile:
        show_profile(llm, figures)
    return figures


def show_profile(llm: LLM, figures: dict[str, object]) -> None:
    """Ends the profile: the table is printed and the numbers go into `figures`."""
    profile = llm.stop_profile()
    show(profile_table(profile))
    figures["profile"] = msgspec.to_builtins(profile)


def random_prompts(llm: LLM, count: int, length: int, *, seed: int) -> list[TokensPrompt]:
    """Prompts of random ids that are no control tokens; no two share a beginning."""
    tokenizer = llm.get_tokenizer()
    special = np.fromiter(tokenizer.special_ids, np.int64)
    ids = np.setdiff1d(np.arange(min(tokenizer.vocab_size, llm.vocab_size)), special)
    drawn = np.random.default_rng(seed).choice(ids, (count, length))
    return [TokensPrompt(row) for row in drawn.tolist()]


def _run_once(
    llm: LLM, prompts: Sequence[TokensPrompt], options: argparse.Namespace
) -> tuple[float, float | None]:
    """Seconds of the batch, and until the last of its requests had its first token."""
    start = time.perf_counter()
    if options.use_beam_search:
        llm.beam_search(
            prompts,
            BeamSearchParams(beam_width=options.n, max_tokens=options.output_len, ignore_eos=True),
        )
        return time.perf_counter() - start, None
    start_monotonic = time.monotonic()
    outputs = llm.generate(
        prompts,
        SamplingParams(
            n=options.n,
            temperature=1.0,
            top_p=1.0,
            ignore_eos=True,
            max_tokens=options.output_len,
            detokenize=not options.disable_detokenize,
        ),
        use_tqdm=False,
    )
    elapsed = time.perf_counter() - start
    firsts = [output.metrics.first_token_s for output in outputs if output.metrics is not None]
    return elapsed, max(firsts) - start_monotonic if firsts else None


def _report(
    options: argparse.Namespace, seconds: list[float], firsts: list[float | None]
) -> Mapping[str, object]:
    percentiles = np.percentile(seconds, PERCENTAGES)
    show(f"Avg latency: {statistics.mean(seconds)} seconds")
    for percentage, value in zip(PERCENTAGES, percentiles, strict=True):
        show(f"{percentage}% percentile latency: {value} seconds")
    figures: dict[str, object] = {
        "avg_latency": statistics.mean(seconds),
        "latencies": seconds,
        "percentiles": dict(zip(map(str, PERCENTAGES), percentiles.tolist(), strict=True)),
    }
    known = [(whole, first) for whole, first in zip(seconds, firsts, strict=True) if first]
    if known:
        prefill = statistics.median(first for _, first in known)
        figures["prefill_tokens_per_second"] = options.batch_size * options.input_len / prefill
        show(f"Prefill: {figures['prefill_tokens_per_second']:.1f} tokens/s")
        if options.output_len > 1:
            decode = statistics.median(whole - first for whole, first in known)
            num_decoded = options.batch_size * options.n * (options.output_len - 1)
            figures["decode_tokens_per_second"] = num_decoded / decode
            show(f"Decode: {figures['decode_tokens_per_second']:.1f} tokens/s")
    return figures
