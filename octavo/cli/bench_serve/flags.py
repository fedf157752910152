"""The flags of `octavo bench serve`: those of `vllm bench serve` 0.32, each known.

Runs in: the shell's process. Knows nothing of: what is measured.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Callable, Iterable

from octavo.cli.argument_parser import CommandParser

#: backends and the end that `--endpoint` must have with each
BACKENDS = {"openai": "completions", "vllm": "completions", "openai-chat": "chat/completions"}
_OTHER_BACKENDS = (
    "openai-responses", "openai-audio", "openai-embeddings", "openai-embeddings-chat",
    "openai-embeddings-clip", "openai-embeddings-vlm2vec", "infinity-embeddings",
    "infinity-embeddings-clip", "vllm-pooling", "vllm-rerank",
)  # fmt: skip
DATASETS = ("random", "sharegpt", "custom", "prefix_repetition", "spec_bench")
_OTHER_DATASETS = (
    "burstgpt", "random-mm", "random-rerank", "hf", "custom_audio", "custom_image", "speed_bench",
    "timed_trace",
)  # fmt: skip

#: metric of `--percentile-metrics` -> short name, header; in the order of the table
METRICS = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
    "client_queue_time": ("Client Queue Time", "Client-side Queueing"),
    "e2el_including_client_queue": (
        "E2EL incl. Client Queue",
        "Queue-inclusive End-to-end Latency",
    ),
}
DEFAULT_METRICS = "ttft,tpot,itl"
#: what `--goodput` can bound
OBJECTIVES = ("ttft", "tpot", "e2el")

_NO_HUB = "data sets are not downloaded; save one as JSON lines for --dataset-name custom"
_NO_MEDIA = "only texts are sent; there is no multimodal input"

#: flags of vLLM that cannot be honoured here -> why
UNSUPPORTED = {
    "--use-beam-search": "beam search has no streamed answer to time",
    "--plot-timeline": "nothing is drawn; --save-result --save-detailed has every time",
    "--timeline-itl-thresholds": "nothing is drawn; --save-result --save-detailed has every time",
    "--plot-dataset-stats": "nothing is drawn; --save-result --save-detailed has every length",
    "--self-timed": "there is no --dataset-name timed_trace",
    "--no-self-timed": "there is no --dataset-name timed_trace",
    "--random-batch-size": "it is for embeddings",
    "--no-reranker": "it is for rerankers",
    "--enable-multimodal-chat": _NO_MEDIA,
    "--custom-ensure-client-side-data": _NO_MEDIA,
    "--hf-subset": _NO_HUB,
    "--hf-split": _NO_HUB,
    "--hf-name": _NO_HUB,
    "--hf-output-len": _NO_HUB,
    "--bfcl-categories": _NO_HUB,
    "--blazedit-min-distance": _NO_HUB,
    "--blazedit-max-distance": _NO_HUB,
    "--asr-max-audio-len-sec": _NO_MEDIA,
    "--asr-min-audio-len-sec": _NO_MEDIA,
    "--random-mm-base-items-per-request": _NO_MEDIA,
    "--random-mm-num-mm-items-range-ratio": _NO_MEDIA,
    "--random-mm-limit-mm-per-prompt": _NO_MEDIA,
    "--random-mm-bucket-config": _NO_MEDIA,
    "--speed-bench-dataset-subset": _NO_HUB,
    "--speed-bench-output-len": _NO_HUB,
    "--speed-bench-category": _NO_HUB,
    "--timed-trace-chunk-hash-size": "there is no --dataset-name timed_trace",
    "--timed-trace-sec-multiplier": "there is no --dataset-name timed_trace",
    "--timed-trace-label-timestamp": "there is no --dataset-name timed_trace",
    "--timed-trace-label-input-length": "there is no --dataset-name timed_trace",
    "--timed-trace-label-output-length": "there is no --dataset-name timed_trace",
    "--timed-trace-label-hash-ids": "there is no --dataset-name timed_trace",
}

#: flags of vLLM without effect here -> why
HINTS = {
    "--trust-remote-code": "code of model repositories is never run",
    "--no-stream": "data sets are read from files",
}


def make_parser() -> CommandParser:
    """The parser of the command's words."""
    parser = CommandParser("octavo bench serve", "Measure a running server.")
    _add_server(parser)
    _add_traffic(parser)
    _add_datasets(parser)
    _add_sampling(parser)
    _add_results(parser)
    for name, why in HINTS.items():
        parser.add_hint(name, why)
    for name, why in UNSUPPORTED.items():
        parser.add_unsupported(name, why)
    return parser


