"""`octavo complete` against a server that answers as the test says."""

from __future__ import annotations

import io

import pytest

from octavo.cli.complete import complete
from tests.fakes.stub_server import answering, events

STREAM = events({"choices": [{"text": " one"}]}, {"choices": [{"text": " two"}]}, {"choices": []})


def test_a_prompt_is_continued(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(STREAM) as server:
        assert complete(["--url", server.url, "-q", "zero", "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out == " one two\n"
    assert server.asked[-1].path == "/completions"
    assert server.asked[-1].json == {
        "model": "a-model",
        "prompt": "zero",
        "max_tokens": 5,
        "stream": True,
    }


def test_each_line_of_a_pipe_is_a_prompt_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\n"))
    with answering(STREAM) as server:
        assert complete(["--url", server.url]) == 0
    assert capsys.readouterr().out == " one two\n one two\n"
    assert [asked.json["prompt"] for asked in server.asked[1:]] == ["a", "b"]
