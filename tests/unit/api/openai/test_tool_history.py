"""Past tool calls reach each template in the form it reads."""

from __future__ import annotations

import pytest

from octavo.api.openai.tool_history import ToolCallForm, tool_call_form
from octavo.tokenizer.chat_template import ChatTemplate

_CALLS = "{% for m in messages %}{% for c in m.tool_calls or [] %}@{% endfor %}{% endfor %}"
MAPPING = _CALLS.replace("@", "{{ c.function.name }}{{ c.function.arguments | tojson }}")
TEXT = _CALLS.replace("@", "{{ c.function.name + c.function.arguments }}")
NULL = (
    "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
    "{{ c.function.name + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}"
)
MESSAGES = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "look", "arguments": {"at": "caf\u00e9"}}}],
    }
]


@pytest.mark.parametrize(
    ("source", "form", "expected"),
    [
        (MAPPING, ToolCallForm(), 'look{"at": "caf\u00e9"}'),
        (TEXT, ToolCallForm(as_text=True), 'look{"at": "caf\u00e9"}'),
        (NULL, ToolCallForm(as_text=True, needs_null=True), 'look{"at": "caf\u00e9"}'),
        ("no calls", ToolCallForm(), "no calls"),
        ("{{ raise_exception('never') }}", ToolCallForm(), None),
    ],
)
def test_the_form_is_the_first_that_shows_the_call(
    source: str, form: ToolCallForm, expected: str | None
) -> None:
    template = ChatTemplate(source)
    assert tool_call_form(template.render) == form
    if expected is not None:
        text = template.render(form.apply(MESSAGES), null_content=form.needs_null)
        assert text == expected


def test_messages_are_not_changed() -> None:
    before = repr(MESSAGES)
    ToolCallForm(as_text=True).apply(MESSAGES)
    assert repr(MESSAGES) == before
