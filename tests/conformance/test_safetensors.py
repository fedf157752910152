"""Folders of config.json and safetensors, as transformers writes them, from disk to text.

SmolLM2's weights in float32 and (in shards) bfloat16, and tiny random Llamas.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from octavo import LLM, SamplingParams
from octavo.errors import ConfigError
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from tests.conformance.gguf_reference import llama_from_gguf
from tests.conformance.random_models import (
    BOUND,
    DEFAULT_MODEL_BOUND,
    compare,
    random_model,
    reference,
)
from tests.conformance.tokenizer_reference import reference_tokenizer
from tests.fakes.worker_rig import WorkerRig
from tests.integration.server import serving

#: on log-probabilities of bfloat16 arithmetic against fp32 over the same weights
BFLOAT16_BOUND = 0.5
PROMPTS = ["The capital of France is", "def add(a, b):\n", "Once upon a time"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


@dataclass(frozen=True)
class Checkpoints:
    """Folders, and the models in them, in fp32."""

    gguf: str
    tokenizer: Any
    float32: Path
    bfloat16: Path  # in shards
    tiny: Path
    models: dict[Path, PreTrainedModel]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, default_model: str) -> Checkpoints:
    base = tmp_path_factory.mktemp("checkpoints")
    float32, bfloat16, tiny = base / "float32", base / "bfloat16", base / "tiny"
    tokenizer = reference_tokenizer(default_model)
    exact = llama_from_gguf(default_model)
    exact.save_pretrained(float32)
    copy.deepcopy(exact).to(torch.bfloat16).save_pretrained(bfloat16, max_shard_size="60MB")
    small = random_model(
        vocab_size=exact.config.vocab_size,
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    small.save_pretrained(tiny)
    for folder in (float32, bfloat16, tiny):
        tokenizer.save_pretrained(folder)
    rounded = LlamaForCausalLM.from_pretrained(
        bfloat16, dtype=torch.float32, attn_implementation="eager"
    )
    models = {float32: exact, bfloat16: rounded.eval(), tiny: small}
    return Checkpoints(default_model, tokenizer, float32, bfloat16, tiny, models)


def check_rig(made: Checkpoints, folder: Path, dtype: str, bound: float) -> None:
    """The whole vocabulary's log-probabilities over a prompt in chunks, against transformers."""
    facts, checkpoint = read_facts(str(folder)), open_checkpoint(str(folder))
    tensors = {name: checkpoint.get(name) for name in checkpoint.tensor_names}
    rig = WorkerRig(facts.hf_config, tensors, dtype=dtype)
    ids = np.random.default_rng(3).integers(0, facts.vocab_size, 40).tolist()
    compare(rig, made.models[folder], ids, chunk=25, bound=bound)
    checkpoint.close()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "tiny"])
def test_fp32_log_probabilities_equal_transformers(made: Checkpoints, name: str) -> None:
    bound = BOUND if name == "tiny" else DEFAULT_MODEL_BOUND
    check_rig(made, getattr(made, name), "float32", bound)


def test_bfloat16_log_probabilities_are_near_fp32(made: Checkpoints) -> None:
    check_rig(made, made.bfloat16, "bfloat16", BFLOAT16_BOUND)


# ---- the whole way, through LLM


def texts(llm: LLM, prompts: list[str] = PROMPTS) -> list[str]:
    """Greedy texts; the LLM is closed afterwards."""
    with llm:
        return [output.outputs[0].text for output in llm.generate(prompts, GREEDY)]


def test_llm_gives_transformers_log_probabilities(made: Checkpoints) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=5, logprobs=5)
    with LLM(str(made.float32), dtype="float32") as llm:
        (output,) = llm.generate(["The quick brown fox jumps over the lazy"], params)
    rows = reference(made.models[made.float32], output.prompt_token_ids)
    assert output.prompt_logprobs is not None
    assert output.outputs[0].logprobs is not None
    entries = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
    differences = []
    for row, entry in zip(rows, entries, strict=True):
        assert entry is not None
        assert set(np.argsort(row)[-5:].tolist()) <= set(entry)
        differences += [abs(one.logprob - row[token_id]) for token_id, one in entry.items()]
    print(f"largest difference {max(differences):.2e} (bound {DEFAULT_MODEL_BOUND:.0e})")
    assert max(differences) <= DEFAULT_MODEL_BOUND


def test_float32_text_equals_that_of_the_gguf_file_and_transformers(made: Checkpoints) -> None:
    folder = texts(LLM(str(made.float32), dtype="float32"))
    assert folder == texts(LLM(made.gguf, dtype="float32"))
    for prompt, text in zip(PROMPTS, folder, strict=True):
        ids = made.tokenizer(prompt)["input_ids"]
        # what transformers would say next at each place of that text
        said = made.tokenizer(text)["input_ids"]
        expected = reference(made.models[made.float32], ids + said)[len(ids) - 1 : -1].argmax(-1)
        assert expected.tolist() == said


