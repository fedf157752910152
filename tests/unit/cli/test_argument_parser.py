"""argparse with the habits of this command line."""

from __future__ import annotations

import pytest

from octavo.cli.argument_parser import CommandParser
from octavo.errors import ConfigError


def parser() -> CommandParser:
    made = CommandParser("octavo try", "Tries.")
    made.add_argument("--input-len", type=int, default=3)
    made.add_argument("--name", nargs="*")
    made.add_hint("--old", "there is nothing to tune", nargs="?")
    made.add_unsupported("--never", "there is no such thing")
    return made


def test_underscores_are_dashes_in_names_only() -> None:
    options = parser().read(["--input_len=8", "--name", "a_b", "c_d"])
    assert options.input_len == 8
    assert options.name == ["a_b", "c_d"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--input-lenn", "3"], "octavo try: unknown flag --input-lenn; did you mean --input-len"),
        (["--input-len", "x"], "octavo try: argument --input-len: invalid int value: 'x'"),
        (["word"], "octavo try: unexpected word word"),
        (["--never", "1"], "--never is not supported: there is no such thing"),
        (["--input", "3"], "unknown flag --input; did you mean --input-len"),
    ],
)
def test_wrong_usage_is_one_sentence(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parser().read(words)


def test_a_flag_without_effect_warns(capsys: pytest.CaptureFixture[str]) -> None:
    parser().read(["--old", "5"])
    assert capsys.readouterr().err == (
        "octavo: warning: --old has no effect: there is nothing to tune\n"
    )


def test_words_of_others_are_handed_on() -> None:
    options, rest = parser().read_known(["--port", "1", "--input-len", "2", "model"])
    assert options.input_len == 2
    assert rest == ["--port", "1", "model"]
