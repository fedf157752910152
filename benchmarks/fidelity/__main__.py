"""Measures every checkpoint by every route, and writes the table of docs/fidelity.md.

    python -m benchmarks.fidelity [--models ...] [--windows 4] [--llama-perplexity PROGRAM]

Knows nothing of: how anything is computed.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.fidelity.corpus import FIRST_SCORED, NUM_WINDOWS, PROMPTS, TEXT_PATH, WINDOW
from benchmarks.fidelity.corpus import windows as text_windows
from benchmarks.fidelity.files import MODELS, CheckpointFile, checkpoint_files
from benchmarks.fidelity.llama_cpp import llama_perplexity
from benchmarks.fidelity.measure import NUM_GREEDY_TOKENS, Measurement, measure
from benchmarks.fidelity.report import Part, Row, merge_json, write_markdown
from benchmarks.fidelity.routes import REFERENCE, Route, open_llm, prompt_type
from benchmarks.fidelity.scores import compare
from octavo import __version__
from octavo.config.flags.table import BY_FIELD
from octavo.ops.library import load_library
from octavo.ops.program import ElementType
from octavo.platforms.cpu import cpu_facts
from octavo.tokenizer.tokenizer import load_tokenizer

BACKENDS = ("native", "torch")
NARROW_CACHES = ("int8", "fp8")
#: what quantised weights read prompts in, in words
READ = {
    ElementType.A8: "int8 activations",
    ElementType.A8R: "rotated int8 prompts",
    ElementType.BF16: "bfloat16 prompts",
}
ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument(
        "--models",
        nargs="+",
        default=MODELS,
        choices=MODELS,
        help="measured now; the rows of others stay as they are",
    )
    parser.add_argument("--windows", type=int, default=NUM_WINDOWS, help=f"of {WINDOW} tokens")
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--cpu-threads", type=int, help="no figure depends on it")
    parser.add_argument("--llama-perplexity", metavar="PROGRAM", help="compare with llama.cpp")
    parser.add_argument("--llama-quantize", metavar="PROGRAM", help="measure its kinds as well")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/fidelity.json")
    parser.add_argument("--markdown", type=Path, default=ROOT / "docs/fidelity.md")
    args = parser.parse_args()

    files = checkpoint_files(tuple(args.models), args.llama_quantize)
    num_runs = sum(len(routes_of(file, args.backends)) for file in files)
    facts = facts_of_run(args.windows)
    parts = {model: Part(facts, []) for model in args.models}
    with tqdm(total=num_runs * (args.windows + 1), unit="window", dynamic_ncols=True) as bar:
        for file in files:
            rows = measure_file(
                file, routes_of(file, args.backends), args.windows, args.cpu_threads, bar
            )
            if args.llama_perplexity and file.is_gguf:
                rows.append(ask_llama(args.llama_perplexity, file, args.windows, rows[0]))
            parts[file.model].rows.extend(rows)
    write_markdown(args.markdown, merge_json(args.json, parts))
    print(f"wrote {args.json} and {args.markdown}")


def routes_of(file: CheckpointFile, backends: Sequence[str]) -> list[Route]:
    """The reference first, then every other way this build can compute the file."""
    as_stored = [Route("native", "auto")]
    if prompt_type() != ElementType.A8:
        as_stored.append(Route("native", "auto", prompt_dtype="int8"))
    if file.is_gguf and file.is_made:
        return [REFERENCE, *as_stored]
    routes = [REFERENCE, Route("native", "bfloat16")]
    if file.is_gguf:
        supported = BY_FIELD["kv_cache_dtype"].supported or ()
        caches = [name for name in NARROW_CACHES if name in supported]
        routes += [*as_stored, *(Route("native", "auto", name) for name in caches)]
    if "torch" in backends:
        routes += [Route("torch", "float32"), Route("torch", "bfloat16")]
    return routes


def measure_file(
    file: CheckpointFile,
    routes: Sequence[Route],
    num_windows: int,
    cpu_threads: int | None,
    bar: Any,
) -> list[Row]:
    """One row for each route."""
    windows = text_windows(load_tokenizer(file.tokenizer), num_windows)
    rows = []
    reference: Measurement | None = None
    for route in routes:
        bar.set_description(f"{file.model} {file.weights} {route.name}")
        with open_llm(
            file.path,
            route,
            tokenizer=file.tokenizer,
            max_model_len=WINDOW + NUM_GREEDY_TOKENS,
            max_num_seqs=len(PROMPTS),
            max_num_batched_tokens=256,
            cpu_threads=cpu_threads,
        ) as llm:
            found = measure(llm, windows, bar.update)
        reference = reference or found
        scores = compare(found, reference)
        rows.append(
            Row(
                file.weights,
                described(route),
                cache_of(route),
                scores.perplexity,
                scores.ratio,
                scores,
                round(found.seconds, 1),
            )
        )
    return rows


def described(route: Route) -> str:
    """The arithmetic in words."""
    if route.dtype == "auto":
        read_as = ElementType.A8 if route.prompt_dtype == "int8" else prompt_type()
        return f"{route.backend}, as stored, {READ[read_as]}"
    return f"{route.backend}, {route.dtype}"


def cache_of(route: Route) -> str:
    """Element type of the cache."""
    if route.kv_cache_dtype != "auto":
        return route.kv_cache_dtype
    return "float32" if route.dtype == "float32" else "bfloat16"


def ask_llama(program: str, file: CheckpointFile, num_windows: int, exact: Row) -> Row:
    """llama.cpp on the same file and text, against our fp32."""
    found = llama_perplexity(program, file.path, num_windows, cpu_facts().num_physical_cores)
    return Row(file.weights, "llama.cpp", "float16", found, found / exact.perplexity, None, 0.0)


def facts_of_run(num_windows: int) -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    cpu = cpu_facts()
    return {
        "text_sha256": hashlib.sha256(TEXT_PATH.read_bytes()).hexdigest(),
        "window": WINDOW,
        "windows": num_windows,
        "places": num_windows * (WINDOW - FIRST_SCORED),
        "prompts": len(PROMPTS),
        "machine": {
            "CPU": cpu.cpu_name,
            "instructions": load_library(None).isa,
            "cores": cpu.num_physical_cores,
        },
        "versions": {
            "octavo": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "torch")},
        },
    }


if __name__ == "__main__":
    main()
