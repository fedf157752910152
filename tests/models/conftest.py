"""The real models and, of each, what transformers makes of the same file."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from models import MODELS, path_of


@dataclass(frozen=True)
class RealModel:
    """A file, and transformers' tokenizer and fp32 model of it."""

    name: str
    path: str
    tokenizer: Any
    reference: PreTrainedModel


@pytest.fixture(scope="session", params=MODELS)
def real(request: pytest.FixtureRequest) -> RealModel:
    """One after the other: transformers needs half a minute and gigabytes for each."""
    path = path_of(request.param)
    place = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    with pytest.MonkeyPatch.context() as patch:
        # a large vocabulary takes the package ten seconds, and transformers asks for it three times
        patch.setattr(gguf, "GGUFReader", functools.cache(gguf.GGUFReader))
        tokenizer = AutoTokenizer.from_pretrained(**place)
        model = AutoModelForCausalLM.from_pretrained(
            **place, dtype=torch.float32, attn_implementation="eager"
        )
    return RealModel(request.param, str(path), tokenizer, model.eval())


@pytest.fixture(scope="session", params=MODELS)
def model_path(request: pytest.FixtureRequest) -> str:
    """For tests that need the file alone."""
    return str(path_of(request.param))
