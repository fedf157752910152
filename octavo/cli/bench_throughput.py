"""`octavo bench throughput`: many requests given at once, as fast as the engine can.

Flags, the printed line and JSON keys are those of `vllm bench throughput` with random prompts, or
prompts from a file of JSON lines.

Runs in: the user's process. Knows nothing of: the command line's engine flags.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

from octavo.cli.bench_latency import random_prompts, show_profile
from octavo.cli.console import show
from octavo.errors import ConfigError
from octavo.frontend.prompt import Prompt, TextPrompt, TokensPrompt
from octavo.llm import LLM
from octavo.sampling_params import SamplingParams


def add_throughput_flags(parser: argparse.ArgumentParser) -> None:
    """vLLM's flags of this benchmark, as far as they apply."""
    parser.add_argument("--backend", choices=["vllm"], default="vllm", help="accepted for scripts")
    parser.add_argument("--dataset-name", choices=["random", "custom"], default="random")
    parser.add_argument(
        "--dataset-path", type=Path, help='custom: lines of JSON with the key "prompt"'
    )
    parser.add_argument("--input-len", type=int, default=1024, help="tokens of a random prompt")
    parser.add_argument("--output-len", type=int, default=128, help="tokens each generates")
    parser.add_argument("--prefix-len", type=int, default=0, help="tokens before it, all equal")
    parser.add_argument("--n", type=int, default=1, help="outputs of each request")
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument(
        "--profile", action="store_true", help="clock operations; print time and share of the limit"
    )
    parser.add_argument("--disable-detokenize", action="store_true", help="leave the text out")


def run_throughput(llm: LLM, options: argparse.Namespace) -> Mapping[str, object]:
    """Measures and prints; returns what goes into the JSON file."""
    prompts = _prompts(llm, options)
    params = SamplingParams(
        n=options.n,
        temperature=1.0,
        top_p=1.0,
        ignore_eos=True,
        max_tokens=options.output_len,
        detokenize=not options.disable_detokenize,
    )
    if options.profile:
        llm.start_profile()
    start = time.perf_counter()
    outputs = llm.generate(prompts, params)
    elapsed = time.perf_counter() - start
    num_input = sum(len(output.prompt_token_ids) for output in outputs)
    num_output = sum(len(one.token_ids) for output in outputs for one in output.outputs)
    total = num_input + num_output
    show(
        f"Throughput: {len(outputs) / elapsed:.2f} requests/s, "
        f"{total / elapsed:.2f} total tokens/s, {num_output / elapsed:.2f} output tokens/s"
    )
    show(f"Total num prompt tokens:  {num_input}")
    show(f"Total num output tokens:  {num_output}")
    figures: dict[str, object] = {
        "elapsed_time": elapsed,
        "num_requests": len(outputs),
        "total_num_tokens": total,
        "requests_per_second": len(outputs) / elapsed,
        "tokens_per_second": total / elapsed,
        "output_tokens_per_second": num_output / elapsed,
    }
    if options.profile:
        show_profile(llm, figures)
    return figures


def _prompts(llm: LLM, options: argparse.Namespace) -> list[Prompt]:
    if options.dataset_name == "custom":
        return _prompts_of_file(options.dataset_path, options.num_prompts)
    if options.dataset_path is not None:
        raise ConfigError("--dataset-path is for --dataset-name custom; random prompts need none")
    num_tokens = options.prefix_len + options.input_len + options.output_len
    if num_tokens > llm.max_model_len:
        raise ConfigError(
            f"--prefix-len, --input-len and --output-len are {num_tokens} tokens together; the "
            f"model's window has {llm.max_model_len}"
        )
    (prefix,) = random_prompts(llm, 1, options.prefix_len, seed=0)
    own = random_prompts(llm, options.num_prompts, options.input_len, seed=1)
    return [TokensPrompt([*prefix.token_ids, *prompt.token_ids]) for prompt in own]


def _prompts_of_file(path: Path | None, count: int) -> list[Prompt]:
    if path is None:
        raise ConfigError("--dataset-name custom needs --dataset-path")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["prompt"] for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'--dataset-path {path} must hold one JSON object with the key "prompt" in each line: '
            f"{error!r}"
        ) from error
    if not texts:
        raise ConfigError(f"--dataset-path {path} holds no prompt")
    return [TextPrompt(texts[index % len(texts)]) for index in range(count)]
