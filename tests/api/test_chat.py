from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from tests.fakes.api import serving
from tests.fakes.byte_tokenizer import EOS
from tests.fakes.fake_async_llm import saying


def texts(chunks: list[Any], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content", "")
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["index"] == index
    )


def test_whole_reply_has_openai_shape() -> None:
    async def main() -> None:
        async with serving(script=saying("hello")) as api:
            answer = await api.client.chat()
            assert answer.status == 200
            reply = answer.json
            assert reply["id"].startswith("chatcmpl-")
            assert reply["object"] == "chat.completion"
            assert reply["model"] == "small"
            assert reply["system_fingerprint"].startswith("octavo-1.2.3-")
            (choice,) = reply["choices"]
            assert choice["message"] == {"role": "assistant", "content": "hello", "refusal": None}
            assert choice["finish_reason"] == "stop"
            assert choice["index"] == 0
            assert choice["logprobs"] is None
            assert reply["usage"]["completion_tokens"] == 6
            assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + 6

    asyncio.run(main())


def test_c35_stream_begins_with_role_and_ends_with_one_finish_reason() -> None:
    async def main() -> None:
        async with serving(script=saying("hello")) as api:
            answer = await api.client.chat(stream=True)
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["x-accel-buffering"] == "no"
            chunks = answer.chunks
            assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            for chunk in chunks:
                assert chunk["object"] == "chat.completion.chunk"
                for choice in chunk["choices"]:
                    assert choice["delta"].get("role", "assistant") == "assistant"
                    assert isinstance(choice["delta"].get("content", ""), str)
            reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
            assert reasons[-1] == "stop"
            assert set(reasons[:-1]) == {None}
            assert texts(chunks) == "hello"

    asyncio.run(main())


@pytest.mark.parametrize("options", [{}, None, {"include_usage": False}])
def test_c38_no_usage_chunk_unless_asked_for(options: dict[str, Any] | None) -> None:
    async def main() -> None:
        async with serving() as api:
            chunks = (await api.client.chat(stream=True, stream_options=options)).chunks
            assert all("usage" not in chunk for chunk in chunks)
            assert all(chunk["choices"] for chunk in chunks)

    asyncio.run(main())


def test_c37_usage_chunk_is_last_and_has_no_choices() -> None:
    async def main() -> None:
        async with serving() as api:
            chunks = (
                await api.client.chat(stream=True, stream_options={"include_usage": True})
            ).chunks
            assert all(chunk.get("usage") is None for chunk in chunks[:-1])
            assert chunks[-1]["choices"] == []
            assert chunks[-1]["usage"]["completion_tokens"] > 0

    asyncio.run(main())


def test_usage_in_each_chunk_on_request() -> None:
    async def main() -> None:
        async with serving(script=saying("abc")) as api:
            options = {"include_usage": True, "continuous_usage_stats": True}
            chunks = (await api.client.chat(stream=True, stream_options=options)).chunks
            counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
            assert counts == sorted(counts)
            assert counts[0] == 0
            assert counts[-1] == counts[-2] == 4

    asyncio.run(main())


def test_forced_usage_comes_without_stream_options() -> None:
    async def main() -> None:
        async with serving(ServerConfig(enable_force_include_usage=True)) as api:
            chunks = (await api.client.chat(stream=True)).chunks
            assert chunks[-1]["choices"] == []
            assert chunks[-1]["usage"]["total_tokens"] > 0

    asyncio.run(main())


def test_stream_options_without_stream_are_refused() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(stream_options={"include_usage": True})
            assert answer.status == 400
            assert answer.error["param"] == "stream_options"

    asyncio.run(main())


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stop", [None, ["l"]])
def test_c40_usage_is_the_same_streamed_whole_and_tokenized(n: int, stop: list[str] | None) -> None:
    async def main() -> None:
        async with serving(script=saying("hello")) as api:
            options = {"n": n, "stop": stop}
            whole = (await api.client.chat("count me", **options)).json["usage"]
            streamed = (
                await api.client.chat(
                    "count me", stream=True, stream_options={"include_usage": True}, **options
                )
            ).chunks[-1]["usage"]
            tokens = await api.client.post(
                "/tokenize", {"messages": [{"role": "user", "content": "count me"}]}
            )
            assert whole == streamed
            assert whole["prompt_tokens"] == tokens.json["count"]
            assert whole["completion_tokens"] % n == 0

    asyncio.run(main())


def test_c41_three_choices_stream_interleaved_with_one_done() -> None:
    async def main() -> None:
        async with serving(script=saying("abcdef")) as api:
            answer = await api.client.chat(n=3, stream=True, stream_options={"include_usage": True})
            chunks = answer.chunks
            assert [c["choices"] for c in chunks].count([]) == 1
            parts = [choice for chunk in chunks for choice in chunk["choices"]]
            assert sum(part["finish_reason"] is not None for part in parts) == 3
            for index in range(3):
                assert texts(chunks, index) == "abcdef"
            order = [part["index"] for part in parts]
            assert order != sorted(order)

    asyncio.run(main())


