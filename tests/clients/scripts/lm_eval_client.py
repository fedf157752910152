"""lm-evaluation-harness' `local-completions`: log-likelihoods by echo, compared with `octavo.LLM`.

The task is a local file, since the usual data sets lie on a hub. Each pair is tokenised here as
lm-eval does it (`_encode_pair`) and scored offline, with the same weights in float32.

Runs in: this tree's environment; starts the program of the client's.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from proofs import check, target
from tokenizer_folder import write_tokenizer

from octavo import LLM, SamplingParams
from octavo.tokenizer.tokenizer import load_tokenizer

BOUND = 1e-3
TASKS = Path(__file__).resolve().parents[1] / "tasks"
PAIRS = [json.loads(line) for line in (TASKS / "pairs.jsonl").read_text().splitlines()]
FOLDER = Path(target.work)
write_tokenizer(target.model_path, FOLDER / "tokenizer")
task = (TASKS / "octavo_pairs.yaml").read_text()
(FOLDER / "octavo_pairs.yaml").write_text(task.replace("PAIRS", str(TASKS / "pairs.jsonl")))


def evaluate(name: str, **model_args: object) -> list[tuple[float, bool]]:
    """What lm-eval logged for each pair, in their order: log-likelihood, and is it greedy."""
    given = {
        "model": target.model,
        "base_url": f"{target.url}/completions",
        "tokenizer": FOLDER / "tokenizer",  # a remote one is asked instead
        "num_concurrent": 1,
        "max_retries": 1,
        "max_length": 2048,
        **model_args,
    }
    command = [
        *(target.python, "-m", "lm_eval", "--model", "local-completions"),
        *("--model_args", ",".join(f"{key}={value}" for key, value in given.items())),
        *("--tasks", "octavo_pairs", "--include_path", str(FOLDER), "--batch_size", "4"),
        *("--output_path", str(FOLDER / name), "--log_samples"),
    ]
    variables = {**os.environ, "OPENAI_API_KEY": target.key, "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = (FOLDER / name).rglob("samples_octavo_pairs_*.jsonl")
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    found = {sample["doc_id"]: sample["filtered_resps"][0] for sample in samples}
    return [_pair(found[index]) for index in range(len(PAIRS))]


def _pair(logged: Any) -> tuple[float, bool]:
    loglikelihood, is_greedy = logged
    return float(loglikelihood), str(is_greedy) == "True"


@cache
def expected() -> list[tuple[float, bool]]:
    """The same of Octavo's offline API."""
    tokenizer = load_tokenizer(target.model_path)
    contexts, prompts = [], []
    for pair in PAIRS:
        context, continuation = pair["context"], pair["continuation"]
        if context:
            num_spaces = len(context) - len(context.rstrip())
            cut = len(context) - num_spaces
            own = tokenizer.encode(context[:cut])
            ids = own + tokenizer.encode(context + continuation)[len(own) :]
        else:
            assert tokenizer.bos_token_id is not None
            own = [tokenizer.bos_token_id]
            ids = own + tokenizer.encode(continuation)
        contexts.append(len(own))
        prompts.append(ids)
    llm = LLM(target.model_path, dtype="float32", max_model_len=2048)
    outputs = llm.generate(
        prompts, SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1), use_tqdm=False
    )
    results = []
    for output, ids, num_context in zip(outputs, prompts, contexts, strict=True):
        assert output.prompt_logprobs is not None
        chosen = [
            entry[token_id]
            for entry, token_id in zip(
                output.prompt_logprobs[num_context:], ids[num_context:], strict=True
            )
            if entry is not None
        ]
        results.append((sum(one.logprob for one in chosen), all(one.rank == 1 for one in chosen)))
    return results


def compare(found: list[tuple[float, bool]]) -> None:
    differences = [
        abs(own - offline) for (own, _), (offline, _) in zip(found, expected(), strict=True)
    ]
    assert max(differences) <= BOUND, differences
    assert [is_greedy for _, is_greedy in found] == [is_greedy for _, is_greedy in expected()]
    assert {is_greedy for _, is_greedy in found} == {False, True}


@check(
    f"loglikelihood of {len(PAIRS)} pairs as token ids: within 1e-3 of `octavo.LLM`, greedy alike",
    "exact",
)
def token_ids() -> None:
    compare(evaluate("ids"))


@check(
    "the same with its remote tokenizer (/tokenizer_info, /tokenize), four requests at a time",
    "exact",
)
def remote_tokenizer() -> None:
    compare(evaluate("remote", num_concurrent=4, tokenizer_backend="remote"))


if __name__ == "__main__":
    check.main()
