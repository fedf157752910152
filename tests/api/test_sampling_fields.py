"""Sampling fields of the OpenAI routes: how they reach the engine, and beam search."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.sampling_params import RepetitionDetectionParams, SamplingParams
from tests.fakes.api import serving
from tests.fakes.fake_async_llm import saying

#: field -> value in a body, value in the parameters
FIELDS: dict[str, tuple[Any, Any]] = {
    "n": (2, 1),  # each output is a request of its own
    "temperature": (0.5, 0.5),
    "top_p": (0.5, 0.5),
    "top_k": (5, 5),
    "min_p": (0.1, 0.1),
    "presence_penalty": (0.5, 0.5),
    "frequency_penalty": (-0.5, -0.5),
    "repetition_penalty": (1.5, 1.5),
    "logit_bias": ({"5": 300}, {5: 100.0}),
    "seed": (7, 7),
    "stop": ("x", ["x"]),
    "stop_token_ids": ([5, 6, 5], [5, 6]),
    "include_stop_str_in_output": (True, True),
    "ignore_eos": (True, True),
    "max_tokens": (3, 3),
    "min_tokens": (1, 1),
    "bad_words": (["ab"], ["ab"]),
    "allowed_token_ids": ([104, 105], [104, 105]),
    "skip_special_tokens": (False, False),
    "spaces_between_special_tokens": (False, False),
    "prompt_logprobs": (2, 2),
    "stream_interval": (4, 4),
    "repetition_detection": (
        {"max_pattern_size": 3, "min_count": 2},
        RepetitionDetectionParams(3, 0, 2),
    ),
    "vllm_xargs": ({"a": [1, "b"]}, {"a": [1, "b"]}),
}
NAMES = {"vllm_xargs": "extra_args"}


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_reaches_the_engine_from_both_routes(field: str) -> None:
    sent, expected = FIELDS[field]

    async def main() -> None:
        async with serving() as api:
            for ask in (api.client.chat, api.client.complete):
                answer = await ask(**{field: sent})
                assert answer.status == 200, answer.body
                params = api.core.added[-1].sampling_params
                name = NAMES.get(field, field)
                if field == "prompt_logprobs":  # of n outputs the first one's
                    params = api.core.added[0].sampling_params
                assert getattr(params, name) == expected

    asyncio.run(main())


def test_parameters_of_python_and_of_both_routes_are_the_same() -> None:
    """`SamplingParams` has no field that the routes lack, but for those of Python callers."""
    only_in_python = {
        "logprobs",  # an integer in one route, two fields in the other
        "logprob_token_ids",  # below
        "detokenize",
        "flat_logprobs",
        "output_kind",  # what `stream` says
        "skip_clone",
        "structured_outputs",  # tests of its own; the core gets the grammar
        "skip_reading_prefix_cache",
        "bad_words_token_ids",
        "reasoning",  # what the server's reasoning parser looks for
    }
    named = {NAMES.get(field, field) for field in FIELDS}
    assert named | only_in_python == set(SamplingParams.__struct_fields__)


# ---- asked ids


def test_asked_ids_are_shown_beside_the_chosen_token() -> None:
    async def main() -> None:
        async with serving(script=saying("x")) as api:
            more = {"logprobs": 1, "logprob_token_ids": [66, 65], "max_tokens": 1}
            answer = await api.client.complete(**more)
            assert answer.status == 200, answer.body
            params = api.core.added[-1].sampling_params
            assert (params.logprob_token_ids, params.logprobs) == ([66, 65], 2)
            top = answer.json["choices"][0]["logprobs"]["top_logprobs"][0]
            assert len(top) == 3  # the played core has its own ids
            chat = await api.client.chat(logprobs=True, logprob_token_ids=[66, 65], max_tokens=1)
            assert len(chat.json["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "`logprobs` must be set"),
        ({"logprob_token_ids": []}, "must hold 1 to 128 token ids"),
        ({"logprob_token_ids": [10**6]}, "not in the model's vocabulary"),
        ({"logprob_token_ids": list(range(129))}, "must hold 1 to 128 token ids"),
    ],
)
def test_asked_ids_that_cannot_be_shown_are_refused(more: dict[str, Any], message: str) -> None:
    async def main() -> None:
        async with serving() as api:
            body = {"logprob_token_ids": [1], **more}
            asks = [(api.client.complete, 1), (api.client.chat, True)]
            for ask, logprobs in asks:
                answer = await ask(**body, **({"logprobs": logprobs} if more else {}))
                assert answer.status == 400
                assert message in answer.json["error"]["message"]
                assert answer.json["error"]["param"] == "logprob_token_ids"

    asyncio.run(main())


# ---- repetition


def test_repetition_limits_are_named_in_the_error() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(repetition_detection={"max_pattern_size": 4})
            assert answer.status == 400
            assert answer.json["error"]["param"] == "repetition_detection"
            assert "min_count must be >= 2" in answer.json["error"]["message"]

    asyncio.run(main())


# ---- beam search


def test_a_completion_has_as_many_choices_as_beams_best_first() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.complete(
                use_beam_search=True, n=3, max_tokens=4, logprobs=2, ignore_eos=True
            )
            assert answer.status == 200, answer.body
            choices = answer.json["choices"]
            assert [c["index"] for c in choices] == [0, 1, 2]
            assert all(c["finish_reason"] == "length" for c in choices)
            totals = [sum(c["logprobs"]["token_logprobs"]) for c in choices]
            assert totals == sorted(totals, reverse=True)
            assert all(len(c["logprobs"]["tokens"]) == 4 for c in choices)
            assert answer.json["usage"]["completion_tokens"] == 12
            asked = api.core.added[-1].sampling_params
            assert (asked.logprobs, asked.max_tokens) == (6, 1)
            assert api.core.num_running == 0

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_answers_with_beams_too(stream: bool) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.chat(
                use_beam_search=True, n=2, max_tokens=3, stream=stream, length_penalty=0.5
            )
            assert answer.status == 200, answer.body
            if not stream:
                assert len(answer.json["choices"]) == 2
            else:
                assert answer.body.endswith(b"data: [DONE]\n\n")
                assert answer.body.count(b'"finish_reason":"length"') == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    "field",
    [
        {"stop": ["x"]},
        {"stop_token_ids": [5]},
        {"logit_bias": {"5": 1}},
        {"bad_words": ["x"]},
        {"allowed_token_ids": [5]},
        {"min_tokens": 2},
        {"prompt_logprobs": 0},
        {"repetition_detection": {"max_pattern_size": 2, "min_count": 2}},
    ],
)
def test_what_a_beam_search_cannot_honour_is_refused(field: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving() as api:
            for ask in (api.client.complete, api.client.chat):
                answer = await ask(use_beam_search=True, n=2, **field)
                assert answer.status == 400, field
                assert answer.json["error"]["param"] == next(iter(field))
                assert "beam search" in answer.json["error"]["message"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"stream": True}, "stream"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"n": 11}, "n"),
        ({"max_tokens": 0, "echo": True}, "max_tokens"),
    ],
)
def test_completions_refuse_beam_searches_that_cannot_be(more: dict[str, Any], param: str) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.complete(**{"use_beam_search": True, "n": 2, **more})
            assert answer.status == 400, answer.body
            assert answer.json["error"]["param"] == param

    asyncio.run(main())


def test_a_failing_beam_fails_the_request_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with serving() as api:
            api.core.errors["-1-1"] = "the model failed"
            answer = await api.client.complete(use_beam_search=True, n=2, max_tokens=4)
            assert answer.status == 500
            assert "the model failed" in answer.json["error"]["message"]
            assert api.core.num_running == 0
            api.core.errors.clear()
            await api.is_alive()

    asyncio.run(main())