def _add_server(parser: CommandParser) -> None:
    group = parser.add_argument_group("the server")
    group.add_argument(
        "--backend", type=_one_of(BACKENDS, _OTHER_BACKENDS), default="openai",
        help="openai (completions), openai-chat; vllm is openai",
    )  # fmt: skip
    group.add_argument("--base-url", help="instead of --host and --port: http://host:8000")
    group.add_argument("--host", default="127.0.0.1")
    group.add_argument("--port", type=int, default=8000)
    group.add_argument("--endpoint", default="/v1/completions", help="%(default)s")
    group.add_argument(
        "--header", metavar="KEY=VALUE", type=_pair, nargs="*", help="sent with each request"
    )
    group.add_argument("--insecure", action="store_true", help="do not check certificates")
    group.add_argument("--model", help="default: the first of the server's /v1/models")
    group.add_argument("--served-model-name", help="the name in requests, if it is not --model")
    group.add_argument("--lora-modules", nargs="+", help="names to send requests to")
    group.add_argument("--lora-assignment", choices=("random", "round-robin"), default="random")
    group.add_argument("--tokenizer", help="GGUF file, folder or org/repo; default: the model's")
    group.add_argument("--tokenizer-mode", choices=("auto", "hf"), default="auto")
    group.add_argument("--skip-tokenizer-init", action="store_true", help="without a tokenizer")


def _add_traffic(parser: CommandParser) -> None:
    group = parser.add_argument_group("traffic")
    group.add_argument("--num-prompts", type=int, default=1000)
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--request-rate", type=float, default=float("inf"), help="per second")
    group.add_argument(
        "--burstiness", type=float, default=1.0, help="1: Poisson; below: bursts; above: even"
    )
    group.add_argument("--max-concurrency", type=int, help="most requests at a time")
    group.add_argument("--ramp-up-strategy", choices=("linear", "exponential"))
    group.add_argument("--ramp-up-start-rps", type=int, help="requests per second at first")
    group.add_argument("--ramp-up-end-rps", type=int, help="requests per second at last")
    group.add_argument(
        "--probe-request-rate", type=float, default=0.0,
        help="requests of one token per second beside the others, reported apart",
    )  # fmt: skip
    group.add_argument("--num-warmups", type=int, default=0, help="requests before the measurement")
    group.add_argument(
        "--ready-check-timeout-sec", type=int, default=0, help="wait so long for the server"
    )
    group.add_argument("--request-id-prefix", default=f"bench-{secrets.token_hex(4)}-")
    group.add_argument("--profile", action="store_true", help="call /start_profile, /stop_profile")
    group.add_argument("--disable-tqdm", action="store_true", help="no progress bar")


