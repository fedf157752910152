"""`octavo chat` against a server that answers as the test says."""

from __future__ import annotations

import io
from typing import Any

import pytest

from octavo.cli.chat import chat
from octavo.errors import CommandFailed
from tests.fakes.stub_server import Reply, answering, events, json_reply


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"delta": fields}]}


HELLO = events(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"))


def ask(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_one_quick_question_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(HELLO) as server:
        assert chat(["--url", f"{server.url}/v1", "-q", "Hi"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hello\n"
    assert captured.err == "Using model: a-model\n"
    assert server.asked[-1].path == "/v1/chat/completions"
    assert server.asked[-1].json == {
        "model": "a-model",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    }


def test_the_flags_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
    words = ["--model-name", "m", "--system-prompt", "Be brief.", "--quick", "Hi"]
    with answering(HELLO) as server:
        chat(["--url", server.url, *words])
        chat(["--url", server.url, "--api_key", "given", *words])
    first, second = server.asked
    assert first.headers["authorization"] == "Bearer of-the-environment"
    assert second.headers["authorization"] == "Bearer given"
    assert first.json["model"] == "m"
    assert first.json["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_pipe_is_a_conversation_of_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(monkeypatch, "One\n\nTwo")
    with answering(HELLO) as server:
        assert chat(["--url", server.url]) == 0
    assert capsys.readouterr().out == "Hello\nHello\n"
    assert [message["content"] for message in server.asked[-1].json["messages"]] == [
        *("One", "Hello", "Two"),
    ]


def test_reasoning_stands_between_its_tags(capsys: pytest.CaptureFixture[str]) -> None:
    stream = events(
        delta(role="assistant", content=""),
        delta(reasoning="I thi"),
        delta(reasoning_content="nk."),
        delta(content="Yes"),
    )
    with answering(stream) as server:
        chat(["--url", server.url, "-q", "Hi"])
    assert capsys.readouterr().out == "<think>\nI think.\n</think>\nYes\n"


def test_reasoning_without_an_answer_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(events(delta(reasoning="Hm"))) as server:
        chat(["--url", server.url, "-q", "Hi"])
    assert capsys.readouterr().out == "<think>\nHm\n</think>\n\n"


def test_stats_are_of_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    stream = events(delta(content="a"), {"choices": [], "usage": {"completion_tokens": 7}})
    with answering(stream) as server:
        chat(["--url", server.url, "-q", "Hi", "--stats"])
    assert server.asked[-1].json["stream_options"] == {"include_usage": True}
    err = capsys.readouterr().err
    assert "TTFT: " in err
    assert "tokens/s (7 tokens in " in err


def test_a_refusal_ends_a_pipe_with_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, "One\nTwo\n")
    refusal = json_reply({"error": {"message": "no"}}, 400)
    with answering(refusal) as server, pytest.raises(CommandFailed, match="400 Bad Request: no"):
        chat(["--url", server.url])
    assert len(server.asked) == 2  # the models and the first line


def test_a_broken_answer_keeps_what_came_of_it() -> None:
    from octavo.cli.api_client import ApiClient
    from octavo.cli.chat import Conversation

    broken = Reply(body=[b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'])
    with answering(broken, json_reply({}, 500)) as server:
        conversation = Conversation(ApiClient(server.url, "k"), "m", None, stats=False)
        for _ in range(2):
            with pytest.raises(CommandFailed):
                conversation.answer("Hi")
    assert conversation.messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hel"},
    ]
