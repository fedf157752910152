"""`Flag`: one row of the flag table, and the four ways a flag can be treated.

Plain classes and no imports: the whole table is read by `octavo --help`, which has 0.25 s.

Runs in: the command line, `EngineArgs`. Owns: what a row holds. Knows nothing of: parsing.
"""

from __future__ import annotations

# How a flag is treated when it is set to something other than its default.
WORKS = "works"
HINT = "hint"  # accepted, no effect on this engine: one warning, start goes on
UNSUPPORTED = "unsupported"  # would change results or capacity: start fails with the reason
REMOVED = "removed"  # older vLLM versions had it: a hint, fatal where its effect would be missed

# Kinds of value; `octavo/config/flags/values.py` reads each.
STR = "str"
INT = "int"
FLOAT = "float"
BOOL = "bool"  # --x and --no-x
JSON = "json"  # an object, or --x.key value
JSON_LIST = "json_list"  # a JSON list
STRS = "strs"  # one or more words
INTS = "ints"  # one or more integers
REPEAT = "repeat"  # one word, may be given again
SIZE = "size"  # 8192, 8k (8000), 8K (8192)
WINDOW = "window"  # a SIZE, or auto
STR_OR_TRUE = "str_or_true"  # a word, or nothing


class Flag:
    """One command-line flag.

    `name` has dashes and no leading ones; `field` is the same with underscores. `default` is what
    the flag means when it is not given; where that is None, `auto` says in words what is chosen.
    `choices` are the values vLLM takes; `supported` (None: all of them) those that work here, the
    others fail with `why`. `low` and `high` bound numbers, both inclusive.
    """

    __slots__ = (
        "aliases",
        "auto",
        "choices",
        "default",
        "fatal",
        "field",
        "group",
        "help",
        "high",
        "kind",
        "low",
        "name",
        "secret",
        "short",
        "status",
        "supported",
        "why",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        default: object,
        help: str,
        *,
        status: str = WORKS,
        why: str = "",
        short: tuple[str, ...] = (),
        aliases: tuple[str, ...] = (),
        choices: tuple[object, ...] | None = None,
        supported: tuple[object, ...] | None = None,
        low: float | None = None,
        high: float | None = None,
        auto: str = "",
        secret: bool = False,
        fatal: bool = False,
    ) -> None:
        self.name = name
        self.field = name.replace("-", "_")
        self.kind = kind
        self.default = default
        self.help = help
        self.status = status
        self.why = why
        self.short = short
        self.aliases = aliases
        self.choices = choices
        self.supported = supported
        self.low = low
        self.high = high
        self.auto = auto
        self.secret = secret
        self.fatal = fatal
        self.group = ""  # set by the table

    def __repr__(self) -> str:
        return f"Flag(--{self.name}, {self.status})"


def hint(name: str, kind: str, default: object, help: str, why: str, **more: object) -> Flag:
    """A flag that is accepted and has no effect here; `why` completes "has no effect: ..."."""
    return Flag(name, kind, default, help, status=HINT, why=why, **more)  # type: ignore[arg-type]


def unsupported(name: str, kind: str, default: object, help: str, why: str, **more: object) -> Flag:
    """A flag that must not be ignored; `why` completes "is not supported: ..."."""
    return Flag(name, kind, default, help, status=UNSUPPORTED, why=why, **more)  # type: ignore[arg-type]


def removed(name: str, kind: str, why: str, *, fatal: bool = False) -> Flag:
    """A flag of older vLLM versions; `why` says what to use. Fatal where it changed results."""
    return Flag(name, kind, None, "", status=REMOVED, why=why, fatal=fatal)
