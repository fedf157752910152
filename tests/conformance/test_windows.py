"""Sliding windows through the whole engine: long prompts in chunks, blocks that expire and are
reused, prefixes found in the cache; text against transformers in fp32.

The cache has blocks for a fraction of what one request would hold without expiry.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedModel

from octavo import LLM, SamplingParams
from octavo.outputs import RequestOutput
from tests.conformance.random_models import BOUND, random_model, reference

CHUNK, BLOCK_SIZE, WINDOW, MAX_MODEL_LEN = 64, 16, 40, 768
#: ceil((WINDOW - 1 + CHUNK) / BLOCK_SIZE) + 1, and as many that keep what has just expired
BLOCKS_OF_WINDOW = 8 + 8
PARAMS = SamplingParams(temperature=0.0, max_tokens=50, logprobs=0, ignore_eos=True)
#: family -> changes, and its KV groups: of all tokens and of windows
MODELS: dict[str, tuple[str, dict[str, object], tuple[int, int]]] = {
    # 5 sliding and 2 full layers: groups of two
    "gemma3": ("gemma3", {}, (1, 3)),
    # 10 sliding and 2 full layers
    "gemma3 as published": (
        "gemma3",
        {"num_hidden_layers": 12, "sliding_window_pattern": 6, "tie_word_embeddings": True},
        (1, 5),
    ),
    "mistral": ("mistral", {"sliding_window": WINDOW}, (0, 1)),
    "qwen2": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
        (1, 2),
    ),
}


@pytest.fixture(params=MODELS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[PreTrainedModel, LLM]]:
    family, changes, (num_full, num_sliding) = MODELS[request.param]
    model = random_model(family, **changes)
    model.save_pretrained(tmp_path)
    needed = num_full * MAX_MODEL_LEN // BLOCK_SIZE + num_sliding * BLOCKS_OF_WINDOW
    with LLM(
        str(tmp_path),
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=CHUNK,
        block_size=BLOCK_SIZE,
        num_gpu_blocks_override=needed + 1,
    ) as llm:
        yield model, llm


def random_ids(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 300, length).tolist()


def check(model: PreTrainedModel, output: RequestOutput) -> float:
    """The largest difference of the chosen tokens' log-probabilities; they are the likeliest."""
    completion = output.outputs[0]
    chosen = list(completion.token_ids)
    assert len(chosen) == PARAMS.max_tokens
    rows = reference(model, output.prompt_token_ids + chosen)
    rows = rows[len(output.prompt_token_ids) - 1 : -1]
    assert rows.argmax(-1).tolist() == chosen
    assert completion.logprobs is not None
    found = [entry[token].logprob for entry, token in zip(completion.logprobs, chosen, strict=True)]
    return float(np.abs(rows[np.arange(len(chosen)), chosen] - np.array(found)).max())


def test_a_prompt_of_many_windows_equals_transformers_cold_and_cached(
    engine: tuple[PreTrainedModel, LLM],
) -> None:
    model, llm = engine
    prompt = {"prompt_token_ids": random_ids(700)}
    (cold,) = llm.generate([prompt], PARAMS)
    (cached,) = llm.generate([prompt], PARAMS)
    assert cold.num_cached_tokens == 0
    assert cached.num_cached_tokens == 688  # all whole blocks but the last token's
    assert cached.outputs[0].token_ids == cold.outputs[0].token_ids
    assert cached.outputs[0].logprobs == cold.outputs[0].logprobs
    difference = check(model, cold)
    print(f"largest difference of log-probabilities {difference:.2e} (bound {BOUND:.0e})")
    assert difference <= BOUND


def test_requests_that_share_prefixes_and_too_few_blocks_equal_transformers(
    engine: tuple[PreTrainedModel, LLM],
) -> None:
    model, llm = engine
    shared = random_ids(200)
    prompts = [shared[:length] + random_ids(30, seed=length) for length in (0, 90, 130, 200)]
    prompts += [random_ids(400, seed=1), shared + random_ids(90, seed=2)]
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], PARAMS)
    differences = [check(model, output) for output in outputs]
    print(f"largest difference of log-probabilities {max(differences):.2e} (bound {BOUND:.0e})")
    assert max(differences) <= BOUND