def test_n_whole_choices_are_in_order() -> None:
    async def main() -> None:
        async with serving() as api:
            choices = (await api.client.chat(n=3)).json["choices"]
            assert [choice["index"] for choice in choices] == [0, 1, 2]

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_c44_first_token_eos_gives_empty_content(stream: bool) -> None:
    async def main() -> None:
        async with serving(script=lambda _: [EOS]) as api:
            answer = await api.client.chat(stream=stream)
            if stream:
                assert texts(answer.chunks) == ""
                assert answer.chunks[-1]["choices"][0]["finish_reason"] == "stop"
            else:
                choice = answer.json["choices"][0]
                assert choice["message"]["content"] == ""
                assert choice["finish_reason"] == "stop"
            await api.is_alive()

    asyncio.run(main())


def test_c19_newer_name_of_max_tokens_wins() -> None:
    async def main() -> None:
        async with serving(script=saying("0123456789")) as api:
            reply = (await api.client.chat(max_tokens=5, max_completion_tokens=7)).json
            assert reply["usage"]["completion_tokens"] == 7
            assert reply["choices"][0]["finish_reason"] == "length"

    asyncio.run(main())


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
def test_c17_limits_beyond_the_window_are_refused_and_clamped(field: str, stream: bool) -> None:
    async def main() -> None:
        async with serving(script=lambda _: [65] * 1000, max_model_len=64) as api:
            api.llm._input.set_limits(64, 100000)
            refused = await api.client.chat(stream=stream, **{field: 65})
            assert refused.status == 400
            assert "65" in refused.error["message"]
            assert "64" in refused.error["message"]
            zero = await api.client.chat(stream=stream, **{field: 0})
            assert zero.error["param"] == field
            clamped = await api.client.chat(stream=stream, **{field: 63})
            last = clamped.chunks[-1] if stream else clamped.json
            assert last["choices"][0]["finish_reason"] == "length"
            long = await api.client.chat("x" * 100, stream=stream)
            assert long.status == 400
            assert "64" in long.error["message"]

    asyncio.run(main())


def test_c46_logprobs_without_top_logprobs() -> None:
    async def main() -> None:
        async with serving(script=saying("\u20acx")) as api:
            reply = (await api.client.chat(logprobs=True)).json
            entries = reply["choices"][0]["logprobs"]["content"]
            assert len(entries) == reply["usage"]["completion_tokens"]
            assert [set(entry) for entry in entries] == [
                {"token", "logprob", "bytes", "top_logprobs"}
            ] * len(entries)
            assert all(entry["top_logprobs"] == [] for entry in entries)
            joined = bytes(b for entry in entries[:-1] for b in entry["bytes"])
            assert joined.decode() == "\u20acx"

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_c49_logprobs_are_finite(stream: bool) -> None:
    async def main() -> None:
        async with serving(script=lambda _: [0, 65, EOS]) as api:
            answer = await api.client.chat(logprobs=True, top_logprobs=20, stream=stream)
            assert b"Infinity" not in answer.body
            assert b"NaN" not in answer.body
            choices = [c["choices"][0] for c in answer.chunks] if stream else answer.json["choices"]
            entries = [e for c in choices if c["logprobs"] for e in c["logprobs"]["content"]]
            assert entries[0]["logprob"] == -9999.0
            assert len(entries[1]["top_logprobs"]) == 20
            likeliest = [t["logprob"] for t in entries[1]["top_logprobs"]]
            assert likeliest == sorted(likeliest, reverse=True)

    asyncio.run(main())


def test_logprobs_of_a_stream_are_those_of_the_whole() -> None:
    async def main() -> None:
        async with serving(script=saying("a\u20acb")) as api:
            fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}
            whole = (await api.client.chat(**fields)).json["choices"][0]["logprobs"]["content"]
            chunks = (await api.client.chat(stream=True, **fields)).chunks
            streamed = [
                entry
                for chunk in chunks
                for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
            ]
            assert streamed == whole

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ],
)
def test_top_logprobs_need_logprobs(fields: dict[str, Any], param: str) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(**fields)
            assert answer.status == 400
            assert answer.error["param"] == param

    asyncio.run(main())


def test_c64_empty_tools_mean_no_tools() -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.chat(tools=[])).status == 200
            assert api.template.calls[-1]["tools"] is None

    asyncio.run(main())


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        (None, "tools"),
        ("auto", "tools"),
        ("required", "tool_choice"),
        ({"type": "function", "function": {"name": "f"}}, "tool_choice"),
    ],
)
def test_c65_tools_without_a_parser_are_refused(choice: Any, param: str) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(tools=[TOOL], tool_choice=choice)
            assert answer.status == 400
            assert answer.error["param"] == param
            assert "--tool-call-parser" in answer.error["message"]

    asyncio.run(main())


def test_tools_are_rendered_with_tool_choice_none() -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.chat(tools=[TOOL], tool_choice="none")).status == 200
            assert api.template.calls[-1]["tools"] == [TOOL]

    asyncio.run(main())


