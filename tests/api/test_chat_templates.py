"""What requests say about templates, with real templates, in chats and in `/tokenize` alike."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.tokenizer.chat_template import ChatTemplate
from tests.fakes.api import serving

SOURCE = (
    "{% for m in messages %}[{{ m.role }}{% if m.name is defined %}={{ m.name }}{% endif %}]"
    "{{ m.content }}{% endfor %}{% for d in documents or [] %}({{ d.title }}){% endfor %}"
    "{{ style | default('') }}{% if add_generation_prompt %}[assistant]{% endif %}"
)
PARTS = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}"
NAMED = {
    "default": SOURCE,
    "tool_use": "tools: {{ tools | map(attribute='function.name') | join }}",
}
HI = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TRUSTING = ServerConfig(trust_request_chat_template=True)


def rendered(
    fields: dict[str, Any],
    *,
    source: str | dict[str, str] = SOURCE,
    server: ServerConfig | None = None,
) -> str:
    """The prompt of a chat, which must be that of `/tokenize`."""

    async def main() -> str:
        template: Any = ChatTemplate(source)
        make_template: Any = ChatTemplate
        body = {"messages": [HI], **fields}
        async with serving(server, template=template, make_template=make_template) as api:
            tokens = await api.client.post("/tokenize", body)
            assert tokens.status == 200, tokens.body
            chat = await api.client.post(
                "/v1/chat/completions",
                {**body, "tool_choice": "none", "return_token_ids": True, "max_tokens": 1},
            )
            assert chat.status == 200, chat.body
            assert chat.json["prompt_token_ids"] == tokens.json["tokens"]
            text = await api.client.post("/detokenize", {"tokens": tokens.json["tokens"]})
            prompt: str = text.json["prompt"]
            return prompt

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "[user]hi[assistant]"),
        ({"add_generation_prompt": False}, "[user]hi"),
        (
            {
                "messages": [HI, {"role": "assistant", "content": "so "}],
                "add_generation_prompt": False,
                "continue_final_message": True,
            },
            "[user]hi[assistant]so ",
        ),
        ({"documents": [{"title": "T", "text": "t"}]}, "[user]hi(T)[assistant]"),
        ({"chat_template_kwargs": {"style": "!"}}, "[user]hi![assistant]"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "[user]hi[assistant]"),
        ({"add_special_tokens": True}, "<bos>[user]hi[assistant]"),
        ({"messages": [{**HI, "name": "Ann"}]}, "[user=Ann]hi[assistant]"),
        ({"messages": [{"role": "critic", "content": "no"}]}, "[critic]no[assistant]"),
        ({"messages": [{"role": "developer", "content": "be"}]}, "[system]be[assistant]"),
        ({"messages": [{"role": "assistant", "content": None}]}, "[assistant][assistant]"),
        ({"messages": [{"role": "user", "content": []}]}, "[user][assistant]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}]},
            "[user]a\nb[assistant]",
        ),
    ],
)
def test_fields_of_a_request(fields: dict[str, Any], expected: str) -> None:
    assert rendered(fields) == expected


def test_a_request_may_bring_a_template_where_that_is_trusted() -> None:
    fields = {"chat_template": "{{ messages[0].content | upper }}"}
    assert rendered(fields, server=TRUSTING) == "HI"


def test_variables_of_the_server_are_there_unless_a_request_has_them() -> None:
    server = ServerConfig(default_chat_template_kwargs={"style": "?"})
    assert rendered({}, server=server) == "[user]hi?[assistant]"
    assert (
        rendered({"chat_template_kwargs": {"style": "!"}}, server=server) == "[user]hi![assistant]"
    )


@pytest.mark.parametrize(
    ("source", "content_format", "expected"),
    [
        (PARTS, "auto", "<a><b>"),
        (PARTS, "openai", "<a><b>"),
        (SOURCE, "auto", "[user]a\nb[assistant]"),
        (SOURCE, "string", "[user]a\nb[assistant]"),
        (
            SOURCE,
            "openai",
            "[user][{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}][assistant]",
        ),
    ],
)
def test_the_content_format_is_found_or_given(
    source: str, content_format: str, expected: str
) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    server = ServerConfig(chat_template_content_format=content_format)
    fields = {"messages": [{"role": "user", "content": parts}]}
    assert rendered(fields, source=source, server=server) == expected


def test_tools_choose_the_template_for_them() -> None:
    assert rendered({}, source=NAMED) == "[user]hi[assistant]"
    assert rendered({"tools": [TOOL]}, source=NAMED) == "tools: look"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('no such style') }}", "no such style"),
        ("{% if %}", "syntax error in line 1"),
        ("{{ 'x' * 10**12 }}", "builds more than"),
        ("{{ messages[0].content.nothing.at_all }}", "has no attribute"),
    ],
)
@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions"])
def test_failures_of_a_template_are_the_requests(path: str, template: str, words: str) -> None:
    async def main() -> None:
        make_template: Any = ChatTemplate
        async with serving(TRUSTING, make_template=make_template) as api:
            answer = await api.client.post(path, {"messages": [HI], "chat_template": template})
            assert answer.status == 400
            assert words in answer.error["message"]
            await api.is_alive()

    asyncio.run(main())
