"""The targets, section by section: which engines run under which load, what is compared.

Each section is a function of the `Bench` that gives its rows. Engines that are not on this machine
leave their rows as `Missing`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.compare import median, rounds
from benchmarks.peers.engines import KV_TOKENS, Engines
from benchmarks.peers.in_process import Speed, best_llama_speed, llama_speed, octavo_speed
from benchmarks.peers.rows import Missing, Row
from benchmarks.peers.scenarios import SCENARIOS, Contender
from octavo.weights.facts import read_facts

Rows = list[Row | Missing]


@dataclass
class Bench:
    """What the sections share.

    Attributes:
        default: the embedded model's GGUF file.
        bf16: its weights as bfloat16 safetensors; None: not made.
        real_models: name -> GGUF file of larger models; fetched by `scripts/models.py`.
        num_rounds: of each comparison.
        left_out: names of engines that do not run.
        raw: all figures of all runs, by section, for the results file.
    """

    engines: Engines
    default: Path
    bf16: Path | None
    real_models: dict[str, Path]
    num_rounds: int
    left_out: frozenset[str]
    logs: Path
    raw: dict[str, Any] = field(default_factory=dict)

    def served(
        self, contenders: Mapping[Contender | None, Sequence[str]]
    ) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Figures by scenario and name, of those contenders that are there."""
        present = {
            who: names
            for who, names in contenders.items()
            if who is not None and who.name not in self.left_out
        }
        runs = rounds(present, count=self.num_rounds, logs=self.logs, limit_s=600)
        self.raw |= runs
        return runs

    def openvino(self, scenario: str) -> list[dict[str, Any]]:
        """Rates of OpenVINO GenAI under a scenario's load, one per round; none if not there."""
        python = self.engines.program("openvino", "bin", "python")
        folder = self.engines.program("openvino-int4")
        if python is None or folder is None:
            return []
        runs = []
        for seed in range(self.num_rounds):
            load = json.dumps({**_load_of(scenario), "seed": seed})
            words = [str(python), "-m", "benchmarks.peers.openvino", str(folder), "--load", load]
            words += ["--threads", str(self.engines.threads)]
            run = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=900)
            runs.append(json.loads(run.stdout.splitlines()[-1]))
        self.raw[f"openvino {scenario}"] = runs
        return runs


def compared(
    what: str,
    runs: dict[str, list[dict[str, Any]]],
    figure: str,
    against: Sequence[str],
    wanted: float,
    unit: str,
    *,
    is_at_most: bool = False,
    ours: str = "octavo",
) -> Row | Missing:
    """Octavo's figure beside the best of the named engines that ran; `ours` names its run."""
    present = [name for name in against if runs.get(name)]
    if not present:
        return Missing(what, f"none of {', '.join(against)} is built (scripts/build-peers.sh)")
    pick = min if is_at_most else max
    best = pick(present, key=lambda name: median(runs[name], figure))
    pairs = zip(runs[ours], runs[best], strict=True)
    spread = [mine[figure] / other[figure] for mine, other in pairs]
    mine, other = median(runs[ours], figure), median(runs[best], figure)
    return Row(what, mine, other, best, unit, wanted, is_at_most, spread)


def decode(bench: Bench) -> Rows:
    """One stream."""
    engines, model = bench.engines, bench.default
    contenders = [engines.octavo(model), engines.llama_server(model), engines.ik_server(model)]
    runs = bench.served(dict.fromkeys(contenders, ("decode",)))["decode"]
    rows = []
    for name, wanted in (("ik_llama.cpp", 0.65), ("llama.cpp", 0.45)):
        what = f"decode alone, TPOT ({name})"
        rows.append(compared(what, runs, "tpot_p50_ms", [name], wanted, "ms", is_at_most=True))
    return rows


#: of an engine's one server per round, the first with the memory of its load only
SERVED = ("serve32", "serve8", "prefill", "prefix")