def _add_datasets(parser: CommandParser) -> None:
    group = parser.add_argument_group("prompts")
    group.add_argument(
        "--dataset-name", type=_one_of(DATASETS, _OTHER_DATASETS), default="random",
        help=", ".join(DATASETS),
    )  # fmt: skip
    group.add_argument("--dataset-path", help="file of sharegpt (JSON), custom, spec_bench (JSONL)")
    group.add_argument("--no-oversample", action="store_true", help="use each prompt once")
    group.add_argument("--disable-shuffle", action="store_true", help="in the file's order")
    group.add_argument("--skip-chat-template", action="store_true", help="for custom, spec_bench")
    group.add_argument("--chat-template-kwargs", type=_json_object, help="for custom, spec_bench")
    group.add_argument("--input-len", type=int, help="tokens of a prompt")
    group.add_argument("--output-len", type=int, help="tokens of an output")
    group.add_argument("--random-input-len", type=int, default=1024)
    group.add_argument("--random-output-len", type=int, default=128)
    group.add_argument("--random-prefix-len", type=int, default=0, help="equal in all prompts")
    group.add_argument(
        "--random-range-ratio", type=_range_ratio, default=(0.0, 0.0),
        help='lengths vary by so much: 0.3 or {"input": 0.3, "output": 0.5}',
    )  # fmt: skip
    group.add_argument("--sharegpt-output-len", type=int, help="instead of the file's answers'")
    group.add_argument("--custom-output-len", type=int, default=256, help="-1: the file says")
    group.add_argument("--spec-bench-output-len", type=int, default=256)
    group.add_argument("--spec-bench-category")
    group.add_argument("--prefix-repetition-prefix-len", type=int, default=256)
    group.add_argument("--prefix-repetition-suffix-len", type=int, default=256)
    group.add_argument("--prefix-repetition-num-prefixes", type=int, default=10)
    group.add_argument("--prefix-repetition-output-len", type=int, default=128)


#: flags of sampling; each is a field of the request
SAMPLING = (
    ("top_p", float), ("top_k", int), ("min_p", float), ("temperature", float),
    ("frequency_penalty", float), ("presence_penalty", float), ("repetition_penalty", float),
)  # fmt: skip


def _add_sampling(parser: CommandParser) -> None:
    group = parser.add_argument_group("sampling; what is not given the server decides")
    for name, kind in SAMPLING:
        group.add_argument(f"--{name.replace('_', '-')}", type=kind)
    group.add_argument("--logprobs", type=int, help="log-probabilities per token")
    group.add_argument("--ignore-eos", action="store_true", help="always so with random prompts")
    group.add_argument("--extra-body", type=_json_object, help="more fields of each request")


def _add_results(parser: CommandParser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument(
        "--percentile-metrics",
        help="of ttft,tpot,itl,e2el,client_queue_time,e2el_including_client_queue; default "
        "ttft,tpot,itl",
    )
    group.add_argument("--metric-percentiles", type=_percentiles, default=[99.0], help="50,90,99")
    group.add_argument("--goodput", nargs="+", metavar="METRIC:MS", help="of ttft, tpot, e2el")
    group.add_argument("--label", help="in the results; default: the backend")
    group.add_argument(
        "--metadata", metavar="KEY=VALUE", type=_pair, nargs="*", help="into the results"
    )
    group.add_argument("--save-result", action="store_true", help="into a JSON file")
    group.add_argument("--save-detailed", action="store_true", help="with each request's times")
    group.add_argument("--append-result", action="store_true", help="to the file, as a line")
    group.add_argument("--result-dir")
    group.add_argument("--result-filename")


def _one_of(known: Iterable[str], others: tuple[str, ...]) -> Callable[[str], str]:
    """A choice whose unsupported values are told apart from mistakes."""
    names = list(known)

    def choose(text: str) -> str:
        if text in names:
            return text
        what = "is not supported" if text in others else "does not exist"
        raise argparse.ArgumentTypeError(f"{text} {what}; there are {', '.join(names)}")

    return choose


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"takes KEY=VALUE, got {text!r}")
    return key.strip(), value.strip()


def _json_object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, got {text!r}")
    return value


def _range_ratio(text: str) -> tuple[float, float]:
    """Of input and output lengths."""
    try:
        value = json.loads(text)
        pair = (value["input"], value["output"]) if isinstance(value, dict) else (value, value)
        ratios = (float(pair[0]), float(pair[1]))
    except (ValueError, KeyError, TypeError):
        ratios = (-1.0, -1.0)
    if not all(0.0 <= ratio < 1.0 for ratio in ratios):
        raise argparse.ArgumentTypeError(
            f'must be in [0, 1), or {{"input": 0.3, "output": 0.5}}, got {text!r}'
        )
    return ratios


def _percentiles(text: str) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = [-1.0]
    if not all(0.0 <= value <= 100.0 for value in values):
        raise argparse.ArgumentTypeError(f"must be numbers in [0, 100] such as 50,99, got {text!r}")
    return values
