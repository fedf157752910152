"""Help texts, made from the flag table.

`octavo serve --help` lists groups, `--help=all` every flag, `--help=WORD` one group, one flag, or
all flags that mention the word.

Runs in: the shell's process. Knows nothing of: parsing.
"""

from __future__ import annotations

from octavo.cli.commands import AVAILABLE, UNAVAILABLE
from octavo.config.flags.flag import BOOL, HINT, JSON, REMOVED, STRS, UNSUPPORTED, Flag
from octavo.config.flags.nearest import did_you_mean
from octavo.config.flags.table import BY_NAME, BY_SHORT, CURRENT_NAMES, FLAGS, GROUPS
from octavo.errors import ConfigError

_WIDTH = 96
_INDENT = 6

_USAGE = """\
usage: octavo serve [MODEL] [flags]

MODEL is a GGUF file, a folder with config.json and safetensors, org/repo, org/repo:Q4_K_M or
org/repo/file.gguf; without it the installed default model is served.
"""

_ABOUT_FLAGS = """\
Flags have vLLM's names. `_` and `-` are the same; --x turns a boolean on and --no-x off; --x.key v
sets one key of a JSON flag; --config FILE.yaml holds the same names as keys.
"""


def main_help() -> str:
    """`octavo --help`."""
    lines = ["usage: octavo COMMAND ...", "", "commands:"]
    lines += [f"  {name:<12} {text}" for name, text in AVAILABLE.items()]
    lines += ["", "  -v, --version  print the version", "  -h, --help     this text"]
    lines += ["", "octavo serve --help lists the groups of its flags."]
    return "\n".join(lines)


def serve_help(topic: str) -> str:
    """`octavo serve --help`, `--help=all`, `--help=TOPIC`.

    Raises:
        ConfigError: nothing has that name or mentions that word.
    """
    if not topic:
        return _groups()
    if topic.lower() == "all":
        parts = [_USAGE, _ABOUT_FLAGS]
        parts += [_group(name, flags) for name, flags in GROUPS.items()]
        return "\n".join(parts)
    for name, flags in GROUPS.items():
        if topic.lower() == name.lower():
            return _group(name, flags)
    return _search(topic)


def unknown_command(name: str) -> str:
    """The sentence for a first word that is no command."""
    if name in UNAVAILABLE:
        return f"octavo {name} {UNAVAILABLE[name]}"
    if name.startswith("-"):
        return f"unknown flag {name}; flags of the server come after octavo serve"
    if "/" in name or name.endswith(".gguf"):
        return f"unknown command {name!r}; to serve a model: octavo serve {name}"
    hint = did_you_mean(name, AVAILABLE, shown="octavo {}")
    return f"unknown command {name!r}{hint or '; octavo --help lists the commands'}"


def _groups() -> str:
    lines = [_USAGE, "groups of flags (octavo serve --help=GROUP, --help=FLAG, --help=all):"]
    for name, flags in GROUPS.items():
        works = sum(flag.status not in (HINT, UNSUPPORTED, REMOVED) for flag in flags)
        lines.append(f"  {name:<26} {len(flags):>3} flags, {works} with an effect here")
    return "\n".join([*lines, "", _ABOUT_FLAGS])


def _group(name: str, flags: tuple[Flag, ...]) -> str:
    return "\n".join([f"{name}:", *(_describe(flag) for flag in flags), ""])


def _search(topic: str) -> str:
    name = topic.lstrip("-").replace("_", "-")
    exact = BY_NAME.get(name) or BY_SHORT.get(name)
    if exact is not None:
        return f"{exact.group}:\n{_describe(exact)}"
    word = name.lower()
    found = [flag for flag in FLAGS if word in flag.name or word in flag.help.lower()]
    if not found:
        raise ConfigError(
            f"no flag, group or text matches {topic!r}{did_you_mean(name, CURRENT_NAMES)}"
        )
    return "\n".join(_describe(flag) for flag in found)


def _describe(flag: Flag) -> str:
    """A flag's spelling on one line and what it does, wrapped, below."""
    spellings = [f"-{short}" for short in flag.short]
    if flag.field == "model_tag":
        spellings.append("MODEL")
    else:
        long = f"--[no-]{flag.name}" if flag.kind == BOOL else f"--{flag.name}"
        spellings += [long, *(f"--{alias}" for alias in flag.aliases)]
    if flag.kind != BOOL and flag.field != "model_tag":
        spellings[-1] += f" {_placeholder(flag)}"
    text = flag.help
    if flag.status != REMOVED:
        text += f" (default: {_default(flag)})"
    text += _note(flag)
    return "\n".join([f"  {', '.join(spellings)}", *_wrapped(text)])


def _placeholder(flag: Flag) -> str:
    if flag.choices is not None:
        return "{" + ",".join(str(choice) for choice in flag.choices) + "}"
    if flag.kind == JSON:
        return "JSON"
    return flag.kind.upper() if flag.kind != STRS else "STR ..."


def _default(flag: Flag) -> str:
    if flag.auto:
        return flag.auto
    if flag.default in (None, "", {}) or flag.default == []:
        return "none"
    if isinstance(flag.default, bool):
        return "on" if flag.default else "off"
    return str(flag.default)


def _note(flag: Flag) -> str:
    if flag.status == HINT:
        return f" [no effect here: {flag.why}]"
    if flag.status == UNSUPPORTED:
        return f" [not supported: {flag.why}]"
    if flag.status == REMOVED:
        return f"[gone from vLLM's command line: {flag.why}]"
    if flag.supported is not None:
        return f" [supported: {', '.join(str(value) for value in flag.supported)}: {flag.why}]"
    return ""


def _wrapped(text: str) -> list[str]:
    lines: list[str] = []
    line = " " * _INDENT
    for word in text.split():
        if len(line) > _INDENT and len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = " " * _INDENT
        line += word if len(line) == _INDENT else f" {word}"
    return [*lines, line]
