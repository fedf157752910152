"""Reads `octavo serve`'s command line by vLLM's rules.

Not argparse: its tree of 317 actions costs more than the whole start of the parser is allowed,
and half of the rules below (nested keys, `_` for `-`, `-O3`, multi-letter short forms, YAML under
the command line) would have to be argued past it.

    --max-model-len 8k   --max_model_len=8k    `_` and `-` are the same in names
    --enable-prefix-caching --no-...           booleans
    --api-key k1 k2                            lists take all words up to the next flag
    --hf-overrides.rope_scaling.factor 2       nested JSON; --x.list+ a,b appends
    -tp 2  -tp=2  -O3                          short forms
    --config file.yaml                         keys are flag names; the command line wins

Runs in: the API process, before anything heavy is imported. Owns: syntax.
Knows nothing of: what flags do (see flags/judge.py).
"""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, INTS, JSON, REPEAT, STR_OR_TRUE, STRS, Flag
from octavo.config.flags.nearest import did_you_mean
from octavo.config.flags.table import BY_NAME, BY_SHORT, CURRENT_NAMES, FLAGS
from octavo.config.flags.values import convert, read_json_or_text
from octavo.errors import ConfigError

_MODEL_TAG = next(flag for flag in FLAGS if flag.field == "model_tag")
_LISTS = frozenset({STRS, INTS})


class ParsedArgs:
    """What a command line says.

    `options` maps field names to typed values and holds only what was given; `warnings` are
    sentences for the log; `help_topic` is None, "" (plain --help) or the word after `--help=`.
    """

    __slots__ = ("help_topic", "options", "warnings")

    def __init__(self) -> None:
        self.options: dict[str, object] = {}
        self.warnings: list[str] = []
        self.help_topic: str | None = None


def parse_serve(argv: list[str]) -> ParsedArgs:
    """Parses the words after `octavo serve`.

    Raises:
        ConfigError: one sentence: what is wrong, and the nearest name if there is one.
    """
    reader = _Reader(argv)
    parsed = reader.parsed
    if parsed.help_topic is not None:
        return parsed
    config_path = parsed.options.pop("config", None)
    if config_path is not None:
        from octavo.config.yaml_file import read_yaml  # PyYAML costs 25 ms; rarely used

        from_file, warnings = read_yaml(str(config_path))
        parsed.options = {**from_file, **parsed.options}
        parsed.warnings.extend(warnings)
    _apply_keys(parsed, reader.keys)
    _choose_model(parsed, reader.positionals)
    return parsed


def find_flag(name: str) -> tuple[Flag, bool]:
    """The flag of a name without its leading dashes, and False if it came with `no-`.

    Raises:
        ConfigError: there is no such flag.
    """
    name = name.replace("_", "-")
    flag = BY_NAME.get(name)
    if flag is not None:
        return flag, True
    if name.startswith("no-"):
        positive = BY_NAME.get(name[3:])
        if positive is not None and positive.kind == BOOL:
            return positive, False
    raise ConfigError(
        f"unknown flag --{name}{did_you_mean(name, CURRENT_NAMES, shown='--{}')} "
        "(octavo serve --help=all lists every flag)"
    )


