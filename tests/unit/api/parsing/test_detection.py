from __future__ import annotations

import pytest

from octavo.api.parsing.detection import told_reasoning_parser, told_tool_parser

BEGIN = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
#: excerpts of models' templates
TOOL_TEMPLATES = [
    ("hermes", '<tool_call>\\n{\\"name\\": <function-name>, "name": "arguments"}'),
    ("qwen3_coder", "<tool_call>\n<function=example>\n<parameter=p>"),
    ("llama3_json", 'Respond in the format {"name": function name, "parameters": dictionary'),
    ("llama3_json", '{{- "<|python_tag|>" + tool_call.name }}'),
    ("mistral", '{{- "[TOOL_CALLS] [" }}'),
    ("deepseek_v3", f"{BEGIN} ```json"),
    ("deepseek_v31", BEGIN),
    ("openai", "<|start|>assistant to=functions.f<|channel|>commentary<|message|>"),
    ("pythonic", "put it in the format of [func_name1(params_name1=params_value1"),
    ("glm45", "<tool_call>name\n<arg_key>k</arg_key>\n<arg_value>"),
    (None, "{% for m in messages %}{{ m.content }}{% endfor %}"),
]
REASONING_TEMPLATES = [
    ("qwen3", "{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"),
    ("deepseek_r1", "</think>{% if add_generation_prompt %}<A><think>\n{% endif %}"),
    ("think", "content.split('</think>'){% if add_generation_prompt %}<A>{% endif %}"),
    ("mistral", "[THINK]"),
    ("openai_gptoss", "<|channel|>analysis<|message|>"),
    (None, "{% if add_generation_prompt %}<A>{% endif %}"),
]


@pytest.mark.parametrize(("name", "template"), TOOL_TEMPLATES)
def test_the_chat_template_tells_the_tool_parser(name: str | None, template: str) -> None:
    assert told_tool_parser(template) == name


@pytest.mark.parametrize(("name", "template"), REASONING_TEMPLATES)
def test_the_chat_template_tells_the_reasoning_parser(name: str | None, template: str) -> None:
    assert told_reasoning_parser(template) == name
