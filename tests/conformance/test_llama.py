"""LlamaForCausalLM against transformers: log-probabilities over the whole vocabulary, in fp32.

Both backends, tiny random models of every variant, and the default model itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from octavo.ops.backend import Backend
from octavo.ops.interface import StoredTensor
from octavo.ops.torch import TorchBackend
from octavo.sampling_params import SamplingParams
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from tests.conformance.gguf_reference import llama_from_gguf
from tests.conformance.test_rope import LLAMA3, YARN
from tests.fakes.memory_checkpoint import float_tensor
from tests.fakes.worker_rig import WorkerRig, native_backend

#: on log-probabilities; the default model is deeper and its vocabulary larger
BOUND, DEFAULT_MODEL_BOUND = 1e-4, 1e-3
BACKENDS: dict[str, Callable[[str], Backend]] = {
    "native": native_backend,
    "torch": lambda dtype: TorchBackend("cpu", dtype),
}
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "multi-head": {"num_key_value_heads": 8},
    "multi-query": {"num_key_value_heads": 1},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "head size of its own": {"head_dim": 48},
    "gelu": {"hidden_act": "gelu"},
    "gelu tanh": {"hidden_act": "gelu_pytorch_tanh"},
    "llama3 rope": {"rope_parameters": LLAMA3 | {"rope_theta": 500000.0}},
    "yarn rope": {"rope_parameters": YARN | {"rope_theta": 10000.0}},
}


def random_model(**changes: object) -> LlamaForCausalLM:
    """Weights a few times larger than initial ones, so that attention is far from uniform."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": 300,
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "initializer_range": 0.1,
            "attn_implementation": "eager",
            **changes,
        }
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def tensors_of(model: PreTrainedModel) -> dict[str, StoredTensor]:
    return {
        name: float_tensor(name, value.detach().numpy())
        for name, value in model.state_dict().items()
    }


def reference(model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """[len(ids), vocab] log-probabilities."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0]
    return torch.log_softmax(logits.float(), dim=-1).numpy()


def computed(rig: WorkerRig, ids: list[int], chunk: int) -> np.ndarray:
    """The same from prompt logprobs of the whole vocabulary and the first token's logprobs."""
    rig.add("a", ids, SamplingParams(temperature=0.0, logprobs=-1, prompt_logprobs=-1))
    got = rig.generate("a", 1, chunk=chunk)
    assert got.prompt_logprobs[0] is None
    rows = []
    for entry in [*got.prompt_logprobs[1:], *got.logprobs]:
        assert entry is not None
        row = np.full(len(entry.token_ids) - 1, np.nan)
        row[entry.token_ids[1:]] = entry.logprobs[1:]
        rows.append(row)
    return np.array(rows)


def compare(
    rig: WorkerRig, model: PreTrainedModel, ids: list[int], *, chunk: int, bound: float
) -> None:
    maximum = float(np.abs(computed(rig, ids, chunk) - reference(model, ids)).max())
    rig.close()
    print(f"largest difference of log-probabilities {maximum:.2e} (bound {bound:.0e})")
    assert maximum <= bound


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_random_model_equals_transformers(variant: str, backend: str) -> None:
    model = random_model(**VARIANTS[variant])
    rig = WorkerRig(model.config.to_dict(), tensors_of(model), make_backend=BACKENDS[backend])
    ids = np.random.default_rng(3).integers(0, 300, 150).tolist()
    compare(rig, model, ids, chunk=64, bound=BOUND)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_default_model_equals_transformers(backend: str, default_model: str) -> None:
    model = llama_from_gguf(default_model)
    facts, checkpoint = read_facts(default_model), open_checkpoint(default_model)
    tensors = {name: checkpoint.get(name) for name in checkpoint.tensor_names}
    rig = WorkerRig(facts.hf_config, tensors, make_backend=BACKENDS[backend])
    ids = np.random.default_rng(3).integers(0, facts.vocab_size, 40).tolist()
    compare(rig, model, ids, chunk=25, bound=DEFAULT_MODEL_BOUND)
