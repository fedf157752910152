"""Choices, structural tags and grammars of other notations, in the notation of the library.

Runs in: the API process, in a thread. Owns: the conversions. Knows nothing of: requests, schemas'
keywords. The notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.errors import InvalidParameter
from octavo.wording import first_line, shown

_LARK = re.compile(r"^\s*(%llguidance\b|\??start\b[^:\n]*:)", re.MULTILINE)


def choice_grammar(choices: Sequence[str]) -> str:
    """One of some texts."""
    return "start: " + " | ".join(map(_quoted, choices))


def any_grammar(text: str, field: str) -> str:
    """A context-free grammar as it is, if it is Lark; otherwise it is read as GBNF, the EBNF of
    llama.cpp.

    Raises:
        InvalidParameter: it is neither.
    """
    if _LARK.search(text):
        return text
    # the package costs 100 ms; GBNF is rare
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return str(gbnf_to_lark(text))
    except Exception as error:  # it raises bare ones
        raise InvalidParameter(
            f"{field} is neither Lark (a rule named start) nor GBNF (a rule named root): "
            f"{first_line(error)}",
            param=field,
        ) from None


def structural_tag_grammar(
    tag: Mapping[str, Any],
    field: str,
    *,
    prepare: Callable[[Any], dict[str, Any]],
    is_special: Callable[[str], bool],
) -> str:
    """Free text in which each trigger begins a part with a structure.

    Args:
        tag: `{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`, or
            `{"format": {"type": "triggered_tags", "triggers": [...], "tags": [{"begin", "content",
            "end"}]}}`.
        prepare: checks the schema of a part.
        is_special: True for a token that is no text.

    Raises:
        InvalidParameter: the tag has another form.
    """
    triggers, parts = _parts_of(tag, field)
    rules, names = [], []
    for index, (begin, schema, end) in enumerate(parts):
        trigger = next((t for t in triggers if begin.startswith(t)), None)
        if trigger is None:
            raise InvalidParameter(
                f"{field}: begin {shown(begin)} starts with none of the triggers {shown(triggers)}",
                param=field,
            )
        rest = begin[len(trigger) :]
        body = f"%json {json.dumps(prepare(schema))}"
        body = " ".join(filter(None, (_quoted(rest), body, _quoted(end))))
        name = f"part_{index}"
        names.append(name)
        if is_special(trigger):
            rules.append(f"{name}: TEXT {trigger} {body}")
        else:
            rules.append(f"{name}_trigger[lazy]: TEXT {_quoted(trigger)}")
            rules.append(f"{name}: {name}_trigger {body}")
    head = ["%llguidance {}", f"start: ({' | '.join(names)})* rest", "rest: TEXT"]
    return "\n".join([*head, "TEXT: /(.|\\n)*/", *rules])


def _parts_of(
    tag: Mapping[str, Any], field: str
) -> tuple[Sequence[str], list[tuple[str, Any, str]]]:
    """Triggers, and (begin, schema, end) of each structure."""
    try:
        if "format" in tag:
            form = tag["format"]
            if form["type"] != "triggered_tags":
                raise InvalidParameter(
                    f"{field}.format.type {shown(form['type'])} is not supported: use "
                    "triggered_tags with contents of type json_schema",
                    param=field,
                )
            triggers = form["triggers"]
            parts = [
                (one["begin"], _schema_of(one["content"], field), one["end"])
                for one in form["tags"]
            ]
        else:
            triggers = tag["triggers"]
            parts = [(one["begin"], one.get("schema", {}), one["end"]) for one in tag["structures"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidParameter(
            f"{field} must have structures (begin, schema, end) and triggers: {shown(error)}",
            param=field,
        ) from None
    texts = [*triggers, *(text for begin, _, end in parts for text in (begin, end))]
    if not triggers or not parts or not all(isinstance(text, str) for text in texts):
        raise InvalidParameter(
            f"{field} needs at least one trigger and one structure, their texts as strings",
            param=field,
        )
    if not all(triggers):
        raise InvalidParameter(f"{field}: a trigger must not be empty", param=field)
    return triggers, parts


def _schema_of(content: Mapping[str, Any], field: str) -> Any:
    if content["type"] != "json_schema":
        raise InvalidParameter(
            f"{field}: content of type {shown(content['type'])} is not supported: use json_schema",
            param=field,
        )
    return content["json_schema"]


def _quoted(text: str) -> str:
    """A string of the notation; nothing for an empty one."""
    return json.dumps(text, ensure_ascii=False) if text else ""
