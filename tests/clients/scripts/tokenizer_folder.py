"""A model file's tokenizer as a folder that transformers reads, for clients that count tokens.

Runs in: this tree's environment. Knows nothing of: the clients.
"""

from __future__ import annotations

import json
from pathlib import Path

from octavo.tokenizer.gguf_tokenizer import load_gguf_tokenizer


def write_tokenizer(model_path: str, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json of a GGUF file into a new folder."""
    loaded = load_gguf_tokenizer(model_path)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(loaded.backend.to_str())
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **loaded.special_tokens,
    }
    if "default" in loaded.chat_templates:
        settings["chat_template"] = loaded.chat_templates["default"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    # what transformers asks to know the kind of model
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
