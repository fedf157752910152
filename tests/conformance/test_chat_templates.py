"""Chats are rendered exactly as transformers renders them: by SmolLM2's template, and by small ones
that use what the language offers. (The templates of many other models: `make test-templates`.)"""

from __future__ import annotations

import json

from octavo.tokenizer.tokenizer import load_tokenizer
from tests.conformance.template_oracle import (
    chat_template,
    compare_on_random_chats,
    expected,
    fixed_clock,
    rendered,
)
from tests.conformance.tokenizer_reference import DATA

__all__ = ["fixed_clock"]

_EACH = "{% for m in messages %}"
OWN = {
    "tojson": "{{ messages | tojson }}|{{ tools | tojson(indent=2) }}"
    "|{{ messages[0] | tojson(ensure_ascii=True, separators=(',', ':'), sort_keys=True) }}",
    "clock": "{{ strftime_now('%d %b %Y %H:%M') }}{{ messages | length }}",
    "refusal": _EACH + "{% if m.role not in ['user', 'assistant'] %}"
    "{{ raise_exception('no ' + m.role) }}{% endif %}{{ m.content }}{% endfor %}",
    "generation": _EACH + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}",
    "loop controls": _EACH + "{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{% if loop.index > 3 %}{% break %}{% endif %}{{ loop.cycle('a', 'b') }}{{ m.content }}"
    "{% endfor %}",
    "namespace and dict": "{% set ns = namespace(n=0, last=none) %}" + _EACH + "{% set ns.n = "
    "ns.n + 1 %}{% set ns.last = dict(m, n=ns.n) %}{% endfor %}{{ ns.n }}{{ ns.last | tojson }}"
    "{{ dict.fromkeys(['a', 'b'], 1) }}",
    "macros": "{% macro show(m, depth=0) %}{{ m.role }}{% if m.tool_calls is defined %}"
    "{% for c in m.tool_calls %}{{ show({'role': c.function.name}, depth + 1) }}{% endfor %}"
    "{% endif %}{% endmacro %}" + _EACH + "{{ show(m) }}{% endfor %}",
    "documents": "{% if documents %}{% for d in documents %}{{ d.title }}: {{ d['text'] }}"
    "{% endfor %}{% endif %}" + _EACH + "{{ m.content }}{% endfor %}",
    "reasoning": _EACH + "{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }}|"
    "{{ m.content }}{% endfor %}",
    "filters": _EACH + "{{ (m.content | string | trim | upper)[:9] }}{{ m | items | list }}"
    "{{ m.content is string }}{{ m.keys() | list | join(',') }}{% endfor %}",
    "undefined": "{{ my_variable is defined }}{{ my_variable }}{{ enable_thinking | default(7) }}"
    "{{ messages[0].nothing }}{{ messages[0].content + 'x' }}",
    "whitespace": "  {% if add_generation_prompt %}\n  yes\n  {% endif %}\n  " + _EACH + "\n"
    "    {{ m.content }}\n  {% endfor %}\n\n",
    "trims": _EACH + "{{ m.role }}: {{ m.content | trim }}\n{% endfor %}",
    "underscores": "{% set ns = namespace() %}{% set ns._x = 1 %}{{ ns._x }}",
    "internals": "{{ messages[0].__class__ }}{{ messages.append(1) }}",
}  # fmt: skip
#: tools choose the second
NAMED = {"default": "plain {{ messages[0].content }}", "tool_use": "{{ tools | tojson }}"}


def test_random_chats_are_rendered_as_by_transformers(default_model: str) -> None:
    default = load_tokenizer(default_model).chat_template
    assert default is not None
    num_taken = compare_on_random_chats({**OWN, "SmolLM2": default, "named": NAMED})
    always_refused = {name for name, count in num_taken.items() if count < 20}
    assert always_refused == {"underscores", "internals"}


def test_the_chats_on_record_are_rendered_as_by_transformers() -> None:
    for chat in json.loads((DATA / "chats.json").read_text()):
        if chat["template"] is None:
            continue
        conversation = {
            "messages": chat["messages"],
            "add_generation_prompt": chat.get("add_generation_prompt", True),
            "continue_final_message": chat.get("continue_final_message", False),
            "tools": chat.get("tools"),
            "documents": chat.get("documents"),
            **chat.get("kwargs", {}),
        }
        template = chat_template(chat["template"])
        text = rendered(template, conversation)
        assert text == expected(chat["template"], conversation), chat["name"]