def serving(bench: Bench) -> Rows:
    """Many streams, long prompts and shared ones: each engine's server goes through all loads."""
    engines, model = bench.engines, bench.default
    contenders: dict[Contender | None, Sequence[str]] = {
        engines.octavo(model): SERVED,
        engines.octavo(model, "--kv-cache-dtype", "int8", name="octavo int8 KV"): ["serve32"],
        engines.llama_server(model): SERVED,
        engines.ik_server(model): ["prefill"],
    }
    if bench.bf16 is not None:
        contenders[engines.octavo(bench.bf16, name="octavo bf16")] = ["serve32"]
        contenders[engines.vllm(bench.bf16)] = SERVED
    # first, as it is over sooner: a peer that fails should not cost the runs of all others
    offline = {scenario: bench.openvino(scenario) for scenario in ("serve32", "serve8", "prefill")}
    runs = bench.served(contenders)
    for scenario, of_openvino in offline.items():
        runs[scenario]["openvino"] = of_openvino
    many, prefill = ["openvino", "vllm", "llama.cpp"], ["openvino", "vllm", "ik_llama.cpp"]
    prefill.append("llama.cpp")
    rows: Rows = [
        compared("prefill", runs["prefill"], "total_tps", prefill, 1.5, "tok/s"),
        compared("serve8", runs["serve8"], "out_tps", many, 2.0, "out tok/s"),
        compared("serve32", runs["serve32"], "out_tps", many, 2.1, "out tok/s"),
        _memory(bench, runs["serve32"]["octavo"]),
        compared("shared prefix", runs["prefix"], "total_tps", ["vllm"], 2.5, "tok/s"),
    ]
    of = runs["serve32"]
    rows.append(
        compared(
            "serve32 with int8 KV", of, "out_tps", many, 2.1, "out tok/s", ours="octavo int8 KV"
        )
    )
    what = "bf16 safetensors, serve32"
    if bench.bf16 is None:
        rows.append(Missing(what, "its folder is made with openvino's peer"))
    else:
        rows.append(compared(what, of, "out_tps", ["vllm"], 1.4, "out tok/s", ours="octavo bf16"))
    return rows


def _memory(bench: Bench, runs: list[dict[str, Any]]) -> Row:
    """PSS after the load: stored weights, the KV that was touched, 200 MB."""
    facts = read_facts(str(bench.default))
    config: dict[str, Any] = facts.hf_config
    per_token = 4 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    first = runs[0]
    touched = min(first["n"] * first["prompt_tokens"] + first["output_tokens"], KV_TOKENS)
    limit_mb = (facts.weight_bytes * 1.02 + touched * per_token) / 2**20 + 200
    ours = median(runs, "pss_mb")
    return Row("memory after serve32", ours, limit_mb, "its limit", "MB", 1.0, is_at_most=True)


def start(bench: Bench) -> Rows:
    """From nothing to the first token."""
    engines, model = bench.engines, bench.default
    contenders = [engines.octavo(model), engines.llama_server(model), engines.ik_server(model)]
    runs = bench.served(dict.fromkeys(contenders, ("start",)))["start"]
    return [
        compared("start", runs, "ready_s", ["llama.cpp"], 0.65, "s", is_at_most=True),
    ]


def real_models(bench: Bench) -> Rows:
    """Larger files, in process."""
    program = bench.engines.program("ik_llama.cpp", "bin", "llama-bench")
    wanted = {"qwen2.5-coder-0.5b": 1.5, "gemma3-270m": 1.4}
    rows: Rows = []
    for name, path in bench.real_models.items():
        if program is None:
            rows.append(Missing(name, "ik_llama.cpp is not built (scripts/build-peers.sh)"))
            continue
        ours, theirs = _speeds(bench, program, path)
        bench.raw[name] = {
            who: [vars(speed) for speed in speeds]
            for who, speeds in (("octavo", ours), ("ik_llama.cpp", theirs))
        }
        for figure, bound in (("prefill", wanted[name]), ("decode", 1.0)):
            rows.append(_speed_row(f"{name} {figure}", figure, ours, theirs, bound))
        rows.append(_read_row(f"{name} decode, bytes of weights", ours))
    return rows


def _speeds(bench: Bench, program: Path, path: Path) -> tuple[list[Speed], list[Speed]]:
    """Octavo's and the peer's of each round."""
    ours, theirs = [], []
    threads = bench.engines.threads
    for _ in range(bench.num_rounds):
        ours.append(octavo_speed(path, threads=threads, measures_read=True))
        theirs.append(best_llama_speed(program, path, threads=threads))
    return ours, theirs


