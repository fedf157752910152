"""transformers' `response_template` of tokenizer_config.json: what a reply's fields look like.

Read and checked here, in the form of transformers 5.24
(`transformers.utils.chat_parsing.response_templates`); `response_parser.py` reads replies by it.

Runs in: API process. Owns: what a template may say. Knows nothing of: replies, HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import regex

from octavo.api.parsing.response_content import CONTENT_PARSERS, has_mixed_placeholder
from octavo.errors import ConfigError
from octavo.wording import first_line

REASONING_FIELD, CONTENT_FIELD, TOOL_FIELD = "thinking", "content", "tool_calls"
_FIELDS = frozenset({REASONING_FIELD, CONTENT_FIELD, TOOL_FIELD})
_TEMPLATE_KEYS = frozenset(
    {"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"}
)
_FIELD_KEYS = frozenset(
    {
        "open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats",
        "join", "optional", "transform", "transform_each",
    }
)  # fmt: skip


class _Wrong(Exception):
    """The template is not of the form."""


class Anchor(msgspec.Struct, frozen=True):
    """Where a field begins or ends.

    Attributes:
        is_literal: fixed texts; a match that is complete does not change.
        can_grow: a match at the end of what has come may become longer.
    """

    pattern: regex.Pattern[str]
    is_literal: bool
    can_grow: bool
    texts: tuple[str, ...] = ()


class Field(msgspec.Struct, frozen=True):
    """A field of the template; names as there."""

    name: str
    begin: Anchor | None
    end: Anchor | None
    content: str
    content_args: Mapping[str, Any]
    join: str | None
    transform: Any
    transform_each: bool

    @property
    def strips(self) -> bool:
        """Whitespace around a text is no part of it."""
        return bool(self.content_args.get("strip", True))


class ResponseTemplate(msgspec.Struct, frozen=True):
    """A template; `implicit` takes what stands outside of the other fields."""

    fields: Mapping[str, Field]
    implicit: Field | None
    start: Anchor


def load_template(spec: Mapping[str, Any]) -> ResponseTemplate:
    """
    Raises:
        ConfigError: the template is not of the form, or asks for what cannot be served.
    """
    try:
        return _template(spec)
    except (_Wrong, TypeError, AttributeError, KeyError, regex.error) as error:
        raise ConfigError(
            f"The response_template of tokenizer_config.json cannot be used: {first_line(error)}. "
            "Name the model's parsers with --tool-call-parser and --reasoning-parser."
        ) from None


def _template(spec: Mapping[str, Any]) -> ResponseTemplate:
    if spec.get("version", 1) != 1:
        raise _Wrong(f"version {spec['version']} is unknown")
    _check_keys(spec, _TEMPLATE_KEYS, "it")
    fields = {name: _field(name, raw) for name, raw in spec["fields"].items()}
    if unknown := (fields.keys() - _FIELDS) | (spec.get("defaults", {}).keys() - {"role"}):
        raise _Wrong(f"the fields {sorted(unknown)} mean nothing in a chat's reply")
    implicit = [field for field in fields.values() if field.begin is None]
    if len(implicit) > 1:
        raise _Wrong("more than one field has no beginning")
    if not implicit and CONTENT_FIELD not in fields:
        implicit = [_field(CONTENT_FIELD, {})]
        fields[CONTENT_FIELD] = implicit[0]
    start = _anchor(spec, "start_anchor", "start_anchor_pattern")
    if start is None:
        raise _Wrong("it has no start_anchor")
    return ResponseTemplate(fields, implicit[0] if implicit else None, start)


def _field(name: str, raw: Mapping[str, Any]) -> Field:
    _check_keys(raw, _FIELD_KEYS, f"the field {name}")
    content = raw.get("content", "text")
    if content not in CONTENT_PARSERS:
        raise _Wrong(f"the field {name} has the unknown content {content!r}")
    if name != TOOL_FIELD and (content != "text" or raw.get("transform") is not None):
        raise _Wrong(f"the field {name} is no plain text")
    transform = raw.get("transform")
    if has_mixed_placeholder(transform):
        raise _Wrong(f"the field {name} has a placeholder within a text")
    if raw.get("join") is not None and not raw.get("repeats", False):
        raise _Wrong(f"the field {name} has join without repeats")
    args = raw.get("content_args", {})
    if content == "xml-inline" and "key" not in regex.compile(args["tag_pattern"]).groupindex:
        raise _Wrong(f"the field {name} has a tag_pattern without the group key")
    return Field(
        name,
        _anchor(raw, "open", "open_pattern"),
        _anchor(raw, "close", "close_pattern"),
        content,
        args,
        raw.get("join"),
        transform,
        bool(raw.get("transform_each", False)),
    )


def _check_keys(raw: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    if unknown := raw.keys() - known:
        raise _Wrong(f"{what} has the unknown keys {sorted(unknown)}")


def _anchor(raw: Mapping[str, Any], literal_key: str, pattern_key: str) -> Anchor | None:
    if literal_key in raw and pattern_key in raw:
        raise _Wrong(f"{literal_key} and {pattern_key} exclude each other")
    if pattern_key in raw:
        return Anchor(regex.compile(raw[pattern_key], regex.DOTALL), False, True)
    if literal_key not in raw:
        return None
    texts = [raw[literal_key]] if isinstance(raw[literal_key], str) else list(raw[literal_key])
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise _Wrong(f"{literal_key} must be a text or a list of texts")
    longest_first = sorted(set(texts), key=len, reverse=True)
    can_grow = any(a != b and a.startswith(b) for a in texts for b in texts)
    pattern = regex.compile("|".join(map(regex.escape, longest_first)), regex.DOTALL)
    return Anchor(pattern, True, can_grow, tuple(texts))
