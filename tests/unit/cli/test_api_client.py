"""Calls of a server: what is sent, and a sentence for everything that goes wrong."""

from __future__ import annotations

import re

import pytest

from octavo.cli.api_client import ApiClient
from octavo.errors import CommandFailed, ConfigError
from tests.fakes.stub_server import Reply, answering, events, json_reply
from tests.integration.server import free_port

CHUNK = {"choices": [{"text": "a"}]}


def read(url: str) -> list[object]:
    return list(ApiClient(url, "key").stream("/completions", {"prompt": "x"}))


def test_events_come_as_they_are_sent_until_the_end() -> None:
    with answering(events(CHUNK, CHUNK)) as server:
        assert read(f"{server.url}/v1/") == [CHUNK, CHUNK]
    (asked,) = server.asked
    assert asked.path == "/v1/completions"
    assert asked.headers["authorization"] == "Bearer key"
    assert asked.json == {"prompt": "x"}


def test_comments_and_other_lines_are_no_events() -> None:
    body = [b": keep-alive\n\n", b"event: x\r\ndata:{}\r\n\r\n", b"data: [DONE]\n\n"]
    with answering(Reply(body=body)) as server:
        assert read(server.url) == [{}]


def test_the_first_model_is_found() -> None:
    with answering(Reply()) as server:
        assert ApiClient(f"{server.url}/v1", "k").first_model() == "a-model"


@pytest.mark.parametrize("models", [json_reply({"data": []}), Reply(body=b"<html>")])
def test_a_server_without_models_is_told(models: Reply) -> None:
    with (
        answering(Reply(), models=models) as server,
        pytest.raises(CommandFailed, match=r"/models names no model; give one with --model-name"),
    ):
        ApiClient(server.url, "k").first_model()


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (
            json_reply({"error": {"message": "no such key"}}, 401),
            r"answered 401 Unauthorized: no such key \(--api-key or OPENAI_API_KEY",
        ),
        (json_reply({"detail": "Not Found"}, 404), "answered 404 Not Found: Not Found"),
        (json_reply({"error": "plain"}, 400), "answered 400 Bad Request: plain"),
        (Reply(502, b"<html>\nbad"), r"answered 502 Bad Gateway: <html>\?bad"),
        (Reply(503), "answered 503 Service Unavailable: no reason given"),
        (events({"error": {"message": "engine died"}}), "ended the answer: engine died"),
        (events(CHUNK, done=False), "ended the stream before its answer was whole"),
        (Reply(body=[b"data: {\n\n"]), "sent an event that is not JSON"),
    ],
)
def test_what_goes_wrong_is_one_sentence(reply: Reply, says: str) -> None:
    with answering(reply) as server, pytest.raises(CommandFailed, match=says) as caught:
        read(server.url)
    assert "\n" not in caught.value.message


def test_a_connection_that_breaks_is_told() -> None:
    piece = b'data: {"choices": []}\n\n'
    with (
        answering(Reply(body=[piece], ends_early=True)) as server,
        pytest.raises(CommandFailed, match=r"connection .* broke|before its answer was whole"),
    ):
        read(server.url)


def test_a_server_that_is_not_there_is_told_with_the_remedy() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    expected = re.escape(f"no server answers at {url} (Connection refused); octavo serve starts")
    with pytest.raises(CommandFailed, match=expected):
        read(url)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://", "http://x:port/"])
def test_a_wrong_url_is_a_mistake_of_usage(url: str) -> None:
    with pytest.raises(ConfigError, match="--url must look like"):
        ApiClient(url, "k")
