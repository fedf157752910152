"""Bad input is a 400 in the error shape, and hurts nobody else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.api.body import MAX_BODY_BYTES
from tests.fakes.api import serving

CHAT = "/v1/chat/completions"
MESSAGES = '"messages":[{"role":"user","content":"x"}]'


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"NaN"', "1e999", "[]", "{}"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "presence_penalty"])
def test_c4_numbers_that_are_none_are_refused_in_valid_json(value: str, field: str) -> None:
    async def main() -> None:
        async with serving() as api:
            body = f'{{"{field}":{value},{MESSAGES}}}'.encode()
            answer = await api.client.post(CHAT, body)
            assert answer.status == 400
            json.loads(answer.body, parse_constant=pytest.fail)
            assert answer.error["message"].startswith("1 validation error: ")
            await api.is_alive()

    asyncio.run(main())


@pytest.mark.parametrize("value", [0.01, 1.5, -0.5, "5", True, [1]])
def test_c5_top_k_that_is_no_integer_names_top_k(value: Any) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(top_k=value)
            assert answer.status == 400
            assert answer.error["param"] == "top_k"
            assert "top_k: Expected `int" in answer.error["message"]
            assert str(value) in answer.error["message"]

    asyncio.run(main())


def test_c5_integral_floats_are_integers() -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.chat(top_k=5.0, seed=7.0)).status == 200
            params = api.core.added[-1].sampling_params
            assert (params.top_k, params.seed) == (5, 7)
            assert type(params.top_k) is int
            fields: dict[str, Any] = {
                "stop_token_ids": [7, 8.0],
                "allowed_token_ids": [9.0],
                "repetition_detection": {"max_pattern_size": 4.0, "min_count": 3},
            }
            assert (await api.client.complete(**fields)).status == 200
            params = api.core.added[-1].sampling_params
            assert (params.stop_token_ids, params.allowed_token_ids) == ([7, 8], [9])
            assert params.repetition_detection is not None
            assert params.repetition_detection.max_pattern_size == 4
            for prompt in ([65.0, 66], [[65, 66.0]]):
                assert (await api.client.complete(prompt)).status == 200
                prompt_ids = api.core.added[-1].prompt_token_ids
                assert prompt_ids == [65, 66]
                assert all(type(token_id) is int for token_id in prompt_ids)
            for bad in ([65.5], [65, 66.5], [[65.5]]):
                answer = await api.client.complete(bad)
                assert (answer.status, answer.error["param"][:6]) == (400, "prompt")

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [0, -1, 10**9])
def test_c7_n_out_of_range_is_refused_before_a_stream(stream: bool, n: int) -> None:
    async def main() -> None:
        async with serving() as api:
            for answer in (
                await api.client.chat(n=n, stream=stream),
                await api.client.complete(n=n, stream=stream),
            ):
                assert answer.status == 400
                assert answer.headers["content-type"] == "application/json"
                assert answer.error["param"] == "n"

    asyncio.run(main())


def test_c1_logit_bias_outside_the_vocabulary_is_named() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(logit_bias={"999999": 5})
            assert answer.status == 400
            assert answer.error["param"] == "logit_bias"
            assert str(api.llm.model_config.vocab_size) in answer.error["message"]
            assert (await api.client.chat(logit_bias={"x": 5})).status == 400
            assert (await api.client.chat(logit_bias={"65": -100})).status == 200

    asyncio.run(main())


def test_every_mistake_is_listed() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(temperature="hot", n="many", stop=[1])
            error = answer.error
            assert error["message"].startswith("3 validation errors: ")
            for name in ("temperature: ", "n: ", "stop[0]: "):
                assert name in error["message"]
            assert error["param"] == "n"

    asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{'a': 1}",
        b'{"a": 1,}',
        b"\xff\xfe\x00",
        b'{"messages": "x"}',
        b'{"messages": []}',
        b'{"messages": [1]}',
        b'{"messages": [{}]}',
        b'{"messages": [{"role": 1, "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": 5}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "text"}]}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": "x"}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]}',
        b"[" * 100000,
        b'{"messages":' + b"[" * 100000,
        b'{"x":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    ],
)
def test_malformed_bodies_are_400(body: bytes) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post(CHAT, body)
            assert answer.status == 400, answer.body[:200]
            assert len(answer.error["message"]) < 1000
            await api.is_alive()

    asyncio.run(main())


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_wrong_content_type_is_400(content_type: str | None) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post(CHAT, {"messages": []}, content_type=content_type)
            assert answer.status == 400
            assert "application/json" in answer.error["message"]

    asyncio.run(main())


def test_content_type_may_have_parameters_and_bodies_may_come_in_pieces() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post(
                CHAT,
                {"messages": [{"role": "user", "content": "x"}]},
                content_type="Application/JSON; charset=utf-8",
                pieces=7,
            )
            assert answer.status == 200

    asyncio.run(main())


def test_bodies_over_the_limit_are_413() -> None:
    async def main() -> None:
        async with serving() as api:
            announced = await api.client.post(
                CHAT, b"{}", headers={"content-length": str(MAX_BODY_BYTES + 1)}
            )
            assert announced.status == 413
            sent = await api.client.post(CHAT, bytes(MAX_BODY_BYTES + 1), pieces=3)
            assert sent.status == 413
            assert sent.error["type"] == "RequestEntityTooLargeError"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path", "fields"),
    [
        ("POST", CHAT, {"messages": [{"role": "user", "content": "x"}]}),
        ("POST", "/v1/completions", {"prompt": "x"}),
        ("POST", "/tokenize", {"prompt": "x"}),
        ("POST", "/tokenize", {"messages": [{"role": "user", "content": "x"}]}),
        ("POST", "/detokenize", {"tokens": [1]}),
        ("POST", f"{CHAT}/batch", {"messages": [[{"role": "user", "content": "x"}]]}),
        ("POST", "/invocations", {"messages": [{"role": "user", "content": "x"}]}),
        ("POST", "/invocations", {"prompt": "x"}),
        ("POST", f"{CHAT}/render", {"messages": [{"role": "user", "content": "x"}]}),
        ("POST", "/v1/completions/render", {"prompt": "x"}),
    ],
)
def test_c16_a_wrong_model_is_404_and_an_empty_one_is_fine(
    method: str, path: str, fields: dict[str, Any]
) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.request(method, path, {"model": "nope", **fields})
            assert answer.status == 404
            error = answer.error
            assert (error["type"], error["code"]) == ("NotFoundError", "model_not_found")
            assert error["param"] == "model"
            assert "`small`, `org/small-2`" in error["message"]
            for model in ("", None, "org/small-2"):
                answer = await api.client.request(method, path, {"model": model, **fields})
                assert answer.status == 200
            assert (await api.client.request(method, path, fields)).status == 200

    asyncio.run(main())


def test_the_served_name_asked_for_is_in_the_response() -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.chat(model="org/small-2")).json["model"] == "org/small-2"
            assert (await api.client.chat()).json["model"] == "small"

    asyncio.run(main())


def test_c20_harmless_unknown_fields_are_reported_to_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(num_ctx=99, **{"b\u00f6se\r\nx": 1})
            assert answer.status == 200
            assert answer.headers["x-octavo-ignored-fields"] == "num_ctx, b\\xf6se\\r\\nx"
            assert answer.json["id"] in caplog.text
            quiet = await api.client.chat(user="me", metadata={}, store=True)
            assert "x-octavo-ignored-fields" not in quiet.headers
            streamed = await api.client.chat(num_ctx=99, stream=True)
            assert streamed.headers["x-octavo-ignored-fields"] == "num_ctx"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guided_json", {"type": "object"}),
        ("guided_regex", "a+"),
        ("guided_choice", ["a"]),
        ("guided_grammar", "root ::= 1"),
        ("guided_json_object", True),
        ("guided_whitespace_pattern", " "),
        ("guided_decoding_backend", "outlines"),
        ("grammar", "x"),
        ("json_schema", {"type": "object"}),
        ("regex", "a"),
        ("ebnf", "x"),
        ("structural_tag", {"triggers": []}),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("best_of", 3),
        ("suffix", "end"),
        ("modalities", ["text", "audio"]),
    ],
)
def test_c20_constraints_that_are_not_honoured_are_refused(field: str, value: Any) -> None:
    async def main() -> None:
        async with serving() as api:
            for answer in (
                await api.client.chat(**{field: value}),
                await api.client.complete(**{field: value}),
            ):
                assert answer.status == 400
                assert answer.error["param"] == field
                assert field in answer.error["message"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guided_json", None),
        ("response_format", {"type": "text"}),
        ("response_format", None),
        ("use_beam_search", False),
        ("functions", []),
        ("best_of", 1),
        ("suffix", ""),
        ("modalities", ["text"]),
    ],
)
def test_constraints_that_ask_for_nothing_are_accepted(field: str, value: Any) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(**{field: value})
            assert answer.status == 200
            assert "x-octavo-ignored-fields" not in answer.headers

    asyncio.run(main())


def test_at_most_four_stop_strings() -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.chat(stop=["1", "2", "3", "4"])).status == 200
            answer = await api.client.chat(stop=["1", "2", "3", "4", "5"])
            assert answer.status == 400
            assert answer.error["param"] == "stop"

    asyncio.run(main())


@pytest.mark.parametrize("salt", ["", "a/b", "a@b", "a\\b", "a\0b", "x" * 129])
def test_cache_salts_that_could_confuse_are_refused(salt: str) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(cache_salt=salt)
            assert answer.status == 400
            assert answer.error["param"] == "cache_salt"

    asyncio.run(main())


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "messages", "model", "stream", "stream_options", "n", "temperature", "top_p", "top_k",
        "seed", "logit_bias", "stop", "max_tokens", "min_tokens", "logprobs", "top_logprobs",
        "tools", "tool_choice", "chat_template_kwargs", "prompt_logprobs", "bad_words",
        "allowed_token_ids", "truncate_prompt_tokens", "response_format", "request_id",
        "continue_final_message", "return_token_ids", "echo", "vllm_xargs",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(fields=st.dictionaries(FIELDS, JSON_VALUES, max_size=4))
def test_any_values_give_an_answer_or_a_400(fields: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving() as api:
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, **fields}
            try:
                data = json.dumps(body).encode()
            except UnicodeEncodeError:
                return
            answer = await api.client.post(CHAT, data)
            assert answer.status in (200, 400, 404), answer.body
            if answer.status != 200:
                assert answer.error["message"]
            assert api.llm.num_unfinished_requests == 0

    asyncio.run(main())
