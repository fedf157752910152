"""argparse with the habits of this command line, for commands with few flags of their own.

`_` and `-` are the same in names, wrong usage is one sentence with the nearest name, and flags of
vLLM that do nothing here or cannot be honoured are known: they warn or refuse with their reason.

Runs in: the shell's process. Knows nothing of: what the flags mean.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from octavo.config.flags.nearest import did_you_mean
from octavo.errors import ConfigError

#: of flags that are only known: neither in the help nor among the options
_UNSEEN: dict[str, Any] = {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}


class CommandParser(argparse.ArgumentParser):
    """A parser of `prog`'s words; `-h` prints the help and ends the program."""

    def __init__(self, prog: str, text: str, *, epilog: str | None = None) -> None:
        super().__init__(prog=prog, description=text, epilog=epilog, allow_abbrev=False)

    def add_hint(self, name: str, why: str, *, nargs: int | str = 0) -> None:
        """A flag without effect here; `why` completes "has no effect: ..."."""
        self.add_argument(name, action=_Hint, nargs=nargs, why=why, **_UNSEEN)

    def add_unsupported(self, name: str, why: str) -> None:
        """A flag that must not be ignored; `why` completes "is not supported: ..."."""
        self.add_argument(name, action=_Refusal, nargs="*", why=why, **_UNSEEN)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The options of a command line.

        Raises:
            ConfigError: a flag is unknown, unsupported, or has a wrong value.
        """
        options, rest = self.read_known(words)
        if rest:
            name = rest[0].partition("=")[0]
            hint = did_you_mean(name, self.flag_names()) if name.startswith("-") else ""
            what = "unknown flag" if name.startswith("-") else "unexpected word"
            raise ConfigError(f"{self.prog}: {what} {name}{hint} ({self.prog} --help lists them)")
        return options

    def flag_names(self) -> list[str]:
        """Every long name it knows, with its dashes."""
        return [name for name in self._option_string_actions if name.startswith("--")]

    def read_known(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """The options of a command line, and the words that belong to somebody else.

        Raises:
            ConfigError: a flag is unsupported or has a wrong value.
        """
        return self.parse_known_args([_dashed(word) for word in words])

    def error(self, message: str) -> NoReturn:
        """Wrong usage is one sentence, as everywhere."""
        raise ConfigError(f"{self.prog}: {message}")


def _dashed(word: str) -> str:
    """`--input_len=8` is `--input-len=8`."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


class _Explained(argparse.Action):
    """A flag that does nothing but say why."""

    def __init__(self, *, why: str, **more: Any) -> None:
        super().__init__(**more)
        self._why = why

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        self._say(parser.prog, option_string)

    def _say(self, prog: str, flag: str | None) -> None:
        raise NotImplementedError


class _Hint(_Explained):
    """Accepted, with one warning."""

    def _say(self, prog: str, flag: str | None) -> None:
        print(f"octavo: warning: {flag} has no effect: {self._why}", file=sys.stderr)


class _Refusal(_Explained):
    """Known, and refused with its reason."""

    def _say(self, prog: str, flag: str | None) -> None:
        raise ConfigError(f"{prog}: {flag} is not supported: {self._why}")
