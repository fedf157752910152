"""Every architecture against transformers: log-probabilities over the whole vocabulary, in fp32.

Both backends, tiny random models of every variant: the native one from a folder in shards as
transformers writes it, and from a GGUF file; and the default model itself. Prompts are longer than
every window and computed in chunks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.ops.ggml_type import GGMLType
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.facts import read_facts
from tests.conformance.gguf_export import write_model
from tests.conformance.gguf_reference import llama_from_gguf
from tests.conformance.random_models import (
    BACKENDS,
    BOUND,
    DEFAULT_MODEL_BOUND,
    FAMILIES,
    SCORE_CAP,
    compare,
    random_model,
    tensors_of,
)
from tests.conformance.test_rope import LLAMA3, YARN
from tests.fakes.worker_rig import WorkerRig

#: random bytes of quantised types make logits several times larger
QUANTISED_BOUND = 1e-3
SLIDING, FULL = "sliding_attention", "full_attention"
#: what only one family can have
OF_FAMILY: dict[str, dict[str, dict[str, object]]] = {
    "llama": {
        "biases": {"attention_bias": True, "mlp_bias": True},
        "gelu": {"hidden_act": "gelu"},
        "gelu tanh": {"hidden_act": "gelu_pytorch_tanh"},
    },
    "mistral": {
        "window": {"sliding_window": 40},
        "window of a part of a block": {"sliding_window": 7},
    },
    "qwen2": {
        "window of later layers": {
            "use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1,
        },
        "layer types": {
            "use_sliding_window": True, "sliding_window": 40,
            "layer_types": [SLIDING, FULL, SLIDING],
        },
        "window that is not used": {"use_sliding_window": False, "sliding_window": 40},
    },
    "qwen3": {
        "biases": {"attention_bias": True},
        "window of later layers": {
            "use_sliding_window": True, "sliding_window": 40, "max_window_layers": 2,
        },
    },
    "gemma3": {
        "pattern of six": {"num_hidden_layers": 13, "sliding_window_pattern": 6},
        "layer types": {
            "num_hidden_layers": 4, "layer_types": [FULL, SLIDING, SLIDING, FULL],
        },
        "only sliding layers": {"num_hidden_layers": 2},
        "scaled global rope": {
            "rope_parameters": {
                FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
                SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
            }
        },
        "other bases": {
            "rope_parameters": {
                FULL: {"rope_type": "default", "rope_theta": 500_000.0},
                SLIDING: {"rope_type": "default", "rope_theta": 5_000.0},
            }
        },
        "capped logits": {"final_logit_softcapping": 3.0},
        "capped scores": {
            "attn_logit_softcapping": SCORE_CAP, "attn_implementation": "capped",
        },
        "biases": {"attention_bias": True},
    },
}  # fmt: skip
#: what all can have; Gemma's rotary parameters are tables of their own
OF_ALL: dict[str, dict[str, object]] = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "multi-head": {"num_key_value_heads": 8},
    "multi-query": {"num_key_value_heads": 1},
    "head size of its own": {"head_dim": 48},
}
ROPES: dict[str, dict[str, object]] = {
    "llama3 rope": {"rope_parameters": LLAMA3 | {"rope_theta": 500000.0}},
    "yarn rope": {"rope_parameters": YARN | {"rope_theta": 10000.0}},
}
VARIANTS = {
    f"{family}, {name}": (family, changes)
    for family in FAMILIES
    for name, changes in (
        OF_ALL | ({} if family == "gemma3" else ROPES) | OF_FAMILY[family]
    ).items()
    if not (family == "qwen2" and "head_dim" in changes)  # transformers' Qwen2 has no such key
}
IDS = np.random.default_rng(3).integers(0, 300, 150).tolist()


def check_files(path: Path, architecture: str, **comparison: object) -> None:
    """A folder or file as a worker reads it."""
    facts, checkpoint = read_facts(str(path)), open_checkpoint(str(path))
    tensors = {name: checkpoint.get(name) for name in checkpoint.tensor_names}
    assert facts.architecture == architecture
    rig = WorkerRig(facts.hf_config, tensors, architecture=architecture)
    compare(rig, ids=IDS, chunk=64, **comparison)  # type: ignore[arg-type]
    checkpoint.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_folder_in_shards_equals_transformers(variant: str, tmp_path: Path) -> None:
    family, changes = VARIANTS[variant]
    model = random_model(family, **changes)
    model.save_pretrained(tmp_path, max_shard_size="500KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    check_files(tmp_path, FAMILIES[family].architecture, model=model, bound=BOUND)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_torch_backend_equals_transformers(variant: str) -> None:
    family, changes = VARIANTS[variant]
    model = random_model(family, **changes)
    rig = WorkerRig(
        model.config.to_dict(),
        tensors_of(model),
        architecture=FAMILIES[family].architecture,
        make_backend=BACKENDS["torch"],
    )
    compare(rig, model, IDS, chunk=64, bound=BOUND)


#: file's matrices by the ends of their names; what is not named has the first type
GGUF_KINDS: dict[str, dict[str, GGMLType]] = {
    "F32": {"": GGMLType.F32},
    "Q8_0": {"": GGMLType.Q8_0},
    "Q4_K": {"": GGMLType.Q4_K},
    # as real Q4_K_M files have it
    "mixed": {
        "": GGMLType.Q5_0,
        "attn_v.weight": GGMLType.Q8_0,
        "attn_output.weight": GGMLType.Q4_K,
        "ffn_down.weight": GGMLType.Q6_K,
        "token_embd.weight": GGMLType.Q6_K,
        "output.weight": GGMLType.Q8_0,
    },
}
GGUF_VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("llama", {}),
    "llama, biases": ("llama", {"attention_bias": True}),
    "mistral": ("mistral", {}),
    "mistral, window": ("mistral", {"sliding_window": 40}),
    "qwen2": ("qwen2", {}),
    "qwen2, tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 64}),
    "qwen3, tied": ("qwen3", {"tie_word_embeddings": True}),
    "gemma3": ("gemma3", {"sliding_window_pattern": 6, "tie_word_embeddings": True}),
    "gemma3, scaled global rope, capped logits": (
        "gemma3",
        {
            **OF_FAMILY["gemma3"]["scaled global rope"],
            "sliding_window_pattern": 6,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3, layer types, other bases": (
        "gemma3",
        OF_FAMILY["gemma3"]["layer types"] | OF_FAMILY["gemma3"]["other bases"],
    ),
}


@pytest.mark.parametrize("kinds", GGUF_KINDS)
@pytest.mark.parametrize("variant", GGUF_VARIANTS)
def test_a_gguf_file_equals_transformers(variant: str, kinds: str, tmp_path: Path) -> None:
    family, changes = GGUF_VARIANTS[variant]
    if family == "gemma3":
        changes = {"query_pre_attn_scalar": changes.get("head_dim", 32), **changes}
    model = random_model(family, **changes)
    path = tmp_path / "model.gguf"
    write_model(path, model, GGUF_KINDS[kinds])
    # files of Mistral's models say llama, and are that where they have no window
    is_llama = variant == "mistral"
    architecture = FAMILIES["llama" if is_llama else family].architecture
    bound = BOUND if kinds == "F32" else QUANTISED_BOUND
    check_files(path, architecture, model=model, bound=bound)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_default_model_equals_transformers(backend: str, default_model: str) -> None:
    model = llama_from_gguf(default_model)
    facts, checkpoint = read_facts(default_model), open_checkpoint(default_model)
    tensors = {name: checkpoint.get(name) for name in checkpoint.tensor_names}
    rig = WorkerRig(facts.hf_config, tensors, make_backend=BACKENDS[backend])
    ids = np.random.default_rng(3).integers(0, facts.vocab_size, 40).tolist()
    compare(rig, model, ids, chunk=25, bound=DEFAULT_MODEL_BOUND)