class _Reader:
    """One pass over the words of a command line."""

    def __init__(self, argv: list[str]) -> None:
        self.parsed = ParsedArgs()
        self.positionals: list[str] = []
        #: (flag, path of keys, value) of `--x.key value`, in order
        self.keys: list[tuple[Flag, list[str], str]] = []
        self._words = argv
        self._next = 0
        self._last_boolean: Flag | None = None
        self._read()

    def _read(self) -> None:
        while self._next < len(self._words) and self.parsed.help_topic is None:
            word = self._words[self._next]
            self._next += 1
            if word == "--":
                self.positionals.extend(self._words[self._next :])
                return
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                self._read_long(name, value if equals else None)
            elif _is_flag(word):
                self._read_short(word[1:])
            else:
                self._read_positional(word)

    def _read_long(self, name: str, value: str | None) -> None:
        if name == "help":
            self.parsed.help_topic = value or ""
            return
        name, dot, path = name.partition(".")
        flag, positive = find_flag(name)
        if dot:
            self._read_key(flag, path, value)
        else:
            self._read_value(flag, positive, value)

    def _read_short(self, word: str) -> None:
        name, equals, text = word.partition("=")
        value = text if equals else None
        if name == "h":
            self.parsed.help_topic = value or ""
            return
        name, dot, path = name.partition(".")
        if name not in BY_SHORT and name[:1] == "O" and not dot and value is None:
            name, value = "O", name[1:]
        flag = BY_SHORT.get(name)
        if flag is None:
            raise ConfigError(
                f"unknown flag -{name}{did_you_mean(name, BY_SHORT, shown='-{}')} "
                "(octavo serve --help=all lists every flag)"
            )
        if dot:
            self._read_key(flag, path, value)
        else:
            self._read_value(flag, True, value)

    def _read_positional(self, word: str) -> None:
        previous = self._last_boolean
        if previous is not None and word.lower() in ("true", "false"):
            raise ConfigError(
                f"--{previous.name} takes no value: write --{previous.name} or --no-{previous.name}"
            )
        self.positionals.append(word)

    def _read_value(self, flag: Flag, positive: bool, value: str | None) -> None:
        self._last_boolean = flag if flag.kind == BOOL and value is None else None
        raw: object
        if flag.kind == BOOL:
            raw = positive if value is None else value
            if not positive and value is not None:
                raise ConfigError(f"--no-{flag.name} takes no value, got {value!r}")
        elif flag.kind in _LISTS:
            raw = [value] if value is not None else self._take_all(flag)
        elif flag.kind == STR_OR_TRUE and value is None:
            raw = self._take() if self._has_value() else True
        else:
            raw = value if value is not None else self._take_one(flag)
        typed = convert(flag, raw)
        options = self.parsed.options
        if flag.kind == REPEAT and isinstance(typed, list):
            earlier = options.get(flag.field)
            typed = [*earlier, *typed] if isinstance(earlier, list) else typed
        elif flag.field in options:
            self.parsed.warnings.append(f"--{flag.name} is given twice; the last one counts")
        if flag.field == "model":
            self.parsed.warnings.append(
                f"--model is deprecated with octavo serve: write octavo serve {typed}"
            )
        options[flag.field] = typed

    def _read_key(self, flag: Flag, path: str, value: str | None) -> None:
        if flag.kind != JSON:
            raise ConfigError(f"--{flag.name} takes one value and has no key {path!r}")
        self._last_boolean = None
        keys = path.split(".")
        if not all(key.rstrip("+") for key in keys):
            raise ConfigError(f"--{flag.name}.{path} has an empty key")
        text = value if value is not None else self._take_one(flag)
        self.keys.append((flag, keys, text))

    def _has_value(self) -> bool:
        return self._next < len(self._words) and not _is_flag(self._words[self._next])

    def _take(self) -> str:
        word = self._words[self._next]
        self._next += 1
        return word

    def _take_one(self, flag: Flag) -> str:
        if not self._has_value():
            raise ConfigError(f"--{flag.name} needs a value")
        return self._take()

    def _take_all(self, flag: Flag) -> list[str]:
        words = [self._take_one(flag)]
        while self._has_value():
            words.append(self._take())
        return words


def _is_flag(word: str) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False  # a negative number is a value


def _apply_keys(parsed: ParsedArgs, keys: list[tuple[Flag, list[str], str]]) -> None:
    """Merges `--x.key value` over what `--x '{...}'` or the file says of x."""
    seen: set[tuple[str, ...]] = set()
    for flag, path, text in keys:
        base = parsed.options.get(flag.field)
        root: dict[str, object] = _copied(base) if isinstance(base, dict) else {}
        parsed.options[flag.field] = root
        spot = root
        for key in path[:-1]:
            inner = spot.get(key)
            if inner is None:
                inner = spot[key] = {}
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"--{flag.name}.{'.'.join(path)}: {key!r} already has the value {inner!r}"
                )
            spot = inner
        last = path[-1]
        if last.endswith("+"):
            _append(flag, spot, last[:-1], text)
            continue
        where = (flag.field, *path)
        if where in seen:
            parsed.warnings.append(
                f"--{flag.name}.{'.'.join(path)} is given twice; the last one counts"
            )
        seen.add(where)
        spot[last] = read_json_or_text(text)


def _append(flag: Flag, spot: dict[str, object], key: str, text: str) -> None:
    items = spot.setdefault(key, [])
    if not isinstance(items, list):
        raise ConfigError(f"--{flag.name}: {key!r} is {items!r}, not a list to append to")
    items.extend(read_json_or_text(item) for item in text.split(","))


def _copied(value: dict[str, object]) -> dict[str, object]:
    """A copy whose inner objects and lists can be changed."""
    copy: dict[str, object] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            copy[key] = _copied(item)
        else:
            copy[key] = list(item) if isinstance(item, list) else item
    return copy


def _choose_model(parsed: ParsedArgs, positionals: list[str]) -> None:
    options = parsed.options
    if len(positionals) > 1:
        raise ConfigError(f"unexpected argument {positionals[1]!r}: octavo serve takes one model")
    tag = options.pop("model_tag", None)  # from the file
    given = convert(_MODEL_TAG, positionals[0]) if positionals else tag
    if positionals and not positionals[0]:
        raise ConfigError("the model is an empty string; name a model or leave it out")
    if given is not None:
        if options.get("model") not in (None, given):
            parsed.warnings.append(
                f"--model {options['model']} is ignored: the positional argument names {given}"
            )
        options["model"] = given
        return
    names = options.get("served_model_name")
    if "model" not in options and isinstance(names, list) and len(names) > 1:
        raise ConfigError(
            "--served-model-name takes every word that follows it, and no model is left: put the "
            f"model first (octavo serve MODEL --served-model-name {names[0]})"
        )
