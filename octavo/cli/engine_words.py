"""The engine's flags after those of a command: `octavo bench latency --n 8 --dtype float32`.

Runs in: the shell's process. Knows nothing of: the commands.
"""

from __future__ import annotations

from octavo.config.args import EngineArgs, ServerArgs, split_options
from octavo.config.parser import ParsedArgs, parse_serve


def parse_engine_words(words: list[str]) -> ParsedArgs:
    """What the words say, by the rules of `octavo serve`; here `--model` is the usual way to name
    one.

    Raises:
        ConfigError: a flag is unknown or has a wrong value.
    """
    model, rest = [], []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name == "--model":
            model = [value if equals else next(left, "")]
        else:
            rest.append(word)
    return parse_serve([*model, *rest])


def read_engine_words(words: list[str]) -> tuple[EngineArgs, ServerArgs]:
    """The same as options of the engine, with the warnings of all, and of the server.

    Raises:
        ConfigError: a flag is unknown, unsupported, or has a wrong value.
    """
    parsed = parse_engine_words(words)
    engine_args, server_args = split_options(parsed.options)
    engine_args.warnings += [*parsed.warnings, *server_args.warnings]
    return engine_args, server_args
