"""A folder's tokenizer.json and the files beside it -> `tokenizers.Tokenizer`.

Runs in: the API process. Owns: which file says what. Knows nothing of: GGUF, weights.
"""

from __future__ import annotations

import os
from typing import Any, Final

from tokenizers import Tokenizer

from octavo.errors import ConfigError, StartupError
from octavo.tokenizer.loaded_tokenizer import LoadedTokenizer
from octavo.weights.json_file import read_json_object
from octavo.wording import first_line

TOKENIZER_NAME: Final = "tokenizer.json"
SPECIAL_NAMES: Final = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip


def load_folder_tokenizer(folder: str) -> LoadedTokenizer:
    """Reads tokenizer.json, tokenizer_config.json, special_tokens_map.json and chat templates.

    Raises:
        ConfigError: no tokenizer.json.
        StartupError: one of the files is damaged.
    """
    path = os.path.join(folder, TOKENIZER_NAME)
    if not os.path.isfile(path):
        raise ConfigError(
            f"{folder} has no {TOKENIZER_NAME}; name a tokenizer with --tokenizer (a folder with "
            f"{TOKENIZER_NAME}, or a GGUF file)."
        )
    try:
        backend = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare exceptions
        raise StartupError(
            f"{path} is not a usable tokenizer ({first_line(error)}); download it again."
        ) from error
    # a serving tokenizer neither cuts nor pads, whatever the training job saved
    backend.no_truncation()
    backend.no_padding()
    config = _optional_json(folder, "tokenizer_config.json")
    special = {**_optional_json(folder, "special_tokens_map.json"), **config}
    response_template = config.get("response_template")
    return LoadedTokenizer(
        backend,
        _special_tokens(special),
        _chat_templates(folder, config),
        response_template if isinstance(response_template, dict) else None,
    )


def _optional_json(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    return read_json_object(path) if os.path.isfile(path) else {}


def _special_tokens(entries: dict[str, Any]) -> dict[str, str]:
    """A special token is its text, or an object whose `content` is its text."""
    tokens: dict[str, str] = {}
    for name in SPECIAL_NAMES:
        value = entries.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _chat_templates(folder: str, config: dict[str, Any]) -> dict[str, str]:
    """Templates by name. Newer files win: chat_template.jinja and additional_chat_templates/, then
    chat_template.json, then tokenizer_config.json, which has a text or a list of named ones."""
    templates: dict[str, str] = {}
    stored = config.get("chat_template")
    if isinstance(stored, str):
        templates["default"] = stored
    elif isinstance(stored, list):
        for entry in stored:
            match entry:
                case {"name": str(name), "template": str(template)}:
                    templates[name] = template
                case _:
                    raise StartupError(
                        f"{folder}/tokenizer_config.json has a chat template without name and "
                        "template; download it again."
                    )
    in_json = _optional_json(folder, "chat_template.json").get("chat_template")
    if isinstance(in_json, str):
        templates["default"] = in_json
    main_path = os.path.join(folder, "chat_template.jinja")
    if os.path.isfile(main_path):
        templates["default"] = _read_text(main_path)
    more_folder = os.path.join(folder, "additional_chat_templates")
    if os.path.isdir(more_folder):
        for name in sorted(os.listdir(more_folder)):
            if name.endswith(".jinja"):
                template = _read_text(os.path.join(more_folder, name))
                templates[name.removesuffix(".jinja")] = template
    return templates


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"{path} cannot be read ({first_line(error)}).") from None
