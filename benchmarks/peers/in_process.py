"""Figures without a server: `octavo bench latency` beside `llama-bench` and OpenVINO GenAI.

In-process figures are compared with in-process figures only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROMPT_TOKENS, DECODED_TOKENS = 512, 64
#: operations that read all of a weight
WEIGHT_OPS = ("LINEAR", "LINEAR_ACT_MUL", "LM_HEAD")


@dataclass(frozen=True)
class Speed:
    """Tokens per second of one request.

    Attributes:
        read_gbs: at which the threads read the weights where they lie, if it was measured.
        step_gigabytes: of weights that a step reads, then.
    """

    prefill: float
    decode: float
    read_gbs: float = 0.0
    step_gigabytes: float = 0.0


def octavo_speed(
    model: Path, *, threads: int, isa: str | None = None, measures_read: bool = False
) -> Speed:
    """A prompt of `PROMPT_TOKENS` and `DECODED_TOKENS` more, alone."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        words = [sys.executable, "-m", "octavo", "bench", "latency", "--model", str(model)]
        words += ["--input-len", str(PROMPT_TOKENS), "--output-len", str(DECODED_TOKENS + 1)]
        words += ["--batch-size", "1", "--num-iters", "5", "--num-iters-warmup", "1"]
        words += ["--max-num-batched-tokens", str(PROMPT_TOKENS), "--max-model-len", "1024"]
        words += ["--cpu-threads", str(threads), "--disable-detokenize"]
        words += ["--output-json", str(out), *(["--isa", isa] if isa else [])]
        words += ["--profile"] * measures_read
        subprocess.run(words, check=True, capture_output=True)
        figures = json.loads(out.read_text())
    speed = figures["prefill_tokens_per_second"], figures["decode_tokens_per_second"]
    if not measures_read:
        return Speed(*speed)
    profile = figures["profile"]
    read = sum(op["bytes"] for op in profile["ops"] if op["op"] in WEIGHT_OPS)
    return Speed(*speed, profile["limits"]["read"] / 1e9, read / profile["num_steps"] / 1e9)


def llama_speed(program: Path, model: Path, *, threads: int, repack: bool = False) -> Speed:
    """The same from a llama-bench.

    Args:
        repack: ik_llama.cpp's repacking at load (`-rtr 1`).
    """
    words = [str(program), "-m", str(model), "-t", str(threads), "-r", "5", "-o", "json"]
    words += ["-p", str(PROMPT_TOKENS), "-n", str(DECODED_TOKENS), *(["-rtr", "1"] * repack)]
    run = subprocess.run(words, check=True, capture_output=True, text=True)
    tests = json.loads(run.stdout[run.stdout.index("[") :])
    prefill = next(test["avg_ts"] for test in tests if test["n_prompt"] and not test["n_gen"])
    decode = next(test["avg_ts"] for test in tests if test["n_gen"] and not test["n_prompt"])
    return Speed(prefill, decode)


def best_llama_speed(program: Path, model: Path, *, threads: int) -> Speed:
    """Of plain and repacked: the better one for each figure."""
    speeds = [
        llama_speed(program, model, threads=threads, repack=repack) for repack in (False, True)
    ]
    return Speed(max(s.prefill for s in speeds), max(s.decode for s in speeds))
