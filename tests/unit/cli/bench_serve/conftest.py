"""A tokenizer on disk."""

from __future__ import annotations

import pytest

from tests.fakes.tiny_checkpoint import tiny_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))