@pytest.mark.parametrize(
    ("name", "dtype", "sentence"),
    [
        ("bfloat16", "auto", r"dtype auto: bfloat16 \(.*fastest type for a bfloat16 checkpoint"),
        ("bfloat16", "bfloat16", "dtype bfloat16 as given .the checkpoint holds bfloat16"),
        ("bfloat16", "float32", "dtype float32 as given .the checkpoint holds bfloat16"),
        ("float32", "auto", "--dtype float32 keeps all bits of the weights"),
        ("float32", "float32", "dtype float32 as given .the checkpoint holds float32"),
    ],
)
def test_c124_each_dtype_works_and_says_why(
    made: Checkpoints, caplog: pytest.LogCaptureFixture, name: str, dtype: str, sentence: str
) -> None:
    folder = getattr(made, name)
    caplog.set_level(logging.INFO, "octavo")
    answers = texts(LLM(str(folder), dtype=dtype), [PROMPTS[0]])
    assert answers[0].startswith(" Paris")
    assert re.search(sentence, caplog.text), caplog.text
    # what is kept of the weights is what is computed with
    kept = re.search(r"weights are (\w+) with \w+ activations \((\d+\.\d) MiB\)", caplog.text)
    assert kept, caplog.text
    assert kept[1] == ("F32" if dtype == "float32" else "BF16")
    num_weights = sum(p.numel() for p in made.models[folder].parameters())  # tied ones once
    expected_mib = num_weights * (4 if kept[1] == "F32" else 2) / 2**20
    assert expected_mib - 0.1 <= float(kept[2]) <= expected_mib * 1.02


@pytest.mark.parametrize("dtype", ["float16", "half"])
def test_c124_float16_is_refused_with_a_reason(made: Checkpoints, dtype: str) -> None:
    with pytest.raises(ConfigError, match=r"float16 is not supported on CPU: .* use --dtype auto"):
        LLM(str(made.bfloat16), dtype=dtype)


# ---- the files beside the weights


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_chat_takes_the_template_from_either_file(
    made: Checkpoints, tmp_path: Path, where: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(made.tiny, folder)
    source = folder / "chat_template.jinja"
    assert source.exists()
    if where == "tokenizer_config.json":
        config = json.loads((folder / where).read_text())
        (folder / where).write_text(json.dumps(config | {"chat_template": source.read_text()}))
        source.unlink()
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    messages.append({"role": "user", "content": "What is 2+2?"})
    with LLM(str(folder)) as llm:
        (output,) = llm.chat(messages, GREEDY)
    expected = made.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert output.prompt == expected
    assert output.prompt_token_ids == made.tokenizer(expected)["input_ids"]


GENERATION_CONFIG = {"temperature": 0.3, "top_k": 7, "eos_token_id": [2, 11], "do_sample": True}
SAID = "sampling defaults from the model's generation_config.json: temperature=0.3, top_k=7"


@pytest.fixture
def with_defaults(made: Checkpoints, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(made.tiny, folder)
    (folder / "generation_config.json").write_text(json.dumps(GENERATION_CONFIG))
    return folder


def test_c55_sampling_defaults_are_said_once_and_can_be_turned_off(
    with_defaults: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "octavo")
    with LLM(str(with_defaults)) as llm:
        defaults = llm.get_default_sampling_params()
        (drawn,) = llm.generate(["a"], SamplingParams(temperature=0.0, max_tokens=4))
    assert caplog.text.count(SAID) == 1
    assert (defaults.temperature, defaults.top_k) == (0.3, 7)
    with LLM(str(with_defaults), generation_config="vllm") as llm:
        defaults = llm.get_default_sampling_params()
        (same,) = llm.generate(["a"], SamplingParams(temperature=0.0, max_tokens=4))
    assert caplog.text.count(SAID) == 1
    assert (defaults.temperature, defaults.top_k) == (1.0, SamplingParams().top_k)
    assert same.outputs[0].token_ids == drawn.outputs[0].token_ids


def test_c55_the_server_says_them_once_and_a_request_comes_first(
    with_defaults: Path, tmp_path: Path
) -> None:
    with serving(tmp_path / "log", model=str(with_defaults)) as server:
        assert server.log.count(SAID) == 1
        body = {"prompt": "a", "max_tokens": 8, "ignore_eos": True}
        greedy = server.complete("a", max_tokens=8, ignore_eos=True)["choices"][0]["text"]
        status, answer = server.post(
            "/v1/completions", {**body, "top_k": 1, "temperature": 1.0, "seed": 3}
        )
        assert (status, answer["choices"][0]["text"]) == (200, greedy)
        drawn = {
            server.post("/v1/completions", {**body, "seed": seed})[1]["choices"][0]["text"]
            for seed in range(6)
        }
        assert len(drawn) > 1  # temperature 0.3 and top_k 7, not greedy
        server.is_alive()  # a chat, with the folder's template
