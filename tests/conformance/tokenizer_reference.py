"""What transformers makes of the corpus and the chats of tests/data/tokenizer.

Run as a script it writes the reference that `make test` compares with, without transformers:

    .venv-oracle/bin/python tests/conformance/tokenizer_reference.py

transformers builds a GGUF file's tokenizer with GPT-2's pre-tokenizer, for it does not know the
name `smollm`; the original tokenizer.json of SmolLM2 has Digits before ByteLevel, set here.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import pre_tokenizers

DATA = Path(__file__).resolve().parents[1] / "data" / "tokenizer"
REFERENCE = DATA / "smollm2.json"


@functools.cache  # reading the file takes transformers seconds
def reference_tokenizer(gguf_path: str) -> Any:
    """transformers' tokenizer of the SmolLM2 GGUF file."""
    folder, name = str(Path(gguf_path).parent), Path(gguf_path).name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


def reference(gguf_path: str) -> dict[str, Any]:
    """Ids and texts of the corpus, and the rendered chats; None for a chat that is refused."""
    tokenizer = reference_tokenizer(gguf_path)
    corpus = json.loads((DATA / "corpus.json").read_text())
    ids = [tokenizer(text)["input_ids"] for text in corpus]
    return {
        "provenance": {
            "made_by": "tests/conformance/tokenizer_reference.py",
            "model": Path(gguf_path).name,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "ids": ids,
        "texts": [tokenizer.decode(row, skip_special_tokens=True) for row in ids],
        "chats": {
            chat["name"]: rendered(tokenizer, chat)
            for chat in json.loads((DATA / "chats.json").read_text())
        },
    }


def rendered(tokenizer: Any, chat: dict[str, Any]) -> str | None:
    """One chat as transformers renders it, None when it or the template refuses."""
    try:
        text: str = tokenizer.apply_chat_template(
            chat["messages"],
            chat_template=chat["template"],
            tools=chat.get("tools"),
            documents=chat.get("documents"),
            add_generation_prompt=chat.get("add_generation_prompt", True),
            continue_final_message=chat.get("continue_final_message", False),
            tokenize=False,
            **chat.get("kwargs", {}),
        )
    except Exception:  # a template fails in as many ways as any program
        return None
    return text


def main() -> None:
    from octavo.envs import read_environ
    from octavo.weights.hub import hub_settings, locate

    path = locate(None, hub_settings(read_environ()))
    REFERENCE.write_text(json.dumps(reference(path), indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
