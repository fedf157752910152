"""`--chat-template`: a file, or the template itself in one line.

Runs in: the API process. Knows nothing of: Jinja (the tokenizer's chat_template.py compiles it).
"""

from __future__ import annotations

from octavo.errors import ConfigError

_TEMPLATE_CHARACTERS = frozenset("{}\n")  # what a path would hardly have


def read_chat_template(value: str | None) -> str | None:
    """The text of the template.

    Raises:
        ConfigError: neither a file nor a template, or the file cannot be read.
    """
    if value is None:
        return None
    try:
        with open(value, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        if _TEMPLATE_CHARACTERS & set(value):
            return value
        reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text file"
        raise ConfigError(
            f"--chat-template {value} is neither a template nor a file that can be read: {reason}"
        ) from None
    if not text.strip():
        raise ConfigError(f"--chat-template {value} is an empty file")
    return text
