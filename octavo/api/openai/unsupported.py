"""Fields that clients know and this version does not serve.

A field that constrains the output must not be dropped silently: unless its value asks for nothing,
the request is refused. Fields that only hint or label are taken and have no effect.

Runs in: API process. Owns: the two lists. Knows nothing of: the fields that are served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.errors import UnsupportedFeature


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _is_one(value: Any) -> bool:
    return _is_empty(value) or value == 1


def _is_text_only(value: Any) -> bool:
    return _is_empty(value) or value == ["text"]


def _is_none_choice(value: Any) -> bool:
    return _is_empty(value) or value in ("none", "auto")


#: field -> does this value ask for nothing?
REFUSED: dict[str, Callable[[Any], bool]] = {
    "guided_json": _is_empty,
    "guided_regex": _is_empty,
    "guided_choice": _is_empty,
    "guided_grammar": _is_empty,
    "guided_json_object": _is_empty,
    "guided_decoding_backend": _is_empty,
    "guided_whitespace_pattern": _is_empty,
    "structural_tag": _is_empty,
    "grammar": _is_empty,
    "json_schema": _is_empty,
    "regex": _is_empty,
    "ebnf": _is_empty,
    "functions": _is_empty,
    "function_call": _is_none_choice,
    "best_of": _is_one,
    "suffix": _is_empty,
    "prompt_embeds": _is_empty,
    "watermarking": _is_empty,
    "kv_transfer_params": _is_empty,
    "ec_transfer_params": _is_empty,
    "mm_processor_kwargs": _is_empty,
    "media_io_kwargs": _is_empty,
    "mm_payload": _is_empty,
    "routed_experts_prompt_start": _is_empty,
    "audio": _is_empty,
    "modalities": _is_text_only,
    "web_search_options": _is_empty,
}

#: older names, and those of other servers -> what is served
_RENAMED = {
    "guided_json": '{"json": ...}',
    "guided_regex": '{"regex": ...}',
    "guided_choice": '{"choice": ...}',
    "guided_grammar": '{"grammar": ...}',
    "guided_json_object": '{"json_object": true}',
    "guided_whitespace_pattern": '{"whitespace_pattern": ...}',
    "structural_tag": '{"structural_tag": ...}',
    "grammar": '{"grammar": ...}',
    "json_schema": '{"json": ...}',
    "regex": '{"regex": ...}',
    "ebnf": '{"grammar": ...}',
}
_REASONS = {
    "guided_decoding_backend": "guided_decoding_backend does not exist any more: the server has "
    "one backend",
    "suffix": "suffix is not supported: the model is not trained to fill in the middle",
    "best_of": "best_of is not supported, as in vLLM; ask for n outputs and choose by their "
    "logprobs, or use use_beam_search",
    "functions": "functions is not a field of this server: use tools, each of them "
    '{"type": "function", "function": {...}}',
    "function_call": "function_call is not a field of this server: use tool_choice",
} | {
    name: f"{name} is not a field of this server: use structured_outputs={form}"
    for name, form in _RENAMED.items()
}

#: hints and labels of the OpenAI and vLLM APIs, taken without a word
HARMLESS = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "session_id",
        "prediction",
    }
)

KNOWN = HARMLESS | frozenset(REFUSED)


def refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Checks a decoded body.

    Raises:
        UnsupportedFeature: a field asks for something that would not happen.
    """
    for name in fields:
        asks_nothing = REFUSED.get(name)
        if asks_nothing is not None and not asks_nothing(fields[name]):
            reason = _REASONS.get(name, f"{name} is not available in this version of Octavo")
            raise UnsupportedFeature(f"{reason}; remove the field. (parameter={name})", param=name)
