"""Tiny random models of every architecture, and how log-probabilities are compared with theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import transformers
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gemma3.modeling_gemma3 import eager_attention_forward

from octavo.ops.backend import Backend
from octavo.ops.interface import StoredTensor
from octavo.ops.torch import TorchBackend
from octavo.sampling_params import SamplingParams
from tests.fakes.memory_checkpoint import float_tensor
from tests.fakes.worker_rig import WorkerRig, native_backend

#: on log-probabilities; the default model is deeper and its vocabulary larger
BOUND, DEFAULT_MODEL_BOUND = 1e-4, 1e-3
BACKENDS: dict[str, Callable[[str], Backend]] = {
    "native": native_backend,
    "torch": lambda dtype: TorchBackend("cpu", dtype),
}
#: attention whose scores are capped; Gemma 3's own code in transformers leaves the cap out
SCORE_CAP = 5.0
ALL_ATTENTION_FUNCTIONS.register("capped", partial(eager_attention_forward, softcap=SCORE_CAP))
ALL_MASK_ATTENTION_FUNCTIONS.register("capped", eager_mask)


@dataclass(frozen=True)
class Family:
    """transformers' names, without Config and ForCausalLM, and what its tiny models change."""

    name: str
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return f"{self.name}ForCausalLM"


FAMILIES = {
    "llama": Family("Llama"),
    "mistral": Family("Mistral", {"sliding_window": None}),
    "qwen2": Family("Qwen2"),
    "qwen3": Family("Qwen3", {"head_dim": 32}),
    # windows shorter than a chunk of the prompt; full layers 3 and 6 of 7
    "gemma3": Family(
        "Gemma3",
        {
            "num_hidden_layers": 7,
            "sliding_window": 40,
            "sliding_window_pattern": 3,
            "head_dim": 32,
            "query_pre_attn_scalar": 24,
        },
    ),
}


def random_model(family: str = "llama", **changes: object) -> PreTrainedModel:
    """Weights a few times larger than initial ones, so that attention is far from uniform."""
    torch.manual_seed(0)
    name = FAMILIES[family].name
    config_name = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
    config = getattr(transformers, config_name)(
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
            "tie_word_embeddings": False,
            **FAMILIES[family].config,
            **changes,
        }
    )
    model: PreTrainedModel = getattr(transformers, FAMILIES[family].architecture)(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias") or "norm" in parameter_name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def tensors_of(model: PreTrainedModel) -> dict[str, StoredTensor]:
    """The weights by transformers' names."""
    return {
        name: float_tensor(name, value.detach().numpy())
        for name, value in model.state_dict().items()
    }


def reference(model: PreTrainedModel, ids: list[int]) -> npt.NDArray[np.float32]:
    """[len(ids), vocab] log-probabilities."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0]
    return torch.log_softmax(logits.float(), dim=-1).numpy()


def computed(rig: WorkerRig, ids: list[int], chunk: int) -> npt.NDArray[np.float64]:
    """The same from prompt logprobs of the whole vocabulary and the first token's logprobs."""
    rig.add("a", ids, SamplingParams(temperature=0.0, logprobs=-1, prompt_logprobs=-1))
    got = rig.generate("a", 1, chunk=chunk)
    rig.finish("a")
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
    """Prints and checks the largest difference; the rig is closed."""
    maximum = float(np.abs(computed(rig, ids, chunk) - reference(model, ids)).max())
    rig.close()
    print(f"largest difference of log-probabilities {maximum:.2e} (bound {bound:.0e})")
    assert maximum <= bound
