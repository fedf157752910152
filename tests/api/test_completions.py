from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from tests.fakes.api import serving
from tests.fakes.byte_tokenizer import BOS, EOS, VOCAB_SIZE
from tests.fakes.fake_async_llm import saying


def joined(chunks: list[Any], index: int = 0) -> str:
    return "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index)


def joined_logprobs(chunks: list[Any]) -> dict[str, list[Any]]:
    total: dict[str, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for key, values in (choice["logprobs"] or {}).items():
                total.setdefault(key, []).extend(values)
    return total


def test_whole_completion_has_openai_shape() -> None:
    async def main() -> None:
        async with serving(script=saying("xyz")) as api:
            reply = (await api.client.complete("abc")).json
            assert reply["id"].startswith("cmpl-")
            assert reply["object"] == "text_completion"
            assert reply["choices"] == [
                {
                    "index": 0,
                    "text": "xyz",
                    "logprobs": None,
                    "finish_reason": "stop",
                    "stop_reason": None,
                }
            ]
            assert reply["usage"] == {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "total_tokens": 7,
            }

    asyncio.run(main())


def test_sixteen_tokens_unless_asked_otherwise() -> None:
    async def main() -> None:
        async with serving(script=lambda _: [65] * 100) as api:
            assert (await api.client.complete()).json["usage"]["completion_tokens"] == 16
        async with serving(
            script=lambda _: [65] * 100, default_sampling_params={"max_tokens": 3}
        ) as api:
            assert (await api.client.complete()).json["usage"]["completion_tokens"] == 3

    asyncio.run(main())


def test_c52_one_choice_per_prompt_in_order_with_n() -> None:
    async def main() -> None:
        async with serving() as api:
            prompts = ["xa", "xb", [120, 99]]
            reply = (await api.client.complete(prompts, n=2, add_special_tokens=False)).json
            assert [c["index"] for c in reply["choices"]] == list(range(6))
            assert [c["text"] for c in reply["choices"]] == ["ax", "ax", "bx", "bx", "cx", "cx"]
            assert reply["usage"]["prompt_tokens"] == 6
            chunks = (
                await api.client.complete(prompts, n=2, stream=True, add_special_tokens=False)
            ).chunks
            assert [joined(chunks, i) for i in range(6)] == ["ax", "ax", "bx", "bx", "cx", "cx"]
            finished = [
                c["index"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]
            ]
            assert sorted(finished) == list(range(6))

    asyncio.run(main())


def test_streamed_text_and_usage_equal_the_whole() -> None:
    async def main() -> None:
        async with serving(script=saying("gr\u00fc\u00dfe \u20ac")) as api:
            whole = (await api.client.complete(max_tokens=50)).json
            chunks = (
                await api.client.complete(
                    stream=True, max_tokens=50, stream_options={"include_usage": True}
                )
            ).chunks
            assert joined(chunks) == whole["choices"][0]["text"] == "gr\u00fc\u00dfe \u20ac"
            assert chunks[-1]["usage"] == whole["usage"]
            assert chunks[-1]["choices"] == []

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_c8_echo_without_new_tokens(stream: bool) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.complete(
                "abc",
                echo=True,
                max_tokens=0,
                logprobs=1,
                stream=stream,
                stream_options={"include_usage": True} if stream else None,
            )
            assert answer.status == 200
            if stream:
                chunks = answer.chunks
                text, usage = joined(chunks), chunks[-1]["usage"]
                logprobs = joined_logprobs(chunks)
                reason = chunks[-2]["choices"][0]["finish_reason"]
            else:
                choice, usage = answer.json["choices"][0], answer.json["usage"]
                text, logprobs, reason = choice["text"], choice["logprobs"], choice["finish_reason"]
            assert text == "abc"
            assert reason == "length"
            assert usage["completion_tokens"] == 0
            num_prompt = usage["prompt_tokens"]
            assert [len(values) for values in logprobs.values()] == [num_prompt] * 4
            assert logprobs["token_logprobs"][0] is None
            assert logprobs["top_logprobs"][0] is None
            assert all(isinstance(p, float) for p in logprobs["token_logprobs"][1:])

    asyncio.run(main())


def test_no_new_tokens_without_echo_is_refused() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.complete(max_tokens=0)
            assert answer.status == 400
            assert answer.error["param"] == "max_tokens"

    asyncio.run(main())


def test_c47_logprobs_zero_gives_token_logprobs_only() -> None:
    async def main() -> None:
        async with serving(script=saying("xy")) as api:
            logprobs = (await api.client.complete(logprobs=0)).json["choices"][0]["logprobs"]
            assert logprobs["token_logprobs"] == [-1.5, -1.5, -1.5]
            assert logprobs["tokens"] == ["x", "y", "<eos>"]
            assert logprobs["top_logprobs"] == [None, None, None]

    asyncio.run(main())


def test_top_logprobs_hold_the_chosen_token_too() -> None:
    async def main() -> None:
        async with serving(script=saying("x")) as api:
            logprobs = (await api.client.complete(logprobs=1)).json["choices"][0]["logprobs"]
            assert logprobs["top_logprobs"][0] == {"\x00": -0.25, "x": -1.5}

    asyncio.run(main())


@pytest.mark.parametrize("prompt", ["a\u20ac b", [97, 226, 130, 172, 98], "<bos>ab"])
@pytest.mark.parametrize("n", [1, 2])
def test_c50_offsets_index_tokens_in_the_joined_text(prompt: Any, n: int) -> None:
    async def main() -> None:
        async with serving(script=saying("x\u00fcy")) as api:
            chunks = (
                await api.client.complete(
                    prompt, echo=True, stream=True, logprobs=1, n=n, add_special_tokens=True
                )
            ).chunks
            for index in range(n):
                own = [
                    {"choices": [c for c in chunk["choices"] if c["index"] == index]}
                    for chunk in chunks
                ]
                text, logprobs = joined(own, index), joined_logprobs(own)
                assert text.endswith("x\u00fcy")
                offsets = logprobs["text_offset"]
                assert offsets == sorted(offsets)
                for token, offset in zip(logprobs["tokens"], offsets, strict=True):
                    assert offset <= len(text)
                    if token not in ("<bos>", "<eos>") and "\ufffd" not in token:
                        assert text[offset : offset + len(token)] == token
            whole = (
                await api.client.complete(
                    prompt, echo=True, logprobs=1, n=n, add_special_tokens=True
                )
            ).json
            assert whole["choices"][0]["logprobs"] == joined_logprobs(
                [{"choices": [c for c in chunk["choices"] if not c["index"]]} for chunk in chunks]
            )

    asyncio.run(main())


def test_echo_of_token_ids_is_their_text() -> None:
    async def main() -> None:
        async with serving(script=saying("!")) as api:
            reply = (await api.client.complete([104, 105], echo=True)).json
            assert reply["choices"][0]["text"] == "hi!"

    asyncio.run(main())


def test_c2_impossible_token_ids_are_refused() -> None:
    async def main() -> None:
        async with serving() as api:
            for ids in ([-1], [10**9], [2**63], [VOCAB_SIZE], [10**30]):
                answer = await api.client.complete(ids)
                assert answer.status == 400, ids
                assert "Overflow" not in answer.error["message"]
            await api.is_alive()

    asyncio.run(main())


@pytest.mark.parametrize(
    "prompt", [[], [[]], [1, "a"], ["a", 1], [True], [1.5], {"a": 1}, 5, [None], [[1, None]]]
)
def test_prompts_of_a_wrong_kind_are_refused(prompt: Any) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.complete(prompt)
            assert answer.status == 400
            assert (answer.error["param"] or "").startswith("prompt")

    asyncio.run(main())


def test_a_missing_prompt_is_named() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post("/v1/completions", {"model": "small"})
            assert answer.status == 400
            assert answer.error["message"] == "1 validation error: prompt: Field required"
            assert answer.error["param"] == "prompt"

    asyncio.run(main())


def test_too_many_prompts_are_refused() -> None:
    async def main() -> None:
        async with serving(ServerConfig(max_completion_prompts=2)) as api:
            assert (await api.client.complete(["a", "b"])).status == 200
            assert (await api.client.complete(["a", "b", "c"])).status == 400

    asyncio.run(main())


def test_one_bad_prompt_leaves_nothing_of_the_others_behind() -> None:
    async def main() -> None:
        async with serving() as api:
            api.core.hold()
            assert (await api.client.complete(["good", [10**9]])).status == 400
            assert api.core.num_running == 0
            assert api.llm.num_unfinished_requests == 0

    asyncio.run(main())


def test_prompt_logprobs_whole_only() -> None:
    async def main() -> None:
        async with serving() as api:
            reply = (await api.client.complete("xy z", prompt_logprobs=1)).json
            found = reply["choices"][0]["prompt_logprobs"]
            assert len(found) == reply["usage"]["prompt_tokens"]
            assert found[0] is None
            assert set(found[1]["120"]) == {"logprob", "rank", "decoded_token"}
            refused = await api.client.complete(prompt_logprobs=1, stream=True)
            assert refused.error["param"] == "prompt_logprobs"

    asyncio.run(main())


def test_c10_all_prompt_logprobs_need_the_operator() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.complete(prompt_logprobs=-1)
            assert answer.status == 400
            assert answer.error["param"] == "prompt_logprobs"

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("include", [False, True])
def test_c58_stop_string_is_there_once_or_not_at_all(stream: bool, include: bool) -> None:
    async def main() -> None:
        async with serving(script=saying("one STOP two")) as api:
            answer = await api.client.complete(
                stop=["STOP"], include_stop_str_in_output=include, stream=stream
            )
            text = joined(answer.chunks) if stream else answer.json["choices"][0]["text"]
            assert text == ("one STOP" if include else "one ")
            last = answer.chunks[-1] if stream else answer.json
            assert last["choices"][0]["finish_reason"] == "stop"
            assert last["choices"][0]["stop_reason"] == "STOP"

    asyncio.run(main())


def test_c59_a_stop_string_that_never_comes_makes_no_empty_chunks() -> None:
    async def main() -> None:
        async with serving(script=saying("zzz and so on")) as api:
            chunks = (await api.client.complete(stop=["zzzz"], stream=True)).chunks
            assert joined(chunks) == "zzz and so on"
            assert all(c["choices"][0]["text"] for c in chunks[:-1])
            assert chunks[-1]["choices"][0]["finish_reason"] == "stop"

    asyncio.run(main())


def test_c61_ignore_eos_gives_exactly_max_tokens() -> None:
    async def main() -> None:
        async with serving(script=lambda _: [65, EOS] * 50) as api:
            reply = (await api.client.complete(ignore_eos=True, max_tokens=64)).json
            assert reply["usage"]["completion_tokens"] == 64
            assert reply["choices"][0]["finish_reason"] == "length"

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_c82_a_prompt_cut_inside_a_character_is_not_repeated(stream: bool) -> None:
    async def main() -> None:
        async with serving(script=lambda _: [172, 33, EOS]) as api:
            answer = await api.client.complete([104, 226, 130], stream=stream)
            text = joined(answer.chunks) if stream else answer.json["choices"][0]["text"]
            assert "h" not in text
            assert text.endswith("!")

    asyncio.run(main())


@pytest.mark.parametrize("text", ["ends \u20ac", "\U0001f600"])
def test_c83_a_cut_inside_a_character_is_the_same_both_ways(text: str) -> None:
    async def main() -> None:
        async with serving(script=saying(text)) as api:
            cut = len(text.encode()) - 1
            whole = (await api.client.complete(max_tokens=cut)).json["choices"][0]["text"]
            chunks = (await api.client.complete(max_tokens=cut, stream=True)).chunks
            assert joined(chunks) == whole
            assert whole.rstrip("\ufffd") == text[:-1]
            assert whole.count("\ufffd") <= 1

    asyncio.run(main())


@pytest.mark.parametrize(("side", "seen"), [("left", b"def"), ("right", b"abc")])
def test_prompts_are_truncated_on_request(side: str, seen: bytes) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.complete(
                "abcdef",
                truncate_prompt_tokens=3,
                truncation_side=side,
                add_special_tokens=False,
                return_token_ids=True,
            )
            tokens = answer.json["choices"][0]["prompt_token_ids"]
            tokenizer = api.llm.tokenizer
            full = tokenizer.encode("abcdef", add_special_tokens=False)
            assert tokens == (full[-3:] if side == "left" else full[:3])

    asyncio.run(main())


def test_bos_is_added_unless_told_otherwise() -> None:
    async def main() -> None:
        async with serving() as api:
            ids = {}
            for flag in (True, False):
                reply = await api.client.complete(
                    "xyz", add_special_tokens=flag, return_token_ids=True
                )
                ids[flag] = reply.json["choices"][0]["prompt_token_ids"]
            assert ids[True] == [BOS, *ids[False]]

    asyncio.run(main())


def test_tokens_as_token_ids() -> None:
    async def main() -> None:
        async with serving(script=saying("x")) as api:
            reply = await api.client.complete(logprobs=0, return_tokens_as_token_ids=True)
            assert reply.json["choices"][0]["logprobs"]["tokens"][0] == "token_id:120"

    asyncio.run(main())


def test_c55_defaults_of_the_model_apply_and_the_request_wins() -> None:
    async def main() -> None:
        defaults = {"temperature": 0.5, "top_k": 20.0, "top_p": 0.9, "repetition_penalty": 1.1}
        async with serving(default_sampling_params=defaults) as api:
            await api.client.complete()
            params = api.core.added[-1].sampling_params
            assert (params.temperature, params.top_k, params.top_p) == (0.5, 20, 0.9)
            assert params.repetition_penalty == 1.1
            await api.client.complete(top_k=3, temperature=0.7, top_p=None)
            params = api.core.added[-1].sampling_params
            assert (params.temperature, params.top_k, params.top_p) == (0.7, 3, 0.9)

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_c62_a_stop_string_inside_reasoning_text_ends_the_reply_there(stream: bool) -> None:
    async def main() -> None:
        async with serving(script=saying("<think>It is 9.8 m/s2.</think>answer")) as api:
            answer = await api.client.complete(stop=["9.8"], max_tokens=99, stream=stream)
            choice = (answer.chunks[-1] if stream else answer.json)["choices"][0]
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "9.8")
            text = joined(answer.chunks) if stream else choice["text"]
            assert text == "<think>It is "

    asyncio.run(main())
