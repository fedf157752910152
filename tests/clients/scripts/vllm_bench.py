"""`vllm bench serve`, vLLM's load generator, against both routes.

Runs in: this tree's environment; starts the program of the client's.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from proofs import check, target
from tokenizer_folder import write_tokenizer

NUM_PROMPTS, INPUT_TOKENS, OUTPUT_TOKENS = 16, 48, 24
tokenizer = Path(target.work) / "tokenizer"
write_tokenizer(target.model_path, tokenizer)


def bench(name: str, *arguments: str) -> dict[str, Any]:
    """The result file of one run; fails with what the program printed."""
    result = Path(target.work) / f"{name}.json"
    command = [
        str(Path(target.python).parent / "vllm"),
        *("bench", "serve", "--base-url", target.origin, "--model", target.model),
        *("--tokenizer", str(tokenizer), "--dataset-name", "random", "--seed", "1"),
        *("--random-input-len", f"{INPUT_TOKENS}", "--random-output-len", f"{OUTPUT_TOKENS}"),
        *("--num-prompts", f"{NUM_PROMPTS}", "--max-concurrency", "4", "--ignore-eos"),
        *("--save-result", "--save-detailed", "--result-dir", target.work),
        *("--result-filename", result.name, "--disable-tqdm", *arguments),
    ]
    variables = {**os.environ, "OPENAI_API_KEY": target.key, "PYTHONPATH": "", **QUIET}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(result.read_text())
    return found


QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def complete(result: dict[str, Any]) -> None:
    """Every request was answered, token by token."""
    assert result["failed"] == 0, result["errors"]
    assert result["completed"] == NUM_PROMPTS
    assert result["output_lens"] == [OUTPUT_TOKENS] * NUM_PROMPTS
    assert result["total_output_tokens"] == NUM_PROMPTS * OUTPUT_TOKENS
    # a chunk per token and one for the end, and for the role of a chat; fewer where the program
    # was slow to read
    num_gaps = [len(gaps) for gaps in result["itls"]]
    assert max(num_gaps) <= OUTPUT_TOKENS + 1
    assert sum(num_gaps) > NUM_PROMPTS * OUTPUT_TOKENS // 2
    assert result["output_throughput"] > 0
    assert 0 < result["mean_ttft_ms"] < result["duration"] * 1000


@check("--backend openai: 16 completions of 24 tokens, streamed token by token; none failed")
def completions() -> None:
    result = bench("completions", "--backend", "openai")
    complete(result)
    assert all(abs(length - INPUT_TOKENS) <= 2 for length in result["input_lens"])


@check("--backend openai-chat: the same over chat; metrics of latency and goodput")
def chats() -> None:
    result = bench(
        *("chats", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--goodput", "ttft:60000"),
    )
    complete(result)
    assert result["p99_e2el_ms"] >= result["median_e2el_ms"] > 0
    assert result["request_goodput"] > 0


if __name__ == "__main__":
    check.main()
