"""docs/cli.md shows commands that exist, with flags that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.cli import chat, complete, run_batch
from octavo.cli.bench import TARGETS as BENCHMARKS
from octavo.cli.bench_serve.flags import make_parser as bench_serve_parser
from octavo.cli.commands import AVAILABLE, TARGETS
from octavo.cli.engine_words import read_engine_words

PAGE = (Path(__file__).resolve().parents[2] / "docs/cli.md").read_text()


def run_batch_words(words: list[str]) -> None:
    read_engine_words(run_batch.make_parser().read_known(words)[1])


READERS: dict[str, Callable[[list[str]], object]] = {
    "chat": chat.make_parser().read,
    "complete": complete.make_parser().read,
    "run-batch": run_batch_words,
    "bench serve": bench_serve_parser().read,
    "collect-env": lambda words: None,
}


def commands() -> list[str]:
    """Each `octavo ...` of a block, with its continued lines, without pipes and comments."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    found = re.findall(r"\boctavo (?:[^|>#\"\n]|\"[^\"]*\")+", text)
    return [command.strip() for command in found]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_can_be_run(command: str) -> None:
    words = shlex.split(command)[1:]
    name = next(name for name in READERS if words[: len(name.split())] == name.split())
    READERS[name](words[len(name.split()) :])


def test_every_command_is_on_the_page() -> None:
    assert len(commands()) >= 10
    for name in AVAILABLE:
        assert f"`octavo {name}" in PAGE
    for name in BENCHMARKS:
        assert name in PAGE
    assert AVAILABLE.keys() == TARGETS.keys()
