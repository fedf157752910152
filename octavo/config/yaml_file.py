"""Options from `--config file.yaml`: keys are flag names, `_` or `-`.

`true` and `false` set a boolean flag, a list gives repeated values, a mapping a JSON object. A
`model` in the file is the positional argument.

Runs in: the API process. Knows nothing of: the command line, what flags do.
"""

from __future__ import annotations

import yaml

from octavo.config.flags.flag import BOOL
from octavo.config.flags.nearest import did_you_mean
from octavo.config.flags.table import BY_NAME, CURRENT_NAMES, POSITIONAL
from octavo.config.flags.values import convert
from octavo.errors import ConfigError

SUFFIXES = (".yaml", ".yml")


class _Loader(yaml.SafeLoader):
    """SafeLoader that remembers keys given twice instead of dropping the first in silence."""

    duplicates: list[str]


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[object, object]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if key in seen:
            loader.duplicates.append(str(key))
        seen.add(key)
    return dict(yaml.SafeLoader.construct_mapping(loader, node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: str) -> tuple[dict[str, object], list[str]]:
    """Options by field name, typed, and warnings.

    Raises:
        ConfigError: the file cannot be read, is not a mapping, or has an unknown key or bad value.
    """
    if not path.endswith(SUFFIXES):
        raise ConfigError(f"--config {path}: the file's name must end in .yaml or .yml")
    try:
        with open(path, encoding="utf-8") as file:
            loader = _Loader(file.read())
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path}: {_one_line(error)}") from None
    loader.duplicates = []
    try:
        content = loader.get_single_data()
    except (yaml.YAMLError, TypeError) as error:  # TypeError: an unhashable key
        raise ConfigError(f"--config {path}: {_one_line(error)}") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path} must hold `flag: value` lines")
    warnings = [
        f"--config {path}: {key!r} is given twice; the last one counts" for key in loader.duplicates
    ]
    options: dict[str, object] = {}
    for key, value in content.items():
        _set(path, options, str(key), value)
    return options, warnings


def _set(path: str, options: dict[str, object], key: str, value: object) -> None:
    name = key.replace("_", "-")
    if name in ("model", POSITIONAL):
        if not isinstance(value, str) or not value:
            raise ConfigError(f"--config {path}: {key} must be the name of a model, got {value!r}")
        options["model"] = value
        return
    if name == "config":
        raise ConfigError(f"--config {path}: a file cannot name another file")
    flag = BY_NAME.get(name)
    if flag is None and name.startswith("no-"):
        flag = BY_NAME.get(name[3:])
        if flag is not None and flag.kind == BOOL and isinstance(value, bool):
            value = not value
        else:
            flag = None
    if flag is None:
        raise ConfigError(
            f"--config {path}: unknown key {key!r}{did_you_mean(name, CURRENT_NAMES)}"
        )
    if value is None:
        return  # `key:` without a value: the default
    try:
        options[flag.field] = convert(flag, value)
    except ConfigError as error:
        raise ConfigError(f"--config {path}: {error.message}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