def test_c74_tool_call_arguments_reach_the_template_as_a_mapping() -> None:
    async def main() -> None:
        async with serving() as api:
            call = {
                "id": "1",
                "type": "function",
                "function": {"name": "f", "arguments": '{"a":1}'},
            }
            answer = await api.client.post(
                "/v1/chat/completions",
                {
                    "messages": [
                        {"role": "user", "content": "go"},
                        {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "1", "content": "done"},
                    ]
                },
            )
            assert answer.status == 200
            seen = api.template.calls[-1]["messages"][1]
            assert seen["tool_calls"][0]["function"]["arguments"] == {"a": 1}
            assert seen["content"] == ""

    asyncio.run(main())


def test_c76_the_templates_own_words_reach_the_client() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post(
                "/v1/chat/completions", {"messages": [{"role": "forbidden", "content": "x"}]}
            )
            assert answer.status == 400
            assert answer.error["message"] == "Conversation roles must alternate"

    asyncio.run(main())


def test_c77_text_parts_are_joined_images_refused_developer_is_system() -> None:
    async def main() -> None:
        async with serving() as api:
            parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
            for content, seen in ((parts, "a\nb"), ([], "")):
                answer = await api.client.post(
                    "/v1/chat/completions",
                    {"messages": [{"role": "developer", "content": content}]},
                )
                assert answer.status == 200
                message = api.template.calls[-1]["messages"][0]
                assert message == {"role": "system", "content": seen}
            image = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
            answer = await api.client.post(
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": [parts[0], image]}]},
            )
            assert answer.status == 400
            assert answer.error["param"] == "messages[0].content[1]"
            assert "image_url" in answer.error["message"]

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_echo_repeats_the_last_assistant_message(stream: bool) -> None:
    async def main() -> None:
        async with serving(script=saying(" world")) as api:
            body = {
                "messages": [
                    {"role": "user", "content": "go"},
                    {"role": "assistant", "content": "hello"},
                ],
                "echo": True,
                "stream": stream,
                "add_generation_prompt": False,
                "continue_final_message": True,
            }
            answer = await api.client.post("/v1/chat/completions", body)
            text = (
                texts(answer.chunks) if stream else answer.json["choices"][0]["message"]["content"]
            )
            assert text == "hello world"

    asyncio.run(main())


def test_a_chat_without_template_is_refused_with_the_remedy() -> None:
    async def main() -> None:
        async with serving(has_template=False) as api:
            answer = await api.client.chat()
            assert answer.status == 400
            assert "--chat-template" in answer.error["message"]

    asyncio.run(main())


@pytest.mark.parametrize("trusted", [False, True])
def test_template_of_a_request_needs_trust(trusted: bool) -> None:
    async def main() -> None:
        async with serving(ServerConfig(trust_request_chat_template=trusted)) as api:
            answer = await api.client.chat(chat_template="x")
            assert answer.status == (200 if trusted else 400)
            if not trusted:
                assert answer.error["param"] == "chat_template"

    asyncio.run(main())


def test_template_variables_of_the_request_win_over_the_servers() -> None:
    async def main() -> None:
        config = ServerConfig(default_chat_template_kwargs={"a": 1, "b": 1})
        async with serving(config) as api:
            await api.client.chat(
                chat_template_kwargs={"b": 2, "messages": []}, reasoning_effort="low"
            )
            call = api.template.calls[-1]
            assert (call["a"], call["b"], call["reasoning_effort"]) == (1, 2, "low")
            assert call["messages"]

    asyncio.run(main())


def test_token_ids_on_request() -> None:
    async def main() -> None:
        async with serving(script=saying("ab")) as api:
            whole = (await api.client.chat(return_token_ids=True)).json
            assert whole["choices"][0]["token_ids"] == [97, 98, EOS]
            assert len(whole["prompt_token_ids"]) == whole["usage"]["prompt_tokens"]
            chunks = (await api.client.chat(return_token_ids=True, stream=True)).chunks
            assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
            streamed = [i for c in chunks for i in c["choices"][0].get("token_ids", [])]
            assert streamed == [97, 98, EOS]

    asyncio.run(main())


def test_the_prompts_text_on_request() -> None:
    async def main() -> None:
        async with serving() as api:
            plain = (await api.client.chat()).json
            assert "prompt_text" not in plain
            whole = (await api.client.chat(return_prompt_text=True, n=2)).json
            tokens = await api.client.post(
                "/tokenize", {"messages": [{"role": "user", "content": "abc"}]}
            )
            text = (await api.client.post("/detokenize", {"tokens": tokens.json["tokens"]})).json
            assert whole["prompt_text"] == text["prompt"]
            chunks = (await api.client.chat(return_prompt_text=True, n=2, stream=True)).chunks
            told = [chunk["prompt_text"] for chunk in chunks if "prompt_text" in chunk]
            assert told == [whole["prompt_text"]]

    asyncio.run(main())


def test_cached_tokens_are_shown_only_with_the_flag() -> None:
    async def main() -> None:
        async with serving() as api:
            assert "prompt_tokens_details" not in (await api.client.chat()).json["usage"]
        async with serving(ServerConfig(enable_prompt_tokens_details=True)) as api:
            usage = (await api.client.chat()).json["usage"]
            assert usage["prompt_tokens_details"] == {"cached_tokens": 0}

    asyncio.run(main())
