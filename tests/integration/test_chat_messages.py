"""Messages that templates are particular about, through a real server.

Its template is as strict as Gemma 3's: it folds the system message into the first user's and
insists on alternating roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.replies import CHAT, refused, user
from tests.integration.server import Server, serving

TEMPLATE = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\\n\\n' -%}{%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}{%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
<|im_start|>{{ message['role'] }}
{{ (first if loop.first else '') + message['content'] | trim }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
ALTERNATE = "Conversation roles must alternate"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("strict")
    (folder / "template.jinja").write_text(TEMPLATE)
    flags = ("--chat-template", str(folder / "template.jinja"))
    with serving(folder / "log", *flags) as server:
        yield server


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def text_of_prompt(server: Server, messages: list[Any]) -> str:
    status, tokens = server.post("/tokenize", {"messages": messages})
    assert status == 200, tokens
    status, text = server.post("/detokenize", {"tokens": tokens["tokens"]})
    assert status == 200
    prompt: str = text["prompt"]
    return prompt


def test_c76_a_system_message_goes_where_the_template_wants_it(strict: Server) -> None:
    messages = [said("system", "Be brief."), *user("Hi.")]
    assert "user\nBe brief.\n\nHi." in text_of_prompt(strict, messages)
    status, answer = strict.post(CHAT, {"messages": messages, "max_tokens": 3})
    assert status == 200, answer


@pytest.mark.parametrize(
    "messages",
    [
        [*user("a"), *user("b")],
        [said("assistant", "I begin."), *user("a")],
        [said("system", "s"), said("system", "t"), *user("a")],
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_c76_what_a_template_refuses_is_400_in_its_own_words(
    strict: Server, messages: list[Any], is_stream: bool
) -> None:
    error = refused(strict, CHAT, {"messages": messages, "stream": is_stream})
    assert ALTERNATE in error["message"]


def test_c77_content_in_parts(strict: Server) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "user\none\ntwo<|im_end|>" in text_of_prompt(strict, [said("user", parts)])
    assert "user\n<|im_end|>" in text_of_prompt(strict, [said("user", [])])
    developer = [said("developer", "Be brief."), *user("Hi.")]
    assert "user\nBe brief.\n\nHi." in text_of_prompt(strict, developer)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    error = refused(strict, CHAT, {"messages": [said("user", [*parts, image])]})
    assert error["param"] == "messages[0].content[2]"
    assert "image_url" in error["message"]
