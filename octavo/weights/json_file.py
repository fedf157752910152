"""JSON files of a checkpoint folder.

Runs in: every process that reads a checkpoint. Knows nothing of: what the keys mean.
"""

from __future__ import annotations

import json
import os
from typing import Any

from octavo.errors import ConfigError, StartupError
from octavo.wording import first_line


def read_json_object(path: str) -> dict[str, Any]:
    """A JSON file that holds an object.

    Raises:
        ConfigError: missing or not readable.
        StartupError: not JSON, or not an object.
    """
    name = os.path.basename(path)
    try:
        with open(path, "rb") as file:
            value = json.load(file, parse_int=_number)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise StartupError(
            f"{path} is not valid JSON ({first_line(error)}); download {name} again."
        ) from None
    if not isinstance(value, dict):
        raise StartupError(f"{path} is not a JSON object; download {name} again.")
    return value


def _number(digits: str) -> int | float:
    """Whole numbers that any process can be told; larger ones (transformers writes 10**30 for "no
    limit") as the nearest float, which is refused wherever a size is expected."""
    number = float(digits)
    return int(digits) if -(2.0**63) < number < 2.0**63 else number
