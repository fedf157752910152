"""Real models in fp32 against transformers: log-probabilities, and token ids of any text."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
import torch

from octavo.sampling_params import SamplingParams
from octavo.tokenizer.tokenizer import load_tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from tests.fakes.vocabularies import CORPUS
from tests.fakes.worker_rig import WorkerRig
from tests.models.conftest import RealModel
from tests.models.texts import LICENSE, PROMPTS, SOURCES

BOUND = 1e-3  # on log-probabilities
NUM_TOP = 20  # of prompt positions; the last position reports the whole vocabulary
MAX_TOKENS = 700  # more than Gemma's window of 512, and than a chunk
CHUNK = 256


@pytest.fixture(autouse=True)
def _transformers_deprecations(recwarn: pytest.WarningsRecorder) -> None:
    """Keeps transformers' own warnings from being errors here."""


def test_fp32_log_probabilities_equal_transformers(real: RealModel) -> None:
    facts, checkpoint = read_facts(real.path), open_checkpoint(real.path)
    tensors = {name: checkpoint.get(name) for name in checkpoint.tensor_names}
    rig = WorkerRig(
        facts.hf_config,
        tensors,
        architecture=facts.architecture,
        max_model_len=MAX_TOKENS + 8,
        max_tokens=CHUNK,
        max_requests=2,
    )
    prompts = [real.tokenizer(text)["input_ids"] for text in PROMPTS]
    prompts.append(real.tokenizer(LICENSE)["input_ids"][:MAX_TOKENS])
    assert len(prompts[-1]) == MAX_TOKENS
    largest = 0.0
    for number, ids in enumerate(prompts):
        difference = largest_difference(rig, f"{number}", ids, log_probabilities(real, ids))
        print(f"{real.name}, {len(ids)} tokens: {difference:.2e} (bound {BOUND:.0e})")
        largest = max(largest, difference)
    rig.close()
    checkpoint.close()
    assert largest <= BOUND


def log_probabilities(real: RealModel, ids: list[int]) -> torch.Tensor:
    """[len(ids), vocab]."""
    with torch.inference_mode():
        return torch.log_softmax(real.reference(torch.tensor([ids])).logits[0], dim=-1)


def largest_difference(rig: WorkerRig, name: str, ids: list[int], expected: torch.Tensor) -> float:
    """Over the likeliest tokens of each prompt position and all tokens of the next."""
    rig.add(name, ids, SamplingParams(temperature=0.0, prompt_logprobs=NUM_TOP, logprobs=-1))
    got = rig.generate(name, 1, chunk=CHUNK)
    rig.finish(name)
    largest = 0.0
    for row, entry in zip(expected, [*got.prompt_logprobs[1:], *got.logprobs], strict=True):
        assert entry is not None
        values = np.array(entry.logprobs) - row[torch.tensor(entry.token_ids)].numpy()
        largest = max(largest, float(np.abs(values).max()))
    assert got.token_ids == [int(expected[-1].argmax())]
    return largest


def test_token_ids_and_texts_equal_transformers(real: RealModel) -> None:
    ours = load_tokenizer(real.path)
    # the original tokenizer.json of Qwen normalises, which transformers' reading of GGUF leaves out
    form = "NFC" if real.name.startswith("qwen") else None
    for text in [*CORPUS, *PROMPTS, LICENSE, *(p.read_text() for p in SOURCES)]:
        expected = real.tokenizer(unicodedata.normalize(form, text) if form else text)["input_ids"]
        assert ours.encode(text) == expected, text[:80]
        assert ours.decode(expected) == real.tokenizer.decode(
            expected, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
