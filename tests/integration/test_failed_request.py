"""C14: a request whose step fails ends alone.

The model has a token that is poison: its embedding is not a number, so every value of a request
that reads it is not one either. Nothing is played: the failure happens in the kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fakes.tiny_folder import write_tiny_folder
from tests.integration.replies import COMPLETIONS, wait_idle
from tests.integration.server import Server, Stream, serving

POISON = 90
SHARED = list(range(100, 140))  # two whole blocks and a half, before anything goes wrong


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("poisoned")
    model = write_tiny_folder(folder / "model", poison=POISON)
    with serving(folder / "log", model=model) as running:
        yield running


def body(*ids: int, **fields: Any) -> dict[str, Any]:
    return {
        "prompt": [*SHARED, *ids],
        "max_tokens": 60,
        "temperature": 0,
        "ignore_eos": True,
        "logit_bias": {str(POISON): -100},
        "logprobs": 1,
        **fields,
    }


def choice(server: Server, ids: int) -> Any:
    status, reply = server.post(COMPLETIONS, body(ids))
    assert status == 200, reply
    return reply["choices"][0]


@pytest.mark.parametrize("stream", [False, True])
def test_c14_a_failed_step_ends_its_request_alone(server: Server, stream: bool) -> None:
    alone = [choice(server, number) for number in range(6)]
    failures = server.metric("vllm:request_success_total", finished_reason="error")
    with ThreadPoolExecutor(12) as clients:
        others = [clients.submit(choice, server, number) for number in range(6)]
        bad = [
            clients.submit(server.post, COMPLETIONS, body(POISON, number, stream=stream))
            for number in range(6)
        ]
        for failed in bad:
            status, reply = failed.result()
            assert status == 500
            assert "not numbers" in reply["error"]["message"]
            assert reply["error"]["type"] == "InternalServerError"
        assert server.request("GET", "/health")[0] == 200
        assert [other.result() for other in others] == alone
    wait_idle(server)
    assert server.metric("vllm:request_success_total", finished_reason="error") == failures + 6
    assert choice(server, 0) == alone[0]  # also what is cached now is right


def test_c14_a_failure_in_the_midst_of_a_stream_is_its_last_event(server: Server) -> None:
    alone = choice(server, 7)
    with (
        ThreadPoolExecutor(1) as clients,
        Stream(server, COMPLETIONS, body(8, logit_bias={str(POISON): 100})) as stream,
    ):
        other = clients.submit(choice, server, 7)
        assert stream.status == 200
        events = list(stream.events())
        assert events[-1] == "[DONE]"
        assert "not numbers" in json.loads(events[-2])["error"]["message"]
        assert [json.loads(event)["choices"][0]["text"] for event in events[:-2]]
        assert other.result() == alone
    assert server.request("GET", "/health")[0] == 200
    wait_idle(server)