def _read_row(what: str, ours: list[Speed]) -> Row:
    """What a step reads of the weights: an embedding that is not the head, too, is not counted.

    The limit is a read of the same weights where they lie, as memory differs by where the host has
    placed it.
    """
    rates = [speed.decode * speed.step_gigabytes for speed in ours]
    spread = [rate / speed.read_gbs for rate, speed in zip(rates, ours, strict=True)]
    middle = sorted(range(len(spread)), key=spread.__getitem__)[len(spread) // 2]
    limit = ours[middle].read_gbs
    return Row(what, rates[middle], limit, "a read of them", "GB/s", 0.88, spread=spread)


def _speed_row(
    what: str,
    figure: str,
    ours: list[Speed],
    theirs: list[Speed],
    wanted: float,
    against: str = "ik_llama.cpp",
) -> Row:
    mine = sorted(getattr(speed, figure) for speed in ours)[len(ours) // 2]
    other = sorted(getattr(speed, figure) for speed in theirs)[len(theirs) // 2]
    spread = [getattr(a, figure) / getattr(b, figure) for a, b in zip(ours, theirs, strict=True)]
    return Row(what, mine, other, against, "tok/s", wanted, spread=spread)


def avx2(bench: Bench) -> Rows:
    """Both without AVX-512."""
    program = bench.engines.program("llama.cpp-avx2", "bin", "llama-bench")
    if program is None:
        return [Missing("AVX2", "scripts/build-peers.sh llama.cpp-avx2 builds the peer")]
    threads = bench.engines.threads
    ours, theirs = [], []
    for _ in range(bench.num_rounds):
        ours.append(octavo_speed(bench.default, threads=threads, isa="avx2"))
        theirs.append(llama_speed(program, bench.default, threads=threads))
    return [
        _speed_row(f"AVX2 {figure}", figure, ours, theirs, 1.0, "llama.cpp for AVX2")
        for figure in ("prefill", "decode")
    ]


def kernels(bench: Bench) -> Rows:
    """Matrix products alone, of the limits of the same moment: few rows as generated tokens, many
    as prompts.

    The bound of quantised weights at many rows is a share of the peak of int8 dot products,
    whatever the rows are multiplied with.
    """
    few = [_kernel_figures(bench, "1", "8") for _ in range(bench.num_rounds)]
    many = [_kernel_figures(bench, "512", "--prompts") for _ in range(bench.num_rounds)]
    bench.raw["kernels"] = {"few rows": few, "many rows": many}
    rows: Rows = []
    for results in zip(*(round_["rows"] for round_ in few), strict=True):
        kind, count = results[0]["kind"], results[0]["rows"]
        shares = [r["of_limit"] for r in results]
        what, wanted = f"GEMM {kind}, {count} rows", {1: 0.90, 8: 0.85}[count]
        middle = statistics.median_low(shares)
        rows.append(Row(what, middle, 1.0, "the limit", "of it", wanted, spread=shares))
    for results in zip(*(round_["rows"] for round_ in many), strict=True):
        kind, rates = results[0]["kind"], [r["gops"] for r in results]
        if kind == "BF16":
            name, wanted, shares = "bf16", 0.75, [r["of_peak"] for r in results]
        else:
            name, wanted, shares = "int8", 0.65, [r["of_int8_peak"] for r in results]
        middle = shares.index(statistics.median_low(shares))
        what = f"GEMM {kind}, {results[0]['rows']} rows of prompts"
        ours, theirs = rates[middle], rates[middle] / shares[middle]
        rows.append(Row(what, ours, theirs, f"{name} peak", "GOP/s", wanted, spread=shares))
    return rows


def _kernel_figures(bench: Bench, *rows: str) -> dict[str, Any]:
    """What `benchmarks.kernels` finds for these rows."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernels.json"
        words = [sys.executable, "-m", "benchmarks.kernels", "--kinds", "Q4_1", "BF16"]
        words += ["--threads", str(bench.engines.threads), "--json", str(out), "--rows", *rows]
        subprocess.run(words, check=True, capture_output=True)
        found: dict[str, Any] = json.loads(out.read_text())
    return found


def _load_of(scenario: str) -> dict[str, Any]:
    """A scenario's arguments as the fields of a `Load`."""
    names = {"-n": "n", "-c": "concurrency"}
    words = SCENARIOS[scenario].arguments
    pairs = zip(words[::2], words[1::2], strict=True)
    return {names.get(k, k.lstrip("-").replace("-", "_")): int(v) for k, v in pairs}


SECTIONS: dict[str, Callable[[Bench], Rows]] = {
    "start": start,
    "decode": decode,
    "serving": serving,
    "real": real_models,
    "avx2": avx2,
    "kernels": kernels,
}
