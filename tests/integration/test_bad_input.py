"""Bad input over real connections: a plain 400, and the server goes on (the alive check is in
`refused`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.replies import CHAT, COMPLETIONS, refused, user
from tests.integration.server import Server

VOCAB_SIZE = 49152


def test_c1_logit_bias_outside_the_vocabulary(live: Server) -> None:
    error = refused(live, CHAT, {"messages": user("hi"), "logit_bias": {"999999": 5}})
    assert error["param"] == "logit_bias"
    assert "logit_bias" in error["message"]
    assert str(VOCAB_SIZE) in error["message"]


@pytest.mark.parametrize("prompt", [[-1], [10**9], [2**63], [VOCAB_SIZE], [[1], [-1]]])
def test_c2_impossible_token_ids(live: Server, prompt: list[Any]) -> None:
    error = refused(live, COMPLETIONS, {"prompt": prompt})
    assert "Overflow" not in error["message"]
    assert "vocabulary" in error["message"] or "prompt" in error["message"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"NaN"'])
@pytest.mark.parametrize("field", ["temperature", "top_p", "presence_penalty"])
def test_c4_numbers_that_are_none(live: Server, field: str, value: str) -> None:
    messages = json.dumps(user("hi"))
    refused(live, CHAT, f'{{"{field}":{value},"messages":{messages}}}'.encode())


def test_c5_a_fraction_for_top_k(live: Server) -> None:
    error = refused(live, CHAT, {"messages": user("hi"), "top_k": 0.01})
    assert error["param"] == "top_k"
    assert "top_k" in error["message"]
    assert live.chat("hi", top_k=5.0, max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c7_no_choices_at_all(live: Server, path: str, stream: bool) -> None:
    content: dict[str, Any] = {"messages": user("hi")} if path == CHAT else {"prompt": "hi"}
    error = refused(live, path, {**content, "n": 0, "stream": stream})
    assert error["param"] == "n"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c10_all_prompt_logprobs(live: Server, path: str) -> None:
    content: dict[str, Any] = {"messages": user("hi")} if path == CHAT else {"prompt": "hi"}
    error = refused(live, path, {**content, "prompt_logprobs": -1})
    assert error["param"] == "prompt_logprobs"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (CHAT, {"messages": user("hi")}),
        (COMPLETIONS, {"prompt": "hi"}),
        ("/tokenize", {"prompt": "hi"}),
        ("/tokenize", {"messages": user("hi")}),
        ("/detokenize", {"tokens": [1]}),
        ("/v1/chat/completions/batch", {"messages": [user("hi")]}),
        ("/invocations", {"messages": user("hi")}),
        ("/invocations", {"prompt": "hi"}),
        ("/v1/chat/completions/render", {"messages": user("hi")}),
        ("/v1/completions/render", {"prompt": "hi"}),
    ],
)
def test_c16_a_model_that_is_not_served(live: Server, path: str, content: dict[str, Any]) -> None:
    error = refused(live, path, {"model": "nope", **content}, status=404)
    assert error["type"] == "NotFoundError"
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert "SmolLM2-135M-Instruct" in error["message"]


def test_c16_no_other_route_takes_a_model(live: Server) -> None:
    """Every route whose body has a `model` is among those of the test above."""
    schema = json.loads(live.request("GET", "/openapi.json")[2])
    parts = schema["components"]["schemas"]

    def has_model(body: dict[str, Any]) -> bool:
        if "$ref" in body:
            return has_model(parts[body["$ref"].rpartition("/")[2]])
        kinds = body.get("anyOf", []) + body.get("oneOf", [])
        return "model" in body.get("properties", {}) or any(map(has_model, kinds))

    found = {
        path
        for path, methods in schema["paths"].items()
        for method in methods.values()
        if "requestBody" in method
        and has_model(method["requestBody"]["content"]["application/json"]["schema"])
    }
    plain = {"/tokenize", "/detokenize", "/invocations"}
    renders = {f"{CHAT}/render", f"{COMPLETIONS}/render"}
    assert found == {CHAT, COMPLETIONS, f"{CHAT}/batch"} | plain | renders


def test_c16_a_model_that_is_not_there(live: Server) -> None:
    status, _, data = live.request("GET", "/v1/models/nope")
    error = json.loads(data)["error"]
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")


def test_c19_the_newer_name_of_max_tokens_wins(live: Server) -> None:
    reply = live.chat("Count to ten.", max_tokens=5, max_completion_tokens=7, ignore_eos=True)
    assert reply["usage"]["completion_tokens"] == 7


def test_c20_a_harmless_unknown_field_is_named_to_the_client(live: Server) -> None:
    body = {"messages": user("hi"), "max_tokens": 1, "num_ctx": 99}
    status, headers, data = live.request("POST", CHAT, body)
    assert status == 200
    assert headers["x-octavo-ignored-fields"] == "num_ctx"
    line = next(line for line in live.log.splitlines() if "num_ctx" in line)
    assert json.loads(data)["id"] in line


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c20_a_constraint_that_is_not_honoured(live: Server, path: str) -> None:
    content: dict[str, Any] = {"messages": user("hi")} if path == CHAT else {"prompt": "hi"}
    error = refused(live, path, {**content, "guided_json": {"type": "object"}})
    assert error["param"] == "guided_json"
