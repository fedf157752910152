"""Reads one flag's value, whether it came from the command line, YAML, or Python.

One converter for all sources, so that `--max-model-len 8k`, `max-model-len: 8k` and
`EngineArgs(max_model_len="8k")` mean the same and fail with the same sentence.

Runs in: the command line, `EngineArgs`. Owns: kinds of value, limits and choices.
Knows nothing of: where values come from, what flags do.
"""

from __future__ import annotations

import json

from octavo.config.flags.flag import (
    BOOL,
    FLOAT,
    INT,
    INTS,
    JSON,
    JSON_LIST,
    REPEAT,
    SIZE,
    STR,
    STR_OR_TRUE,
    STRS,
    WINDOW,
    Flag,
)
from octavo.errors import ConfigError
from octavo.wording import shown

AUTO_WINDOW = -1  # --max-model-len auto

#: vLLM's suffixes: lower case counts in thousands, upper case in powers of 1024
DECIMAL_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

MAX_INTEGER = 2**63  # what travels to the engine

TRUE_WORDS = frozenset({"true", "1", "yes", "on"})
FALSE_WORDS = frozenset({"false", "0", "no", "off"})


def convert(flag: Flag, value: object) -> object:
    """The typed value of `flag`; None stays None where None is the flag's default.

    Raises:
        ConfigError: the value has the wrong type, is out of bounds or not among the choices.
    """
    if value is None and flag.default is None:
        return None
    typed = _canonical_choice(flag, _CONVERTERS[flag.kind](flag, value))
    _check_bounds(flag, typed)
    return typed


def read_size(text: str) -> int:
    """Bytes or tokens from `8192`, `8k` (8,000), `8K` (8,192), `1.5m`.

    Raises:
        ValueError: not such a number; fractions of binary units are refused as in vLLM.
    """
    text = text.strip()
    suffix = text[-1:]
    if suffix in DECIMAL_SUFFIXES:
        return round(float(text[:-1]) * DECIMAL_SUFFIXES[suffix])
    if suffix in BINARY_SUFFIXES:
        return int(text[:-1]) * BINARY_SUFFIXES[suffix]
    return int(text)


def read_json_or_text(text: str) -> object:
    """The JSON value that `text` spells, or `text` itself (values of `--x.key value`)."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


def _wrong(flag: Flag, value: object, expected: str) -> ConfigError:
    got = "(hidden)" if flag.secret else shown(value)
    return ConfigError(f"--{flag.name} must be {expected}, got {got}")


def _string(flag: Flag, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)  # YAML reads an unquoted 0.32 or 8000 as a number
    raise _wrong(flag, value, "a string")


def _integer(flag: Flag, value: object) -> int:
    if isinstance(value, bool):
        raise _wrong(flag, value, "an integer")
    if isinstance(value, int):
        return value
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        raise _wrong(flag, value, "an integer") from None


def _size(flag: Flag, value: object) -> int:
    if isinstance(value, str):
        try:
            return read_size(value)
        except (ValueError, OverflowError):
            raise _wrong(
                flag, value, "an integer, or one with k, m, g, t (thousands) or K, M, G, T (1024s)"
            ) from None
    return _integer(flag, value)


def _window(flag: Flag, value: object) -> int:
    if value in ("auto", "-1", AUTO_WINDOW):
        return AUTO_WINDOW
    size = _size(flag, value)
    if size < 1:
        raise _wrong(flag, value, "at least 1, or auto")
    return size


def _float(flag: Flag, value: object) -> float:
    if isinstance(value, bool):
        raise _wrong(flag, value, "a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise _wrong(flag, value, "a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise _wrong(flag, value, "a finite number")
    return number


def _boolean(flag: Flag, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise _wrong(flag, value, f"true or false (--{flag.name} or --no-{flag.name})")


def _json_object(flag: Flag, value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(
                f"--{flag.name} must be a JSON object, got {value!r}: {error}"
            ) from None
    if not isinstance(value, dict):
        raise _wrong(flag, value, "a JSON object")
    return value


def _json_list(flag: Flag, value: object) -> list[object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise _wrong(flag, value, "a JSON list such as '[\"*\"]'") from None
    if not isinstance(value, (list, tuple)):
        raise _wrong(flag, value, "a JSON list such as '[\"*\"]'")
    return list(value)


def _strings(flag: Flag, value: object) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [
            json.dumps(item) if isinstance(item, dict) else _string(flag, item) for item in value
        ]
    return [_string(flag, value)]


def _integers(flag: Flag, value: object) -> list[int]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_integer(flag, item) for item in items]


def _string_or_true(flag: Flag, value: object) -> str | bool:
    return value if value is True else _string(flag, value)


def _canonical_choice(flag: Flag, value: object) -> object:
    """`value` as the choices spell it: letter case does not matter (--log-level debug)."""
    if flag.choices is None or value in flag.choices:
        return value
    if isinstance(value, str):
        for choice in flag.choices:
            if isinstance(choice, str) and choice.lower() == value.lower():
                return choice
    options = ", ".join(str(choice) for choice in flag.choices)
    raise _wrong(flag, value, f"one of {options}")


def _check_bounds(flag: Flag, value: object) -> None:
    if not isinstance(value, (int, float)) or (value == AUTO_WINDOW and flag.kind == WINDOW):
        return
    if isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER and flag.high is None:
        raise _wrong(flag, value, "a number of at most 63 bits")
    low, high = flag.low, flag.high
    if (low is None or value >= low) and (high is None or value <= high):
        return
    if high is None:
        raise _wrong(flag, value, f"at least {low}")
    raise _wrong(flag, value, f"between {low} and {high}")


_CONVERTERS = {
    STR: _string,
    INT: _integer,
    FLOAT: _float,
    BOOL: _boolean,
    JSON: _json_object,
    JSON_LIST: _json_list,
    STRS: _strings,
    INTS: _integers,
    REPEAT: _strings,
    SIZE: _size,
    WINDOW: _window,
    STR_OR_TRUE: _string_or_true,
}
