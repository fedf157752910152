"""Structural tags, texts in which some parts have a structure, in the notation of the library.

vLLM's older form (`structures` and `triggers`) and these of xgrammar's formats:

    {"type": "triggered_tags", "triggers": [...], "tags": [TAG, ...]}   free text and tags in it
    {"type": "tags_with_separator", "tags": [TAG, ...], "separator": "\n", "at_least_one": true,
     "stop_after_first": false}                                         tags and nothing else
    {"type": "or", "elements": [FORMAT, ...]}                           one of some formats
    {"type": "json_schema", "json_schema": ...}                         JSON alone

where TAG is {"begin": "...", "content": {"type": "json_schema", "json_schema": ...}, "end": "..."}.
The API has one more content, an object with one text that satisfies a Lark grammar:

    {"type": "text_argument", "name": "input", "grammar": "..."}

Runs in: the API process, in a thread. Owns: the conversion. Knows nothing of: requests, schemas'
keywords. The notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from octavo.errors import InvalidParameter
from octavo.structured_output.json_schema import SchemaError
from octavo.structured_output.lark_grammar import quoted
from octavo.structured_output.quoted_lark import LarkError, quoted_lark
from octavo.wording import shown

_FORMATS = ("triggered_tags", "tags_with_separator", "or", "json_schema")
#: how the notation names a token that is no text
_TOKEN_NAME = re.compile(r"<[^<>\s\"\[\]]+>")


class StructuralTag(msgspec.Struct, frozen=True):
    """A tag as a grammar.

    Attributes:
        text: in the library's notation.
        is_json: there is no free text: what stands outside of quotes is JSON, or nearly so.
        schemas: the prepared schemas of its parts, each with the field that it comes from.
        grammars: the grammars of its texts, in the library's notation, with their fields.
    """

    text: str
    is_json: bool
    schemas: list[tuple[str, dict[str, Any]]]
    grammars: list[tuple[str, str]] = []


def structural_tag(
    tag: Mapping[str, Any],
    field: str,
    *,
    prepare: Callable[[Any], dict[str, Any]],
    is_special: Callable[[str], bool],
    schema_origins: Sequence[str] | None = None,
) -> StructuralTag:
    """The grammar of a tag, in one of the forms above.

    Args:
        prepare: checks a schema.
        is_special: True for a token that is no text.
        schema_origins: the fields that the schemas come from, in their order; None: `field`.

    Raises:
        InvalidParameter: the tag has another form, or a schema cannot be served.
    """
    writer = _Writer(field, prepare, is_special, schema_origins)
    try:
        if "format" in tag:
            body, is_json = writer.format(tag["format"])
        else:
            body, is_json = writer.structures(tag), False
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidParameter(
            f"{field} must have structures (begin, schema, end) and triggers: {shown(error)}",
            param=field,
        ) from None
    head = ["%llguidance {}", f"start: {body}", "TEXT: /(.|\\n)*/"]
    text = "\n".join([*head, *writer.rules])
    return StructuralTag(text, is_json, writer.schemas, writer.grammars)


class _Writer:
    """Writes the rules of one tag."""

    def __init__(
        self,
        field: str,
        prepare: Callable[[Any], dict[str, Any]],
        is_special: Callable[[str], bool],
        schema_origins: Sequence[str] | None,
    ) -> None:
        self._field = field
        self._prepare = prepare
        self._is_special = is_special
        self._origins = schema_origins
        self._num_parts = 0
        self._num_contents = 0
        self.rules: list[str] = []
        self.schemas: list[tuple[str, dict[str, Any]]] = []
        self.grammars: list[tuple[str, str]] = []

    def structures(self, tag: Mapping[str, Any]) -> str:
        """vLLM's older form."""
        parts = [
            (
                one["begin"],
                {"type": "json_schema", "json_schema": one.get("schema", {})},
                one["end"],
            )
            for one in tag["structures"]
        ]
        return self._triggered(tag["triggers"], parts)

    def format(self, form: Mapping[str, Any]) -> tuple[str, bool]:
        """The body of a rule, and whether there is no free text in it."""
        kind = form["type"]
        if kind == "triggered_tags":
            return self._triggered(form["triggers"], self._tags(form)), False
        if kind == "tags_with_separator":
            return self._separated(form), True
        if kind == "json_schema":
            return self._schema(form["json_schema"]), True
        if kind == "or":
            bodies = [self.format(element) for element in form["elements"]]
            if not bodies:
                raise self._wrong("elements must not be empty")
            return (
                f"({' | '.join(body for body, _ in bodies)})",
                all(is_json for _, is_json in bodies),
            )
        raise self._wrong(
            f"a format of type {shown(kind)} is not supported: use one of {', '.join(_FORMATS)}"
        )

    def _tags(self, form: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
        return [(one["begin"], one["content"], one["end"]) for one in form["tags"]]

    def _content(self, content: Mapping[str, Any]) -> str:
        if content["type"] == "text_argument":
            return self._text_argument(content["name"], content["grammar"])
        if content["type"] != "json_schema":
            raise self._wrong(
                f"content of type {shown(content['type'])} is not supported: use json_schema"
            )
        return self._schema(content["json_schema"])

    def _triggered(self, triggers: Any, parts: list[tuple[str, Any, str]]) -> str:
        """Free text in which each trigger begins a part."""
        self._check_texts([*triggers, *(text for begin, _, end in parts for text in (begin, end))])
        if not triggers or not parts:
            raise self._wrong("needs at least one trigger and one structure")
        if not all(triggers):
            raise self._wrong("a trigger must not be empty")
        names = []
        for begin, content, end in parts:
            trigger = next((t for t in triggers if begin.startswith(t)), None)
            if trigger is None:
                raise self._wrong(
                    f"begin {shown(begin)} starts with none of the triggers {shown(triggers)}"
                )
            rest = begin[len(trigger) :]
            body = self._tag(rest, content, end)
            name = f"part_{self._num_parts}"
            self._num_parts += 1
            names.append(name)
            if self._is_special(trigger):
                self.rules.append(f"{name}: TEXT {trigger} {body}")
            else:
                self.rules.append(f"{name}_trigger[lazy]: TEXT {quoted(trigger)}")
                self.rules.append(f"{name}: {name}_trigger {body}")
        return f"({' | '.join(names)})* TEXT"

    def _separated(self, form: Mapping[str, Any]) -> str:
        """Tags with a separator between them."""
        parts, separator = self._tags(form), form.get("separator", "")
        self._check_texts([separator, *(text for begin, _, end in parts for text in (begin, end))])
        if not parts:
            raise self._wrong("tags must not be empty")
        tags = [self._tag(*part) for part in parts]
        name = f"tag_{self._num_parts}"
        self._num_parts += 1
        self.rules.append(f"{name}: {' | '.join(tags)}")
        body = name
        if not form.get("stop_after_first", False):
            body = f"{name} ({self._text(separator)} {name})*"
        return f"({body})" if form.get("at_least_one", False) else f"({body})?"

    def _tag(self, begin: str, content: Any, end: str) -> str:
        return " ".join(filter(None, (self._text(begin), self._content(content), self._text(end))))

    def _next_origin(self) -> str:
        self._num_contents += 1
        return self._field if self._origins is None else self._origins[self._num_contents - 1]

    def _text_argument(self, name: str, grammar: str) -> str:
        origin = self._next_origin()
        try:
            start, rules = quoted_lark(grammar, f"t{self._num_contents}_")
        except LarkError as error:
            raise InvalidParameter(f"{origin}: {error}.", param=origin) from None
        self.rules += rules
        self.grammars.append((origin, "\n".join([f"start: {start}", *rules])))
        before, after = f'{{{json.dumps(name)}: "', '"}'
        return f"{quoted(before)} {start} {quoted(after)}"

    def _schema(self, schema: Any) -> str:
        origin = self._next_origin()
        try:
            prepared = self._prepare(schema)
        except SchemaError as error:
            raise InvalidParameter(f"{origin}: {error.message}", param=origin) from None
        self.schemas.append((origin, prepared))
        return f"%json {json.dumps(prepared, ensure_ascii=False)}"

    def _text(self, text: str) -> str:
        """A text with the tokens in it that are no text."""
        parts, place = [], 0
        for found in _TOKEN_NAME.finditer(text):
            if self._is_special(found[0]):
                parts += [quoted(text[place : found.start()]), found[0]]
                place = found.end()
        return " ".join(filter(None, [*parts, quoted(text[place:])]))

    def _check_texts(self, texts: list[Any]) -> None:
        if not all(isinstance(text, str) for text in texts):
            raise self._wrong("its texts must be strings")

    def _wrong(self, rule: str) -> InvalidParameter:
        return InvalidParameter(f"{self._field}: {rule}", param=self._field)
