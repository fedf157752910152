"""Rows of the mission that later issues own: what the server says today (README.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.server import Server

PAGE = Path(__file__).with_name("README.md").read_text()
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## Rows of later issues")[2].splitlines()
    if line.startswith("| ") and not line.startswith("| Row ")
]
FLAGS = [(asked, said) for _, _, asked, said in ROWS if asked.startswith("--")]
ROUTES = [(asked, said) for _, _, asked, said in ROWS if asked.startswith("POST ")]


def test_every_row_has_a_reason_and_an_answer() -> None:
    assert len(FLAGS) + len(ROUTES) == len(ROWS) >= 10
    for _, why, _, said in ROWS:
        assert len(why) > 10
        assert said


@pytest.mark.parametrize(("flags", "sentence"), FLAGS)
def test_a_flag_that_is_not_there_yet(tmp_path: Path, flags: str, sentence: str) -> None:
    """Refused in one sentence, if it would change results or capacity; else answered in the log,
    before the model is looked for."""
    server = Server(tmp_path / "log", *flags.split(), model="/no/such/model")
    try:
        assert server.wait_exit(10) == 2
    finally:
        server.stop()
    assert sentence in server.log
    if "is not supported" in sentence:
        assert server.log.strip() == f"octavo: error: {sentence}"


@pytest.mark.parametrize(("route", "sentence"), ROUTES)
def test_a_route_that_is_not_there_yet(live: Server, route: str, sentence: str) -> None:
    method, path = route.split()
    status, _, data = live.request(method, path, {})
    assert status == 404
    error = json.loads(data)["error"]
    assert sentence in error["message"]
